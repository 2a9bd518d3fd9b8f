"""What stands in front of every provider account: the circuit of each region, and the pause that a 429 asks for.

Invariants: a call is passed on as it is or not at all, and a call that is not sent raises ProviderThrottled, which
means "nothing was carried out". Circuits live in this process; pauses are shared by all workers, where the shared store
can be read.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import TypeVar

from gpulease.domain.breaker import Circuit, answered, closed_for, failed, sending, unsent
from gpulease.domain.gate import Pause, pause_after, pause_key, pause_of, pause_text
from gpulease.domain.observation import Absent, Observation
from gpulease.domain.offer import Offer, PlanKind
from gpulease.domain.resource import BillingRule, ResourceKind
from gpulease.errors import (
    LedgerUnavailable,
    ProviderAuthFailed,
    ProviderError,
    ProviderFacts,
    ProviderThrottled,
    ProviderUnavailable,
)
from gpulease.ports import (
    Capabilities,
    Clock,
    InstanceRequest,
    Log,
    NetworkRequest,
    Once,
    Provider,
    Ref,
    SharedReads,
    VolumeRequest,
)

TOLD_TO_WAIT = "not called: the account was told to wait (429)"

T = TypeVar("T")


class GuardedProvider:
    """`ports.Provider` around another. Safe for threads."""

    def __init__(self, inner: Provider, *, shared: SharedReads, clock: Clock, log: Log) -> None:
        self._inner = inner
        self._shared = shared
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._circuits: dict[str, Circuit] = defaultdict(Circuit)
        self._last_failure: dict[str, str] = {}
        self.name: str = inner.name
        self.account: str = inner.account
        self.capabilities: Capabilities = inner.capabilities
        self.visibility_window_seconds: float = inner.visibility_window_seconds

    def __repr__(self) -> str:
        return f"GuardedProvider({self._inner!r})"

    def shut_for_seconds(self, region: str) -> float:
        """See `ports.Providers.shut_for_seconds`."""
        with self._lock:
            return closed_for(self._circuits[region], self._clock.now()).total_seconds()

    # --- needs no call ---

    def ready_deadline_seconds(self, offer: Offer) -> float:
        return self._inner.ready_deadline_seconds(offer)

    def billing_rule(self, kind: ResourceKind) -> BillingRule:
        return self._inner.billing_rule(kind)

    def check_image(self, image: str | None, kind: PlanKind) -> None:
        self._inner.check_image(image, kind)

    def list_of(self, ref: Ref) -> str:
        return self._inner.list_of(ref)

    def can_stop(self, offer: Offer) -> bool:
        return self._inner.can_stop(offer)

    def stopped_price_per_hour(self, offer: Offer) -> Decimal:
        return self._inner.stopped_price_per_hour(offer)

    def can_attach_volume(self, offer: Offer, region: str, zone: str) -> bool:
        return self._inner.can_attach_volume(offer, region, zone)

    def volume_price_per_month(self, region: str, size_gb: int, throughput_mibps: int | None = None) -> Decimal:
        return self._inner.volume_price_per_month(region, size_gb, throughput_mibps)

    # --- of one region ---

    def live(self, offer: Offer) -> Offer:
        # May be answered by what another worker read.
        return self._call(offer.region, lambda: self._inner.live(offer), proves=False)

    def priced(self, offers: Sequence[Offer]) -> list[Offer]:
        if not offers:
            return []
        return self._call(offers[0].region, lambda: self._inner.priced(offers), proves=False)

    def create_instance(self, request: InstanceRequest) -> Observation:
        return self._call(request.offer.region, lambda: self._inner.create_instance(request))

    def create_network(self, request: NetworkRequest) -> Observation:
        return self._call(request.region, lambda: self._inner.create_network(request))

    def attach_network(self, instance: Ref, network: Ref) -> None:
        self._call(instance.region, lambda: self._inner.attach_network(instance, network))

    def stop(self, instance: Ref) -> None:
        self._call(instance.region, lambda: self._inner.stop(instance))

    def start(self, instance: Ref) -> None:
        self._call(instance.region, lambda: self._inner.start(instance))

    def create_volume(self, request: VolumeRequest) -> Observation:
        return self._call(request.region, lambda: self._inner.create_volume(request))

    def attach_volume(self, volume: Ref, instance: Ref) -> None:
        self._call(volume.region, lambda: self._inner.attach_volume(volume, instance))

    def detach_volume(self, volume: Ref, instance: Ref) -> None:
        self._call(volume.region, lambda: self._inner.detach_volume(volume, instance))

    def observe(self, ref: Ref) -> Observation | Absent:
        seen = self._call(ref.region if ref.provider_id else "", lambda: self._inner.observe(ref))
        if isinstance(seen, Absent):
            self._must_be_its_account(ref)
        return seen

    def destroy(self, ref: Ref) -> None:
        self._call(ref.region, lambda: self._inner.destroy(ref))

    def list_owned(self, region: str, deployment: str, *, once: Once | None = None) -> Iterator[Observation]:
        return self._call(region, lambda: iter(list(self._inner.list_owned(region, deployment, once=once))))

    # --- of the account ---

    def find(self, ref: Ref) -> list[Observation]:
        found = self._call("", lambda: self._inner.find(ref))
        if not found:
            self._must_be_its_account(ref)
        return found

    def identity(self) -> str:
        return self._call("", self._inner.identity, proves=False)

    def list_machines(self, name: str) -> list[Observation]:
        return self._call("", lambda: self._inner.list_machines(name))

    def offers(self) -> list[Offer]:
        return self._call("", self._inner.offers)

    def regions(self) -> list[str]:
        return self._call("", self._inner.regions)

    # --- parts ---

    def _must_be_its_account(self, ref: Ref) -> None:
        """A valid key of another account shows complete lists without our things and "not found" by id. That is no
        proof of absence: it raises ProviderAuthFailed, like any other wrong key."""
        if not ref.account_identity:
            return
        if self.identity() != ref.account_identity:
            message = "the key opens another account than the one this was created in; what is not there proves nothing"
            raise ProviderAuthFailed(
                ProviderFacts(
                    self.name, message, region=ref.region, resource_id=ref.provider_id, reason="wrong_account"
                )
            )

    def _call(self, region: str, send: Callable[[], T], *, proves: bool = True) -> T:
        """`proves`: a value that comes back means that the provider answered just now."""
        self._must_not_pause(region)
        self._must_be_closed(region)
        try:
            value = send()
        except ProviderUnavailable as error:
            self._failed(region, error)
            raise
        except ProviderThrottled as error:
            if error.facts.status != 429:
                # Another worker is reading the same; no call was made.
                self._unsent(region)
                raise
            self._answered(region)
            pause = self._pause_from_now(error.facts.retry_after_seconds)
            raise ProviderThrottled(_waiting(error.facts, pause.left(self._clock.now()))) from error
        except ProviderError:
            self._answered(region)
            raise
        except BaseException:
            self._unsent(region)
            raise
        if proves:
            self._answered(region)
        else:
            self._unsent(region)
        return value

    def _must_be_closed(self, region: str) -> None:
        now = self._clock.now()
        with self._lock:
            circuit = self._circuits[region]
            shut = closed_for(circuit, now)
            if not shut:
                self._circuits[region] = sending(circuit, now)
                return
            last = self._last_failure.get(region, "")
        raise ProviderThrottled(
            ProviderFacts(
                self.name,
                f"not called, since too many calls got no answer; the last one: {last}"[:500],
                region=region,
                retry_after_seconds=shut.total_seconds(),
                reason="circuit_open",
            )
        )

    def _failed(self, region: str, error: ProviderUnavailable) -> None:
        with self._lock:
            before = self._circuits[region]
            after = self._circuits[region] = failed(before, self._clock.now())
            self._last_failure[region] = f"{error.reason}: {error.facts.message}"
        if after.open_until is not None:
            facts = {"provider": self.name, "account": self.account, "region": region}
            self._log.warning("circuit_open", **facts, seconds=after.open_for.total_seconds(), reason=str(error))

    def _unsent(self, region: str) -> None:
        with self._lock:
            self._circuits[region] = unsent(self._circuits[region])

    def _answered(self, region: str) -> None:
        with self._lock:
            self._circuits[region] = answered(self._circuits[region])

    def _must_not_pause(self, region: str) -> None:
        pause = self._known_pause()
        left = pause.left(self._clock.now()) if pause is not None else timedelta(0)
        if left:
            raise ProviderThrottled(_waiting(ProviderFacts(self.name, TOLD_TO_WAIT, region=region), left))

    def _pause_from_now(self, retry_after_seconds: float) -> Pause:
        now = self._clock.now()
        pause = pause_after(self._known_pause(), now, retry_after_seconds)
        try:
            self._shared.publish(pause_key(self.account), pause_text(pause), now)
        except LedgerUnavailable as error:
            self._log.warning("pause_not_shared", provider=self.name, account=self.account, reason=str(error))
        return pause

    def _known_pause(self) -> Pause | None:
        try:
            known = self._shared.read(pause_key(self.account))
        except LedgerUnavailable as error:
            # Sharing is a courtesy; giving back must not depend on it.
            self._log.warning("pause_not_shared", provider=self.name, account=self.account, reason=str(error))
            return None
        return pause_of(known.value) if known is not None else None


def _waiting(facts: ProviderFacts, left: timedelta) -> ProviderFacts:
    return replace(facts, retry_after_seconds=left.total_seconds())
