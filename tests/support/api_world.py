"""A small world around the API: SQLite ledger in memory, a clock that stands still, one provider with a few offers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from gpulease.api.app import create_app
from gpulease.domain.lease import Attempt, LeaseState
from gpulease.domain.offer import Offer, OfferSnapshot, PlanKind
from gpulease.domain.record import Change
from gpulease.domain.resource import BillingRule, Rate, Resource, ResourceKind, ResourceState
from gpulease.errors import InputInvalid
from gpulease.ledger.sqlite import SqliteLedger
from gpulease.ledger.sqlite_agents import SqliteAgentStore
from gpulease.ledger.sqlite_drains import SqliteDrainStore
from gpulease.ledger.sqlite_shared import SqliteSharedReads
from gpulease.ledger.sqlite_sweeps import SqliteSweepStore
from gpulease.ports import Policy

from tests.support.api_events import ALICE, Client
from tests.support.provider_world import Lines

START = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
ADMIN = "arn:aws:iam::111122223333:user/root-of-all"


def offer(plan: str, gpu: str, price: str, **more: Any) -> Offer:
    values = {
        "provider": "vultr",
        "region": "ewr",
        "kind": PlanKind.VM,
        "gpu_count": 1,
        "gpu_memory_gib": 80.0,
        "vcpus": 12,
        "memory_gib": 120.0,
        "disk_gb": 1400,
        **more,
    }
    return Offer(plan=plan, gpu_model=gpu, price_per_hour_usd=Decimal(price), **values)


OFFERS = (
    offer("vcg-a100-12c", "A100", "2.397"),
    offer("vcg-a100-12c", "A100", "2.397", region="ams"),
    offer("vcg-a16-6c", "A16", "0.47", gpu_memory_gib=16.0, vcpus=6, memory_gib=64.0),
    offer("vbm-8-h100", "H100", "23.92", gpu_count=8, kind=PlanKind.BARE_METAL, private_network=False),
    offer("vcg-l40s-16c", "L40S", "1.671", gpu_memory_gib=48.0),
)


@dataclass
class StillClock:
    at: datetime = START

    def now(self) -> datetime:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class CountingIds:
    count: int = 0

    def lease_id(self) -> str:
        self.count += 1
        letters = "abcdefghijklmnopqrstuvwxyz234567"
        number, text = self.count, ""
        for _ in range(12):
            number, digit = divmod(number, 32)
            text = letters[digit] + text
        return f"l-{text}"

    def token(self) -> str:
        self.count += 1
        return f"{self.count:032x}"


@dataclass
class RecordedWorkflows:
    started: list[tuple[str, str, str, int]] = field(default_factory=list)
    failure: Exception | None = None

    def start(self, machine: str, name: str, lease_id: str, epoch: int) -> None:
        if self.failure:
            raise self.failure
        self.started.append((machine, name, lease_id, epoch))

    def is_running(self, machine: str, name: str) -> bool:
        return any(entry[:2] == (machine, name) for entry in self.started)


@dataclass
class KeptOffers:
    snapshots: list[OfferSnapshot] = field(
        default_factory=lambda: [OfferSnapshot(provider="vultr", as_of=START, offers=OFFERS)]
    )

    def save(self, snapshot: OfferSnapshot) -> None:
        self.snapshots = [s for s in self.snapshots if s.provider != snapshot.provider] + [snapshot]

    def load(self) -> list[OfferSnapshot]:
        return self.snapshots


@dataclass
class ImageCheckingProvider:
    """Knows what needs no call: forms of images, pauses, volumes. Any other call is an error of the API."""

    stops: bool = False
    """Whether a stopped machine is not billed there."""
    account: str = "vultr"

    def can_attach_volume(self, offer: Offer, region: str, zone: str) -> bool:
        return offer.kind is PlanKind.VM and (offer.region, offer.zone) == (region, zone)

    def volume_price_per_month(self, region: str, size_gb: int, throughput_mibps: int | None = None) -> Decimal:
        if throughput_mibps is not None and not 125 <= throughput_mibps <= 1000:
            raise InputInvalid(f"125 to 1000 MiB/s, not {throughput_mibps}", field="throughput_mibps")
        if region not in ("ewr", "ams", "nrt"):
            raise InputInvalid(f"no block storage in {region!r}", field="region")
        if size_gb < 10:
            raise InputInvalid(f"block storage has 10 GB or more, not {size_gb} GB", field="size_gb")
        return Decimal("0.10") * size_gb + Decimal("0.04") * ((throughput_mibps or 125) - 125)

    def billing_rule(self, kind: ResourceKind) -> BillingRule:
        return BillingRule.STARTED_HOUR

    def can_stop(self, offer: Offer) -> bool:
        return self.stops

    def stopped_price_per_hour(self, offer: Offer) -> Decimal:
        assert self.stops, "asked only where machines can be stopped"
        return Decimal("0.011")

    def check_image(self, image: str | None, kind: PlanKind) -> None:
        if image is not None and not image.startswith("os:"):
            raise InputInvalid("an image is os:<number>, such as os:2284", field="image")


@dataclass
class OneProvider:
    names: tuple[str, ...] = ("vultr",)
    stops: bool = False

    def accounts(self) -> Sequence[str]:
        return self.names

    def shut_for_seconds(self, account: str, region: str) -> float:
        return 0.0

    def get(self, account: str) -> Any:
        if account not in self.names:
            raise InputInvalid(f"no account {account}", field="providers")
        return ImageCheckingProvider(self.stops)


class KeptLog(Lines):
    """The same, asked by level."""

    def events(self, level: str) -> list[str]:
        return [event for kind, event, _ in self.lines if kind == level]


class Unused:
    """A part that the API must not touch."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the API used {name}")


