"""The AWS adapter on the simulated account: what the provider contract needs, and what tests of AWS cases need.

`AwsWorld()` talks to the account in this process, `aws_over_http()` through boto3 and a real socket. For whole
workflows: `options(cloud)` is what `ConfiguredProviders` and `registry.build` take as the account's options.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

from botocore.awsrequest import AWSResponse
from gpulease.domain.observation import Observation
from gpulease.domain.offer import Offer, PlanKind
from gpulease.ports import Provider, SharedReads
from gpulease.providers.aws.options import AwsOptions, CatalogueRow
from gpulease.providers.aws.views import MARKER_TAG
from gpulease.providers.registry import build
from gpulease_sim.aws import AwsCloud, Behaviour, BookObject, Settings, VolumeBehaviour, connect, lost_answer
from gpulease_sim.aws.prices import HOURLY, SPOT_SHARE
from gpulease_sim.aws.server import serve

from tests.support.provider_contract import MARKER
from tests.support.provider_world import DEPLOYMENT, Lines, ManualClock, OneKey, request
from tests.unit.providers.test_http import Scripted

REGION, OTHER_REGION = "us-east-1", "us-west-2"
ZONE, OTHER_ZONE = "us-east-1a", "us-east-1b"
PLAN, OTHER_PLAN = "g6.xlarge", "g5.xlarge"
TOKEN = "l-aaaaaaaaaaaa.instance.1"  # noqa: S105 - an idempotency token
GPUS: dict[str, tuple[str, int, float, int, float]] = {
    "g4dn.xlarge": ("T4", 1, 16, 4, 16),
    "g5.xlarge": ("A10G", 1, 24, 4, 16),
    "g5.12xlarge": ("A10G", 4, 24, 48, 192),
    "g6.xlarge": ("L4", 1, 24, 4, 16),
    "g6.12xlarge": ("L4", 4, 24, 48, 192),
    "g6e.xlarge": ("L40S", 1, 48, 4, 32),
    "p4d.24xlarge": ("A100", 8, 40, 96, 1152),
    "p5.48xlarge": ("H100", 8, 80, 192, 2048),
}
"""GPU model, count, memory per GPU, vCPUs, memory."""

STEADY = Behaviour(
    running_seconds=(20, 20),
    ok_seconds=(100, 100),
    guest_boot_seconds=(30, 30),
    get_lag_seconds=(0, 0),
    list_lag_seconds=(0, 0),
    stopped_seconds=(30, 30),
    terminated_seconds=(20, 20),
    interface_linger_seconds=(0, 0),
)
"""A machine without luck: running at 20 s, SSH at 50 s, ready at 120 s."""
STEADY_VOLUME = VolumeBehaviour(
    available_seconds=(2, 2),
    get_lag_seconds=(0, 0),
    list_lag_seconds=(0, 0),
    attached_seconds=(3, 3),
    detached_seconds=(5, 5),
    deleted_seconds=(1, 1),
)


def steady(**values: Any) -> Settings:
    """Settings under which nothing is left to chance, and no call is throttled."""
    given: dict[str, Any] = {"instance": STEADY, "volume": STEADY_VOLUME, "buckets": {}}
    return Settings(**(given | values))


def rows(regions: Sequence[str] = (REGION, OTHER_REGION)) -> list[CatalogueRow]:
    """A catalogue at the simulator's own prices, on-demand and spot."""
    found = []
    for plan, (model, count, memory, vcpus, ram) in GPUS.items():
        for region in regions:
            on_demand = HOURLY[plan]
            row = CatalogueRow(plan, region, on_demand, vcpus, ram, model, count, memory)
            found += [
                row,
                replace(row, spot=True, price_per_hour_usd=(on_demand * SPOT_SHARE).quantize(Decimal(".0001"))),
            ]
    return found


def options(cloud: AwsCloud | None, **changes: Any) -> AwsOptions:
    """The options of an account on the simulator; None = it is reached over HTTP."""
    given: dict[str, Any] = {"regions": (REGION, OTHER_REGION), "catalogue": rows}
    if cloud is not None:
        given["connect"] = lambda client: connect(client, cloud)
    return AwsOptions(**(given | changes))


