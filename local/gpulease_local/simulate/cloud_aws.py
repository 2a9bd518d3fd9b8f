"""The simulated AWS account as simulations see it: see `clouds.py`.

Disks that a launch made and the spot request behind it are parts of their machine. Private networks are security
groups, which cost nothing and are in no book: they are read from the account itself.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

from gpulease.domain.resource import marker_for
from gpulease_sim.aws import AwsCloud, outage
from gpulease_sim.aws.book import Book, Entry

from gpulease_local.simulate.cloud_vultr import STRANGER
from gpulease_local.simulate.clouds import MACHINE, NETWORK, OTHER, VOLUME, Spans, Thing, markers_of
from gpulease_local.simulate.virtual_aws import REGIONS

MARKER_TAG, DEPLOYMENT_TAG = "gpulease-marker", "gpulease-deployment"
ROLES = {"instance": MACHINE, "volume": VOLUME}
PARTS = frozenset({"volume", "spot_request"})
_KEY = "AWS4-HMAC-SHA256 Credential=AKIASOMEBODY/20260105/{region}/ec2/aws4_request, SignedHeaders=host, Signature=0"
_HERE = ("us-east-1", "g4dn.xlarge")
_TRIES = 20
_REASONS = {
    "Server.SpotInstanceTermination": "interrupted",
    "Server.InsufficientInstanceCapacity": "no_capacity",
    "Server.InternalError": "boot_failed",
    "Client.VolumeLimitExceeded": "quota_exceeded",
}
"""https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html"""


@dataclass(frozen=True, slots=True)
class _Source:
    """By the second while it runs; stopping and stopped are free.

    The account goes on to the time of the latest call, and calls beside each other are not of one time: what it has
    ended has ended, also for one whose clock is some seconds behind.
    """

    entry: Entry
    book: Book
    now: Callable[[], float]

    def destroyed_from(self) -> float:
        return min(self.entry.destroyed, self.now()) if self.entry.destroyed < math.inf else math.inf

    def is_billed(self, now: float) -> bool:
        return bool(self.entry.spans) and self.entry.spans[-1].end == math.inf

    def spans(self, now: float) -> Spans:
        return self.book.get(self.entry.id, now).running

    def cost_usd(self, now: float) -> Decimal:
        return self.book.get(self.entry.id, now).cost_usd

    def usd_per_hour(self) -> Decimal:
        return max((span.usd_per_hour for span in self.entry.spans), default=Decimal(0))


@dataclass(slots=True)
class _Group:
    """A security group, which is free and there or not there."""

    groups: dict[str, Any]
    id: str
    now: Callable[[], float]
    seen_gone: float = math.inf

    def destroyed_from(self) -> float:
        if self.id in self.groups:
            return math.inf
        self.seen_gone = min(self.seen_gone, self.now())
        return self.seen_gone

    def is_billed(self, now: float) -> bool:
        return False

    def spans(self, now: float) -> Spans:
        return ()

    def cost_usd(self, now: float) -> Decimal:
        return Decimal(0)

    def usd_per_hour(self) -> Decimal:
        return Decimal(0)


class AwsSide:
    """`clouds.Cloud` of a simulated AWS account."""

    name = "aws"
    regions = REGIONS

    def __init__(self, cloud: AwsCloud) -> None:
        self._cloud = cloud
        self._things: dict[str, Thing] = {}
        self._told = 0
        self._ended: dict[str, str] = {}
        """Machine to why it ended by itself; the account forgets an hour after."""

    # --- the book ---

    def _read(self) -> list[Thing]:
        self._cloud.advance()
        for machine in self._cloud.account.machines.values():
            if machine.reason is not None and (reason := _REASONS.get(machine.reason[0])):
                self._ended[machine.id] = reason
        entries = list(self._cloud.book)
        for entry in entries[len([t for t in self._things.values() if t.role != NETWORK]) :]:
            self._things[entry.id] = _thing(entry, self._cloud)
        for region in self.regions:
            for groups in self._cloud.account.moto.backend(region).groups.values():
                for group in groups.values():
                    if group.id not in self._things and group.name.startswith("gpulease:"):
                        self._things[group.id] = self._group(groups, group, region)
        return list(self._things.values())

    def _group(self, groups: dict[str, Any], group: Any, region: str) -> Thing:
        return Thing(
            provider="aws",
            kind="security_group",
            role=NETWORK,
            id=group.id,
            region=region,
            plan="",
            markers=(group.name,),
            created=self._cloud.now(),
            source=_Group(groups, group.id, self._cloud.now),
        )

    def things(self) -> list[Thing]:
        return self._read()

    def fresh(self) -> Sequence[Thing]:
        things = self._read()
        made = things[self._told :]
        self._told = len(things)
        return made

    def find(self, thing_id: str) -> Thing | None:
        if thing_id not in self._things and thing_id.startswith(("i-", "vol-", "sir-", "sg-", "snap-", "eipalloc-")):
            self._read()
        return self._things.get(thing_id)

    def log_lines(self) -> Iterable[str]:
        for each in self._cloud.book.objects():
            yield f"{each.id} {each.created} {each.destroyed} {each.cost_usd}\n"

    def calls(self) -> int:
        return self._cloud.calls_total

    # --- who has what ---

    def members(self, network_id: str) -> list[str]:
        found = []
        for machine in self._cloud.account.machines.values():
            if machine.state == "terminated":
                continue
            groups = {group.id for nic in machine.moto.nics.values() for group in nic._group_set}
            if network_id in groups | {group.id for group in machine.moto.security_groups}:
                found.append(machine.id)
        return found

    def user_of(self, volume_id: str) -> str:
        disk = self._cloud.account.disks.get(volume_id)
        machine = disk.machine if disk is not None else None
        return machine.id if machine is not None and machine.state != "terminated" else ""

    def ready_at(self, machine_id: str) -> float | None:
        machine = self._cloud.account.machines.get(machine_id)
        if machine is None:
            return None
        behaviour, boot = machine.behaviour, machine.boots
        if behaviour.impaired or machine.impaired or (behaviour.launch_failure and boot <= 1):
            return math.inf
        since = machine.launched + machine.draws.between(behaviour.running_seconds, f"running {boot}")
        checks = machine.draws.between(behaviour.ok_seconds, f"ok {boot}")
        return since + max(checks, machine.draws.between(behaviour.guest_boot_seconds, f"guest {boot}"))

    def ended_for(self, machine_id: str) -> str:
        self._read()
        return self._ended.get(machine_id, "")

    # --- what others do ---

    def remove_by_hand(self, thing_id: str) -> None:
        self._cloud.remove_by_hand(thing_id)

    def darken(self, since: float, until: float, region: str) -> None:
        kept = [f for f in self._cloud.faults.faults() if (f.until_seconds or since + 1) > since]
        self._cloud.faults.replace([*kept, outage(since, until, region=region, timeout_seconds=30.0)])

    def reword(self, reworded: bool) -> None:
        self._cloud.settings = replace(self._cloud.settings, reworded=reworded)

    def strangers(self, deployment: str) -> list[str]:
        ours = marker_for(deployment, "")
        foreign = marker_for("otherplace0", STRANGER)
        tags: tuple[dict[str, str], ...] = (
            {"Name": "production"},
            {},
            {MARKER_TAG: foreign, DEPLOYMENT_TAG: "otherplace0"},
            # Ours by one tag and not by the other: whoever copied a tag has not made it ours.
            {"Name": "copied", DEPLOYMENT_TAG: deployment},
            {MARKER_TAG: foreign, DEPLOYMENT_TAG: deployment},
            {MARKER_TAG: ours.rstrip(":") + "x:" + STRANGER, DEPLOYMENT_TAG: deployment + "x"},
            {MARKER_TAG: (ours + STRANGER).upper()},
            {MARKER_TAG: "x" + ours + STRANGER},
        )
        before = {thing.id for thing in self.things()}
        # Theirs live quietly: what is gone of them, we have ended.
        kept, self._cloud.settings = self._cloud.settings, replace(self._cloud.settings, rules=())
        for each in tags:
            self._machine(_HERE, each)
        volume = {"AvailabilityZone": _HERE[0] + "a", "Size": "10", "VolumeType": "gp3"}
        self._create("CreateVolume", _HERE[0], volume, "volume", {MARKER_TAG: foreign}, "volumeId")
        group = {"GroupName": foreign, "GroupDescription": "somebody else's"}
        marked = {MARKER_TAG: foreign, DEPLOYMENT_TAG: "otherplace0"}
        self._create("CreateSecurityGroup", _HERE[0], group, "security-group", marked, "groupId")
        self._cloud.settings = kept
        # Their disks too.
        return [thing.id for thing in self.things() if thing.id not in before]

    def plant(self, like: Thing, marker: str) -> str:
        return self._machine((like.region, like.plan), {MARKER_TAG: marker, DEPLOYMENT_TAG: marker.split(":")[1]})

    def _machine(self, place: tuple[str, str], tags: dict[str, str]) -> str:
        params = {"ImageId": self._cloud.image_id(place[0]), "InstanceType": place[1], "MinCount": "1", "MaxCount": "1"}
        return self._create("RunInstances", place[0], params, "instance", tags, "instanceId")

    def _create(
        self, action: str, region: str, params: dict[str, str], kind: str, tags: dict[str, str], wanted: str
    ) -> str:
        # Whoever puts it there is not kept out by an outage that is meant for us.
        kept = self._cloud.faults.faults()
        self._cloud.faults.clear()
        marked = {"TagSpecification.1.ResourceType": kind} if tags else {}
        for number, (key, value) in enumerate(tags.items(), 1):
            marked[f"TagSpecification.1.Tag.{number}.Key"] = key
            marked[f"TagSpecification.1.Tag.{number}.Value"] = value
        body = urlencode({"Action": action, "Version": "2016-11-15", **params, **marked}).encode()
        headers = {
            "Authorization": _KEY.format(region=region),
            "Content-Type": "application/x-www-form-urlencoded",
            "host": f"ec2.{region}.amazonaws.com",
            "X-Amz-Date": "20260105T000000Z",
        }
        buckets, self._cloud.settings = self._cloud.settings.buckets, replace(self._cloud.settings, buckets={})
        try:
            for _ in range(_TRIES):
                answer = self._cloud.handle(headers, body)
                if answer.status < 300:
                    found = ElementTree.fromstring(answer.body).iter()  # noqa: S314 - the simulator's own words
                    return next(str(each.text) for each in found if each.tag.rpartition("}")[2] == wanted)
        finally:
            self._cloud.settings = replace(self._cloud.settings, buckets=buckets)
            self._cloud.faults.replace(kept)
        raise RuntimeError(f"{action} is refused for good: {answer.status} {answer.body!r}")


def _thing(entry: Entry, cloud: AwsCloud) -> Thing:
    markers = markers_of(entry.tags.values())
    part_of = ""
    # A cache's disk carries the marker of its own record; one that came with a machine, its machine's lease.
    if entry.kind in PARTS and markers and markers[0].rpartition(":")[2].startswith("l-"):
        part_of = markers[0].replace(".volume.", ".instance.")
    return Thing(
        provider="aws",
        kind=entry.kind,
        role=ROLES.get(entry.kind, OTHER),
        id=entry.id,
        region=entry.region,
        plan=entry.type,
        markers=markers,
        created=entry.created,
        source=_Source(entry, cloud.account.book, cloud.now),
        part_of=part_of,
    )
