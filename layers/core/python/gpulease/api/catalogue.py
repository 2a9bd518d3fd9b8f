"""The catalogue of offers as the routes see it: only what this deployment can rent, with its age.

Kept for a short while between requests: reading and indexing thousands of offers costs several times what all the
rest of a request does, and they change every few hours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain

from gpulease.api.problems import unavailable
from gpulease.api.schemas import CatalogueAge
from gpulease.domain.offer import Offer, OfferSnapshot
from gpulease.domain.selection import known_gpus, same_gpu
from gpulease.ports import Deps, OfferStore

KEEP_SECONDS = 30.0


@dataclass(frozen=True)
class Catalogue:
    snapshots: tuple[OfferSnapshot, ...]
    accounts: tuple[str, ...]

    @cached_property
    def offers(self) -> tuple[Offer, ...]:
        """Offers of configured providers."""
        # The first account of a provider carries the provider's name.
        return tuple(o for s in self.snapshots if s.provider in self.accounts for o in s.offers)

    @cached_property
    def providers(self) -> frozenset[str]:
        return frozenset(o.provider for o in self.offers)

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        return tuple(known_gpus(self.offers))

    @cached_property
    def _by_gpu(self) -> dict[str, tuple[Offer, ...]]:
        return {gpu: tuple(o for o in self.offers if o.gpu_model == gpu) for gpu in self.gpus}

    def with_gpus(self, wanted: Sequence[str]) -> tuple[Offer, ...]:
        """Offers with one of these GPU models; all offers when none is named."""
        if not wanted:
            return self.offers
        models = (gpu for gpu in self.gpus if any(same_gpu(gpu, name) for name in wanted))
        return tuple(chain.from_iterable(self._by_gpu[gpu] for gpu in models))

    @cached_property
    def places(self) -> frozenset[tuple[str, str]]:
        """(provider, region)."""
        return frozenset((o.provider, o.region) for o in self.offers)

    @cached_property
    def plans(self) -> frozenset[tuple[str, str]]:
        """(provider, plan)."""
        return frozenset((o.provider, o.plan) for o in self.offers)

    def age(self, now: datetime) -> tuple[CatalogueAge, ...]:
        return tuple(
            CatalogueAge(
                provider=s.provider,
                as_of=s.as_of,
                age_seconds=max(int((now - s.as_of).total_seconds()), 0),
                offers=len(s.offers),
                configured=s.provider in self.accounts,
            )
            for s in sorted(self.snapshots, key=lambda s: s.provider)
        )


class CatalogueReader:
    """Reads the store, at most once in KEEP_SECONDS while there is something in it to rent."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._last = Catalogue((), ())
        self._store: OfferStore | None = None
        self._read_at: datetime | None = None

    def read(self) -> Catalogue:
        """What is known now, which may be nothing."""
        store, accounts, now = self._deps.offers, tuple(self._deps.providers.accounts()), self._deps.clock.now()
        fresh = self._read_at is not None and timedelta(0) <= now - self._read_at < timedelta(seconds=KEEP_SECONDS)
        # Another store means another world (the parts behind `deps` may be replaced), whatever its clock says.
        if not (fresh and store is self._store and accounts == self._last.accounts and self._last.offers):
            self._last = Catalogue(tuple(store.load()), accounts)
            self._store, self._read_at = store, now
        return self._last

    def loaded(self) -> Catalogue:
        """The same; raises a 503 problem while there is nothing in it to rent."""
        catalogue = self.read()
        if not catalogue.accounts:
            raise unavailable(
                "no_provider_configured",
                "no provider is configured in this deployment; add an API key first",
                retry_after_seconds=300,
            )
        if not catalogue.offers:
            raise unavailable(
                "catalogue_not_loaded",
                "the catalogue of offers is not loaded yet; retry in a minute",
                retry_after_seconds=60,
            )
        return catalogue
