"""Readings that all workers share. A courtesy: where the store does not answer, each reads for itself."""

from collections.abc import Callable

from gpulease.errors import LedgerUnavailable, ProviderThrottled
from gpulease.ports import Clock, Log, SharedReads
from gpulease.providers.aws.client import THROTTLED_STATUS
from gpulease.sharing import read_through


class Shared:
    """The shared store of one account; without a store every reading is made anew."""

    def __init__(self, store: SharedReads | None, clock: Clock, log: Log, account: str) -> None:
        self._store = store
        self._clock = clock
        self._log = log
        self._account = account

    def read(self, key: str, fetch: Callable[[], str], *, fresh_seconds: float, usable_seconds: float) -> str:
        """The value of the account's `key`. Raises what `fetch` raises."""
        if self._store is None:
            return fetch()
        try:
            return read_through(
                self._store,
                self._clock,
                f"{self._account}/{key}",
                fetch,
                fresh_seconds=fresh_seconds,
                usable_seconds=usable_seconds,
            )
        except ProviderThrottled as error:
            if error.facts.status == THROTTLED_STATUS:
                raise
            # Somebody else is reading it for the first time; that is no reason to refuse a create.
        except LedgerUnavailable as error:
            self._log.warning("reading_not_shared", account=self._account, key=key, reason=str(error))
        return fetch()
