"""The catalogue of offers as the routes see it: only what this deployment can rent, with its age.

Kept between requests while the store hands out the same snapshots, because a request must not index thousands of
offers to check three names.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain

from gpulease.api.problems import unavailable
from gpulease.api.schemas import CatalogueAge
from gpulease.domain.offer import Offer, OfferSnapshot
from gpulease.domain.selection import known_gpus, same_gpu
from gpulease.ports import Deps


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

    def made_of(self, snapshots: Sequence[OfferSnapshot], accounts: Iterable[str]) -> bool:
        """Whether exactly these objects went into it (identity, which costs nothing to compare)."""
        return (
            len(snapshots) == len(self.snapshots)
            and all(a is b for a, b in zip(snapshots, self.snapshots, strict=True))
            and tuple(accounts) == self.accounts
        )


class CatalogueReader:
    """Reads the store on every request, and indexes anew only what has changed."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._last = Catalogue((), ())

    def read(self) -> Catalogue:
        """What is known now, which may be nothing."""
        snapshots, accounts = self._deps.offers.load(), self._deps.providers.accounts()
        last = self._last
        if not last.made_of(snapshots, accounts):
            last = self._last = Catalogue(tuple(snapshots), tuple(accounts))
        return last

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
