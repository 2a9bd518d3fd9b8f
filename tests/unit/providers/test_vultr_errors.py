"""The table of refusals: every text publicly known of Vultr for the calls we make, and what is not in it."""

import pytest
from gpulease.errors import (
    CapacityRefused,
    NetworkUnsupported,
    ProviderBusy,
    ProviderError,
    ProviderRejected,
    ProviderUnavailable,
    QuotaRefused,
)
from gpulease.providers.vultr.errors import CAPACITY_WORDS, ROWS, Meaning, default_of, meaning_of

ID = "4f0f12e5-0000-4000-8000-000000000001"
VM, METAL, VPC = f"/instances/{ID}", f"/bare-metals/{ID}", f"/vpcs/{ID}"
BLOCK = f"/blocks/{ID}"
NO_STOCK = (
    "Plan is not available in the selected datacenter.  This could mean you have chosen the wrong plan (for example, a "
    "storage plan in a location that does not offer them), or the location you have selected does not have any more "
    "capacity."
)
LIMIT = "Server add failed: You have reached the maximum number of active instances for this account."
NO_VPC = "Unable to attach VPC: Failed to attach VPC network: Plan does not support VPC networking"

Verdict = type[ProviderError] | Meaning | None

KNOWN: list[tuple[str, str, int, str, Verdict]] = [
    # create
    ("POST", "/instances", 400, LIMIT, QuotaRefused),
    ("POST", "/bare-metals", 400, LIMIT, QuotaRefused),
    (
        "POST",
        "/instances",
        400,
        "You have reached the maximum monthly fee limit for this account",
        QuotaRefused,
    ),
    (
        "POST",
        "/bare-metals",
        500,
        "Server add failed: You have reached the maximum monthly fee limit for this account. Contact us",
        QuotaRefused,
    ),
    ("POST", "/instances", 400, "Invalid plan chosen.", ProviderRejected),
    ("POST", "/instances", 400, "Invalid region.", ProviderRejected),
    ("POST", "/instances", 400, NO_STOCK, CapacityRefused),
    ("POST", "/bare-metals", 412, NO_STOCK.lower(), CapacityRefused),
    ("POST", "/instances", 400, NO_VPC, NetworkUnsupported),
    (
        "POST",
        "/instances",
        400,
        "Floating IPv4 address is already attached to another server",
        ProviderUnavailable,
    ),
    ("POST", "/instances", 500, "Block storage is already attached to another server", ProviderUnavailable),
    # attach
    ("POST", f"{VM}/vpcs/attach", 500, "Unable to attach VPC", ProviderBusy),
    ("POST", f"{METAL}/vpcs/attach", 500, "Unable to attach VPC: try again later", ProviderBusy),
    ("POST", f"{METAL}/vpcs/attach", 500, NO_VPC, NetworkUnsupported),
    ("POST", f"{VM}/vpcs/attach", 400, "Plan does not support private networking", NetworkUnsupported),
    ("POST", f"{VM}/vpcs/attach", 500, "plan Does Not Support Private Networking", NetworkUnsupported),
    ("POST", f"{VM}/vpcs/attach", 500, "Server is currently locked", ProviderBusy),
    # delete a machine
    (
        "DELETE",
        VM,
        500,
        "Unable to destroy server: This subscription is not currently active, you cannot destroy it.",
        ProviderBusy,
    ),
    (
        "DELETE",
        METAL,
        500,
        "Unable to destroy server: Unable to remove VM: Server is currently locked",
        ProviderBusy,
    ),
    ("DELETE", VM, 500, "Unable to destroy server: Server is already pending destruction.", Meaning.GOING),
    ("DELETE", VM, 400, "Cannot be destroyed within 5 minutes of being created", ProviderBusy),
    # not found
    *[
        (method, VM, status, text, Meaning.NOT_FOUND)
        for method in ("GET", "DELETE")
        for status in (400, 404)
        for text in ("instance not found", "invalid instance ID", "Invalid instance ID.", "Invalid instance-id")
    ],
    ("GET", f"{VM}/vpcs", 404, "Invalid instance-id", Meaning.NOT_FOUND),
    *[
        (method, METAL, status, text, Meaning.NOT_FOUND)
        for method in ("GET", "DELETE")
        for status in (400, 404)
        for text in ("Invalid server", "invalid baremetal ID", "baremetal not found")
    ],
    *[
        (method, VPC, status, text, Meaning.NOT_FOUND)
        for method in ("GET", "DELETE")
        for status in (400, 404)
        for text in ("Invalid VPC ID.", "Invalid VPC ID", "Invalid VPC 2.0 ID")
    ],
    ("GET", VM, 404, "Server is pending destruction", Meaning.GOING),
    ("GET", VM, 500, "Server is pending destruction", Meaning.GOING),
    # networks
    (
        "DELETE",
        VPC,
        400,
        "The following servers are attached to this VPC network: 198.51.100.1, 198.51.100.2",
        ProviderBusy,
    ),
    ("DELETE", VPC, 400, "VPC is attached to 139.84.195.171, 139.84.195.133", ProviderBusy),
    ("POST", "/vpcs", 400, "You have reached the maximum number of VPC networks here.", QuotaRefused),
    ("POST", "/vpcs", 400, "Invalid region.", ProviderRejected),
    # block storage
    ("POST", "/blocks", 400, "Invalid region.", ProviderRejected),
    ("GET", BLOCK, 400, "Invalid block storage ID", Meaning.NOT_FOUND),
    ("GET", BLOCK, 404, "Block storage subscription not found.", Meaning.NOT_FOUND),
    ("DELETE", BLOCK, 400, "Invalid block storage ID", Meaning.NOT_FOUND),
    ("POST", f"{BLOCK}/attach", 500, "Server is currently locked", ProviderBusy),
    ("POST", f"{BLOCK}/detach", 400, "Server is currently locked", ProviderBusy),
    (
        "POST",
        f"{BLOCK}/detach",
        400,
        "Block storage volume is not currently attached to a server",
        Meaning.DONE,
    ),
    ("POST", f"{BLOCK}/detach", 400, "Invalid block storage ID", Meaning.NOT_FOUND),
    ("POST", f"{BLOCK}/detach", 400, "Unable to detach block storage", ProviderBusy),
]