@dataclass
class World:
    """`ports.Deps` for tests of the API. Swap a part before the first request, or any time."""

    ledger: Any = field(default_factory=SqliteLedger)
    offers: Any = field(default_factory=KeptOffers)
    sweeps: Any = field(default_factory=SqliteSweepStore)
    agents: Any = field(default_factory=SqliteAgentStore)
    drains: Any = field(default_factory=SqliteDrainStore)
    shared: Any = field(default_factory=SqliteSharedReads)
    providers: Any = field(default_factory=OneProvider)
    workflows: Any = field(default_factory=RecordedWorkflows)
    clock: Any = field(default_factory=StillClock)
    ids: Any = field(default_factory=CountingIds)
    log: Any = field(default_factory=KeptLog)
    policy: Policy = field(default_factory=lambda: Policy(deployment="d1", admins=frozenset({ADMIN})))
    secrets: Any = field(default_factory=Unused)
    probe: Any = field(default_factory=Unused)
    notifier: Any = field(default_factory=Unused)
    waits: Any = field(default_factory=Unused)
    failed_executions: Any = field(default_factory=Unused)

    def client(self, owner: str | None = ALICE) -> Client:
        return Client(create_app(self), owner)


def running_lease(world: World, client: Client) -> str:
    """A lease whose machine has been up for 90 minutes."""
    lease_id: str = client.post({"gpu": ["A100"], "name": "trainer"}).json["id"]
    lease = world.ledger.load(lease_id).lease
    machine = Resource(
        id=f"{lease_id}.instance.1",
        lease_id=lease_id,
        attempt=1,
        kind=ResourceKind.INSTANCE,
        provider="vultr",
        account="vultr",
        region="ewr",
        marker="m",
        state=ResourceState.HELD,
        plan="vcg-a100-12c",
        intended_at=START,
        provider_id="p-1",
        billed_from=START,
        billing=BillingRule.STARTED_HOUR,
        rates=(Rate(since=START, usd_per_hour=Decimal("2.397")),),
        address="192.0.2.7",
        status="active/running/ok",
    )
    attempt = Attempt(number=1, offer=OFFERS[0], started_at=START, ready_deadline=START + timedelta(minutes=10))
    for state in (LeaseState.PROVISIONING, LeaseState.RUNNING):
        new = world.ledger.load(lease_id).lease.model_copy(
            update={"state": state, "attempts": (attempt,), "running_at": START}
        )
        resources = (machine,) if state is LeaseState.PROVISIONING else ()
        world.ledger.commit(Change(lease_id=lease_id, lease=new, resources=resources, epoch=lease.epoch))
    world.clock.advance(5400)
    return lease_id
