"""Which accounts there are, and what becomes of one that is taken out of the configuration (case C15)."""

from datetime import UTC, datetime

import pytest
from gpulease.errors import InputInvalid
from gpulease.ledger.sqlite_shared import SqliteSharedReads
from gpulease.runtime.accounts import ConfiguredProviders
from gpulease.runtime.settings import parse

from tests.support.provider_world import Lines


class Clock:
    def now(self) -> datetime:
        return datetime(2026, 1, 5, tzinfo=UTC)


class Secrets:
    def provider_key(self, account: str, *, fresh: bool = False) -> str:
        return "key"


def providers(accounts: str) -> ConfiguredProviders:
    settings = parse({"deployment": "test0000", "accounts": accounts})
    return ConfiguredProviders(settings, Secrets(), Clock(), Lines(), SqliteSharedReads())


def test_a_configured_account_is_offered_and_reached() -> None:
    both = providers("vultr, research=vultr")

    assert both.accounts() == ("vultr", "research")
    assert both.get("research").account == "research"


def test_an_account_taken_out_is_offered_no_more_and_still_reached() -> None:
    without = providers("research=vultr")

    assert without.accounts() == ("research",)
    assert without.get("vultr").account == "vultr"


def test_an_account_that_never_was_one_is_refused_by_name() -> None:
    with pytest.raises(InputInvalid, match="'nosuch'"):
        providers("vultr").get("nosuch")
