"""Names for leases that were given none: easy to say, and made from the id, so that no randomness is needed."""

from hashlib import sha256

_ADJECTIVES = (
    "amber", "bold", "brisk", "calm", "clear", "cosy", "crisp", "dapper", "eager", "fair", "fleet", "gentle",
    "glad", "golden", "hardy", "jolly", "keen", "kind", "lively", "lucid", "mellow", "merry", "mild", "neat",
    "nimble", "noble", "plucky", "proud", "quick", "quiet", "rapid", "ready", "silent", "smart", "snug", "solid",
    "spry", "steady", "sunny", "swift", "tidy", "vivid", "warm", "witty",
)  # fmt: skip
_NOUNS = (
    "adder", "badger", "beaver", "bison", "bittern", "condor", "crane", "curlew", "dingo", "egret", "falcon",
    "ferret", "finch", "gannet", "gecko", "heron", "ibex", "jackal", "kestrel", "lark", "lemur", "linnet", "lynx",
    "magpie", "marmot", "marten", "merlin", "newt", "ocelot", "oriole", "osprey", "otter", "plover", "puffin",
    "quail", "raven", "robin", "shrew", "stoat", "swift", "tapir", "tern", "vole", "wren",
)  # fmt: skip


def name_for(lease_id: str) -> str:
    """An adjective and an animal, such as `brisk-otter`. Not unique: ids are."""
    digest = sha256(lease_id.encode()).digest()
    return f"{_ADJECTIVES[digest[0] % len(_ADJECTIVES)]}-{_NOUNS[digest[1] % len(_NOUNS)]}"
