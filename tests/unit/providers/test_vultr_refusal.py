"""Why a create was refused, where the reason cannot be found out."""

from typing import Any

import pytest
from gpulease.errors import LedgerUnavailable, ProviderFacts, ProviderThrottled, ProviderUnavailable, ProviderUnexpected
from gpulease.ports import InstanceRequest
from gpulease.providers.http import Reply
from gpulease.providers.vultr.refusal import why_refused

from tests.support.ledger_samples import an_offer


class Silent:
    """Stock that cannot be read."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure

    def plan(self, *_: object) -> None:
        raise self.failure


@pytest.mark.parametrize(
    "failure",
    [
        ProviderUnavailable(ProviderFacts("vultr", "no answer")),
        ProviderThrottled(ProviderFacts("vultr", "being read by another worker")),
        LedgerUnavailable("the shared lists did not answer"),
    ],
)
def test_a_refusal_that_cannot_be_explained_is_unclear(failure: Exception) -> None:
    request = InstanceRequest(an_offer(), marker="gpulease:test:x", label="x", user_data=b"")
    reply = Reply(400, ProviderFacts("vultr", "words of nobody", status=400, method="POST", path="/instances"))
    client: Any = None
    stock: Any = Silent(failure)

    error = why_refused(reply, request, {"os_id": 1743}, client, stock)

    assert type(error) is ProviderUnexpected
    assert "words of nobody" in error.facts.message
