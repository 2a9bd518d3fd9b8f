"""What Vultr's refusals mean: the only place that knows their wording.

The API has no error codes; state conflicts are mostly 500 with a text. A row makes a common case quick. A refusal
without a row must still end right: the adapter looks at the state (`adapter.py`), or the default of its call holds.

Sources: `spec` = the official API reference; `dstack`, `ansible`, `terraform` = texts handled in those public clients
(dstack PR #2132; ansible-collection-vultr #113, #68, #89, #115; terraform-provider-vultr #355, #363, #395);
`measured` = public measurements of 2026; `v1` = clients of the older API; `C..` = a case of our collection.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from gpulease.errors import (
    CapacityRefused,
    NetworkUnsupported,
    ProviderBusy,
    ProviderError,
    ProviderRejected,
    ProviderUnavailable,
    QuotaRefused,
)


class Meaning(StrEnum):
    """Refusals that are no failure."""

    NOT_FOUND = "not found"
    GOING = "being deleted"
    DONE = "done already"


@dataclass(frozen=True, slots=True)
class Row:
    """`path` must match whole, `text` anywhere, both without regard to case."""

    method: str
    path: re.Pattern[str]
    statuses: range
    text: re.Pattern[str]
    verdict: type[ProviderError] | Meaning
    source: str


def _row(
    method: str, path: str, statuses: range, text: str, verdict: type[ProviderError] | Meaning, source: str
) -> Row:
    return Row(method, re.compile(path, re.I), statuses, re.compile(text, re.I), verdict, source)


_ONLY_400 = range(400, 401)
_4XX = range(400, 500)
_500 = range(500, 501)
_4XX_500 = range(400, 501)

_CREATE = r"/(instances|bare-metals)"
_MACHINE = r"/(instances|bare-metals)/[^/]+"
_VM_READ = r"/instances/[^/]+(/vpcs)?"
_METAL_READ = r"/bare-metals/[^/]+(/vpcs)?"
_ATTACH = r"/(instances|bare-metals)/[^/]+/vpcs/attach"
_VPC = r"/vpcs/[^/]+"
_NO_VM = r"instance not found|invalid instance[- ]id"
_NO_METAL = "invalid server|invalid baremetal id|baremetal not found"
_BLOCK = r"/blocks/[^/]+"
_BLOCK_MOVE = r"/blocks/[^/]+/(attach|detach)"
_NO_BLOCK = "invalid block storage id|block storage subscription not found"
_VPC_IN_USE = "servers are attached to this vpc|vpc is attached to"

ROWS: tuple[Row, ...] = (
    # Create. Refused synchronously, nothing results.
    _row("POST", _CREATE, _4XX_500, "maximum number of active instances", QuotaRefused, "dstack, C33"),
    _row("POST", _CREATE, _4XX_500, "maximum monthly fee limit", QuotaRefused, "terraform, C33"),
    _row("POST", _CREATE, _4XX_500, "plan is not available in the selected datacenter", CapacityRefused, "v1, C17"),
    _row("POST", _CREATE, _4XX, "invalid plan chosen", ProviderRejected, "ansible"),
    _row("POST", _CREATE, _4XX, "invalid region", ProviderRejected, "measured"),
    _row("POST", _CREATE, _4XX_500, "does not support (vpc|private) networking", NetworkUnsupported, "terraform, C21"),
    # Worth another try by their text, so as unclear as a lost answer.
    _row("POST", _CREATE, _4XX_500, "is already attached to another server", ProviderUnavailable, "terraform"),
    # Attach.
    _row("POST", _ATTACH, _4XX_500, "does not support (vpc|private) networking", NetworkUnsupported, "terraform, C21"),
    _row("POST", _ATTACH, _500, "unable to attach vpc", ProviderBusy, "dstack, C20"),
    _row("POST", _ATTACH, _4XX_500, "currently locked|not currently active", ProviderBusy, "ansible"),
    # Delete a machine.
    _row("DELETE", _MACHINE, _4XX_500, "pending destruction", Meaning.GOING, "v1, C14"),
    _row("DELETE", _MACHINE, _4XX_500, "not currently active|currently locked", ProviderBusy, "dstack, ansible, C10"),
    _row("DELETE", _MACHINE, _4XX_500, r"minutes of being created", ProviderBusy, "v1"),
    # Read a machine.
    _row("GET", _MACHINE, _4XX_500, "pending destruction", Meaning.GOING, "ansible"),
    _row("GET", _VM_READ, _4XX, _NO_VM, Meaning.NOT_FOUND, "terraform, C16"),
    _row("DELETE", _MACHINE, _4XX, _NO_VM, Meaning.NOT_FOUND, "terraform"),
    _row("GET", _METAL_READ, _4XX, _NO_METAL, Meaning.NOT_FOUND, "terraform"),
    _row("DELETE", _MACHINE, _4XX, _NO_METAL, Meaning.NOT_FOUND, "terraform"),
    # Networks. Five per region by the spec; the text at the limit is not publicly known.
    _row("POST", "/vpcs", _4XX, "maximum number of vpc", QuotaRefused, "spec (limit), text assumed"),
    _row("POST", "/vpcs", _4XX, "invalid region", ProviderRejected, "measured"),
    _row("GET", _VPC, _4XX, r"invalid vpc( 2\.0)? id", Meaning.NOT_FOUND, "terraform"),
    _row("DELETE", _VPC, _4XX, r"invalid vpc( 2\.0)? id", Meaning.NOT_FOUND, "terraform"),
    _row("DELETE", _VPC, _ONLY_400, _VPC_IN_USE, ProviderBusy, "measured, C18"),
    # Block storage.
    _row("POST", "/blocks", _4XX, "invalid region", ProviderRejected, "measured"),
    _row("GET", _BLOCK, _4XX, _NO_BLOCK, Meaning.NOT_FOUND, "terraform, csi"),
    _row("DELETE", _BLOCK, _4XX, _NO_BLOCK, Meaning.NOT_FOUND, "terraform, csi"),
    _row("POST", _BLOCK_MOVE, _4XX_500, "currently locked", ProviderBusy, "terraform #482, csi #99"),
    _row("POST", _BLOCK + "/detach", _4XX, "not currently attached", Meaning.DONE, "csi"),
    _row("POST", _BLOCK + "/detach", _4XX, _NO_BLOCK, Meaning.NOT_FOUND, "terraform, csi"),
    _row("POST", _BLOCK + "/detach", _4XX, "unable to detach block storage", ProviderBusy, "csi #68"),
)

CAPACITY_WORDS = re.compile(r"capacity|not available|out of stock|sold out|unavailable", re.I)
"""Words of a refused create that speak for "no capacity" where the state alone does not decide."""


def meaning_of(method: str, path: str, status: int, text: str) -> type[ProviderError] | Meaning | None:
    """The verdict of the first row that fits; None = nobody knows this refusal."""
    for row in ROWS:
        if row.method == method and status in row.statuses and row.path.fullmatch(path) and row.text.search(text):
            return row.verdict
    return None


def default_of(method: str, path: str, status: int) -> type[ProviderError]:
    """The class of a refusal without a row, by call and status alone."""
    if status < 500:
        return ProviderRejected
    # A machine that cannot be deleted or attached to right now answers 500 in many wordings.
    if status == 500 and (method == "DELETE" or re.fullmatch(_ATTACH, path)):
        return ProviderBusy
    return ProviderUnavailable