class AwsWorld:
    """`World` on the simulated account. Pauses between tries are noted and not waited for."""

    tells_stock = False
    names_refusals = True
    refuses_early_destroy = False

    def __init__(self, settings: Settings | None = None, *, shared: SharedReads | None = None, **changes: Any) -> None:
        self.clock = ManualClock()
        self.cloud = AwsCloud(self.clock, seed=1, settings=settings or steady())
        self.log = Lines()
        self.slept: list[float] = []
        self.shared = shared
        self._broken: tuple[int, bytes] | None = None
        self.provider = self.build(self.cloud, **changes)

    def build(self, cloud: AwsCloud | None, base_url: str = "", **changes: Any) -> Provider:
        """An adapter of its own, as another worker has one."""
        given = options(cloud, **changes)
        return build(
            "aws",
            "aws",
            Scripted(),
            OneKey(),
            clock=self.clock,
            log=self.log,
            sleep=self.slept.append,
            base_url=base_url,
            shared=self.shared,
            options=replace(given, connect=self._breakable(given)),
        )

    def _breakable(self, given: AwsOptions) -> Any:
        def connected(client: Any) -> None:
            client.meta.events.register_first("before-send", self._answer)
            if given.connect is not None:
                given.connect(client)

        return connected

    def _answer(self, request: Any, event_name: str = "", **_: Any) -> AWSResponse | None:
        operation = event_name.rpartition(".")[2]
        if self._broken is None or not operation.startswith(("Describe", "Get")):
            return None
        status, body = self._broken
        return AWSResponse(request.url, status, {"content-type": "text/xml"}, _Raw(body))  # type: ignore[arg-type]

    def advance(self, seconds: float) -> None:
        self.clock.seconds += seconds

    def offer(self, kind: PlanKind, *, plan: str = PLAN, zone: str = ZONE, spot: bool = False) -> Offer:
        assert kind is PlanKind.VM
        offers = self.provider.offers()
        return next(each for each in offers if (each.plan, each.zone, each.spot) == (plan, zone, spot))

    def creates_seen(self) -> int:
        return self.calls("RunInstances")

    def calls(self, action: str) -> int:
        """How many calls of that action arrived."""
        return sum(call.action == action for call in self.cloud.calls)

    def machines_made(self) -> int:
        return sum(each.kind == "instance" for each in self._objects())

    def _objects(self) -> list[BookObject]:
        return list(self.cloud.book.objects())

    def volumes_made(self) -> int:
        """Volumes asked for as such; disks that come with machines do not count."""
        return sum(each.kind == "volume" and not each.tags.get(MARKER_TAG, "").count("l-") for each in self._objects())

    def billed(self) -> set[str]:
        """Ids of all that costs anything now, or is a machine."""
        return {each.id for each in self.cloud.book.billed()}

    def elsewhere(self, offer: Offer) -> tuple[str, str]:
        return offer.region, OTHER_ZONE if offer.zone != OTHER_ZONE else ZONE

    def reach_volume_limit(self) -> None:
        self.set(volume_limit=0)

    def lose_next_create_answer(self) -> None:
        self.cloud.faults.add(lost_answer("RunInstances|CreateVolume"))

    def break_reads(self, body: str, status: int, *, html: bool = False) -> None:
        self._broken = (status, f"<html>{body}</html>".encode() if html else body.encode())

    def refuse_key(self) -> None:
        self.set(access_keys=frozenset({"another"}))

    def heal(self) -> None:
        self._broken = None
        self.cloud.faults.clear()
        self.set(access_keys=None, reworded=False)

    def reword(self) -> None:
        self.set(reworded=True)

    def sell_out(self, offer: Offer) -> None:
        self.set(capacity={f"{offer.zone}/{offer.plan}": 0})

    def reach_limit(self) -> None:
        self.set(vcpu_limit=0)

    def remove_by_hand(self, provider_id: str) -> None:
        self.cloud.remove_by_hand(provider_id)

    def hide_from_lists(self, seconds: float) -> None:
        self.set(instance=replace(self.cloud.settings.instance, list_lag_seconds=(seconds, seconds)))

    def set(self, **changes: Any) -> None:
        """Other settings from now on."""
        self.cloud.settings = replace(self.cloud.settings, **changes)


class _Raw(io.BytesIO):
    """What botocore reads of a response."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()


@contextmanager
def aws_over_http(settings: Settings | None = None) -> Iterator[AwsWorld]:
    """The same world behind a real socket on loopback."""
    world = AwsWorld(settings)
    with serve(world.cloud) as server:
        world.provider = world.build(None, server.url)
        yield world


def console(world: AwsWorld, region: str = REGION) -> Any:
    """An EC2 client of somebody else in the same account: the user in the console, an older version, a stranger."""
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "ec2",
        region_name=region,
        aws_access_key_id="any",
        aws_secret_access_key="any",  # noqa: S106 - a simulator takes any
        config=Config(retries={"total_max_attempts": 1}),
    )
    connect(client, world.cloud)
    return client


def launch(world: AwsWorld, marker: str = MARKER, **changes: Any) -> Observation:
    """A machine of the world's offer, or of another (`offer`), with a token."""
    offer = changes.pop("offer", None) or world.offer(PlanKind.VM)
    return world.provider.create_instance(request(offer, marker, **{"idempotency_token": TOKEN, **changes}))


def owned(world: AwsWorld) -> set[str]:
    """Ids of all that the inventory shows."""
    return {seen.provider_id for seen in world.provider.list_owned(REGION, DEPLOYMENT)}
