"""The agent's program as it is sent to machines, `guest/agent.py` without what only people read, and their user data.

It is data here and never imported. What is taken out: comments, docstrings, blank lines, three of four blanks of
indentation. Invariant: the program has no string of several lines but docstrings and those of whole-line constants,
which are left as they are; tests run it in this very form.
"""

import ast
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from gpulease.domain.agent_config import AgentConfig, agent_config
from gpulease.domain.agent_protocol import PROGRAM_PATH, new_token
from gpulease.domain.offer import Offer
from gpulease.domain.spec import LeaseSpec
from gpulease.domain.user_data import AgentParts, UserDataTooLarge, build_user_data, build_with_agent

SPARE_BYTES = 128
"""What is known only later (a token, an id) may compress a little worse."""
SMALLEST_LIMIT_BYTES = 16 * 1024
"""Of all providers: AWS EC2."""
_AROUND_BYTES = 3072
"""User data without script and keys, in its smallest form, and some more."""


@dataclass(frozen=True, slots=True)
class AgentProgram:
    """`packed` is the program gzipped."""

    source: bytes
    packed: bytes
    sha256: str


@cache
def agent_program() -> AgentProgram:
    """Read once per process."""
    text = (files("gpulease") / "guest" / "agent.py").read_text(encoding="utf-8")
    source = stripped(text).encode()
    return AgentProgram(source, gzip.compress(source, 9, mtime=0), sha256(source).hexdigest())


def stripped(source: str) -> str:
    """The same program with fewer bytes."""
    drop, keep = set[int](), set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.end_lineno != node.lineno:
            keep.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
        body = getattr(node, "body", None)
        if not isinstance(body, list) or len(body) < 2:
            continue
        for each in body:
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                drop.update(range(each.lineno, (each.end_lineno or 0) + 1))
    lines = []
    for number, line in enumerate(source.splitlines(), 1):
        plain = line.lstrip(" ")
        if number in drop or (number not in keep and (not plain or plain.startswith("# ") or plain == "#")):
            continue
        lines.append(line if number in keep else " " * ((len(line) - len(plain)) // 4) + plain)
    return "\n".join(lines) + "\n"


def machine_data(spec: LeaseSpec, script: bytes, config: AgentConfig | None, limit: int) -> bytes:
    """User data of a machine, in at most `limit` bytes; without a configuration it gets no agent.

    Raises UserDataTooLarge.
    """
    if config is None:
        plain = build_user_data(spec.ssh_keys, script)
        data = plain if len(plain) <= limit else gzip.compress(plain, 9, mtime=0)
        if len(data) > limit:
            raise UserDataTooLarge(len(data), limit)
        return data
    program = agent_program()
    parts = AgentParts(
        packed=program.packed,
        sha256=program.sha256,
        config=config.model_dump_json(exclude_defaults=True),
        route=PROGRAM_PATH,
    )
    return build_with_agent(spec.ssh_keys, script, parts, limit)


def check_fits(spec: LeaseSpec, script: bytes, agent_url: str, limit: int) -> None:
    """Raises UserDataTooLarge when a machine's user data will not fit, before anything of it is known."""
    if not agent_url:
        machine_data(spec, script, None, limit)
        return
    random = sha256(script).hexdigest()
    cache: dict[str, Any] | None = None
    if spec.cache is not None:
        volume = {
            "provider": "xxxxxx",
            "provider_id": random,
            "size_gb": 99999,
            "serials": [random],
            "devices": [random],
        }
        cache = {"id": "c-234567abcdef", "name": spec.cache.name, "volume": volume, "docker": True}
        cache |= {"mounts": spec.cache.mounts, "object_store": {"bucket": random * 4, "prefix": random * 2}}
    config = agent_config(
        url=agent_url,
        token=new_token("l-234567abcdef", random[:32]),
        lease_id="l-234567abcdef",
        gpus=spec.gpu_count,
        script_bytes=len(script),
        ssh_port=22,
        cache=cache,
    )
    try:
        machine_data(spec, script, config, limit - SPARE_BYTES)
    except UserDataTooLarge as error:
        raise UserDataTooLarge(error.size + SPARE_BYTES, limit) from None


def fits_anywhere(spec: LeaseSpec, script_bytes: int) -> bool:
    """Whether there is no need to ask providers what they take: by far most requests are small."""
    others = sum(len(key) for key in spec.ssh_keys) + (len(str(spec.cache)) if spec.cache else 0)
    return (script_bytes + others) * 21 // 20 + _AROUND_BYTES <= SMALLEST_LIMIT_BYTES


def offers_that_carry(
    spec: LeaseSpec, script: bytes, agent_url: str, offers: list[Offer], limit_of: Callable[[str], int]
) -> list[Offer]:
    """Offers of providers that take the machine's user data (C60). Raises UserDataTooLarge where none does.

    `limit_of`: a provider's name to the bytes it takes.
    """
    if not offers or fits_anywhere(spec, len(script)):
        return offers
    refused: dict[str, UserDataTooLarge] = {}
    for name in dict.fromkeys(offer.provider for offer in offers):
        try:
            check_fits(spec, script, agent_url, limit_of(name))
        except UserDataTooLarge as error:
            refused[name] = error
    left = [offer for offer in offers if offer.provider not in refused]
    if not left:
        raise max(refused.values(), key=lambda error: error.limit)
    return left