@pytest.mark.parametrize(("method", "path", "status", "text", "verdict"), KNOWN)
def test_known_texts_have_their_meaning_in_any_case(
    method: str, path: str, status: int, text: str, verdict: Verdict
) -> None:
    assert meaning_of(method, path, status, text) is verdict
    assert meaning_of(method, path, status, text.upper()) is verdict


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        # The same words are used for a route that does not exist, i.e. for a wrong base address.
        ("GET", METAL, 404, "Not found."),
        ("GET", VM, 404, "Not found."),
        # A state conflict is not an absence, and an absence at a gateway is none either.
        ("GET", VM, 500, "instance not found"),
        ("GET", VM, 404, "no error text (text/html, 162 bytes)"),
        ("GET", VM, 404, "Invalid VPC ID."),
        ("GET", VPC, 404, "instance not found"),
        # Lists have no id that could be unknown.
        ("GET", "/instances", 404, "instance not found"),
        ("POST", "/instances", 400, "This order cannot be fulfilled at the moment."),
        ("DELETE", VPC, 500, "The following servers are attached to this VPC network: x"),
        ("POST", f"{VM}/vpcs/attach", 400, "Unable to attach VPC"),
        # Whose machine it is decides what this means: ours (done) or another's (not now).
        ("POST", f"{BLOCK}/attach", 400, "Block storage is already attached to another server"),
        ("POST", f"{BLOCK}/attach", 400, "Invalid block storage ID"),
        ("GET", BLOCK, 500, "Invalid block storage ID"),
        ("GET", "/blocks", 400, "Invalid block storage ID"),
    ],
)
def test_other_texts_and_places_are_unknown(method: str, path: str, status: int, text: str) -> None:
    assert meaning_of(method, path, status, text) is None


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", VM, 404, ProviderRejected),
        ("GET", VM, 500, ProviderUnavailable),
        ("POST", "/instances", 500, ProviderUnavailable),
        ("POST", "/instances", 400, ProviderRejected),
        ("POST", "/vpcs", 500, ProviderUnavailable),
        ("DELETE", VM, 500, ProviderBusy),
        ("DELETE", VPC, 500, ProviderBusy),
        ("POST", f"{METAL}/vpcs/attach", 500, ProviderBusy),
        ("POST", f"{METAL}/vpcs/attach", 501, ProviderUnavailable),
    ],
)
def test_the_default_goes_by_call_and_status(method: str, path: str, status: int, kind: type[ProviderError]) -> None:
    assert default_of(method, path, status) is kind


def test_every_row_has_a_source_and_is_hit_by_a_known_text() -> None:
    hit = {
        next(
            index
            for index, row in enumerate(ROWS)
            if row.method == m and s in row.statuses and row.path.fullmatch(p) and row.text.search(t)
        )
        for m, p, s, t, _ in KNOWN
    }

    assert hit == set(range(len(ROWS)))
    assert all(row.source for row in ROWS)


@pytest.mark.parametrize("text", [NO_STOCK, "Out of stock", "SOLD OUT", "GPU capacity exhausted", "plan unavailable"])
def test_words_that_speak_for_no_capacity(text: str) -> None:
    assert CAPACITY_WORDS.search(text)
