"""The simulated account with the API in front of it: keys, rate limits, faults, and then the operation."""

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, urlencode

from gpulease_sim.answers import ConnectionCut, SimResponse
from gpulease_sim.aws import instances, operations, volumes
from gpulease_sim.aws.account import Account, Disk, Guests, Machine
from gpulease_sim.aws.book import Book
from gpulease_sim.aws.faults import Concerned, Fault, FaultPlan
from gpulease_sim.aws.settings import Settings
from gpulease_sim.aws.texts import message, status_of, text_of
from gpulease_sim.aws.wire import ApiError, Call, Params, PassedOn, answer, element, from_one, refusal

_CREDENTIAL = re.compile(r"Credential=([^/]+)/[^/]*/([^/]+)/([^/]+)/aws4_request")
_EMPTY = {
    "DescribeInstances": "<reservationSet/>",
    "DescribeVolumes": "<volumeSet/>",
    "DescribeInstanceStatus": "<instanceStatusSet/>",
    "DescribeSpotInstanceRequests": "<spotInstanceRequestSet/>",
}
_KEPT_CALLS = 2000


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A call that arrived."""

    at: float
    region: str
    action: str
    params: Mapping[str, str]
    status: int
    """0: no answer."""
    code: str = ""


class _Bucket:
    """A token bucket of one action in one region."""

    def __init__(self, size: float, now: float) -> None:
        self.left, self.at = size, now

    def take(self, size: float, refill: float, now: float) -> bool:
        self.left = min(size, self.left + (now - self.at) * refill)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class AwsCloud:
    """One simulated AWS account: EC2 with volumes and spot, and as much STS and SSM as goes with it."""

    def __init__(self, clock: Callable[[], float], seed: int = 0, settings: Settings | None = None) -> None:
        self._clock = clock
        self._seed = seed
        self._lock = threading.RLock()
        self._first_settings = settings or Settings()
        self.account = Account(clock, seed, self._first_settings)
        self.reset()

    def reset(self) -> None:
        """An empty account with the settings it began with; guests and faults are gone."""
        with self._lock:
            self.account.moto.forget()
            self.account = Account(self._clock, self._seed, self._first_settings)
            self.faults = FaultPlan(self._seed)
            self.calls: deque[SeenCall] = deque(maxlen=_KEPT_CALLS)
            self._buckets: dict[tuple[str, str], _Bucket] = {}
            self._requests = 0

    # --- what tests and simulations use ---

    @property
    def settings(self) -> Settings:
        """What holds from now on; assign `replace(cloud.settings, …)`."""
        return self.account.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self.account.settings = settings

    @property
    def book(self) -> Book:
        """Every object that was ever paid for, as of now."""
        self.advance()
        return self.account.book

    @property
    def guests(self) -> list[Guests]:
        """Who plays the programs on the machines; append to it."""
        return self.account.guests

    @property
    def calls_total(self) -> int:
        """All calls since the beginning, also those that `calls` has forgotten."""
        return self._requests

    def now(self) -> float:
        """The simulator's clock."""
        return self._clock()

    def advance(self) -> None:
        """Let happen what is due by now; guests are told."""
        with self._lock:
            self.account.advance()

    def next_event(self) -> float | None:
        """When the next thing happens by itself: a simulation calls `advance` then."""
        with self._lock:
            return self.account.next_event()

    def machine(self, instance_id: str) -> Machine:
        """An instance past all lag. KeyError where there is none (any more)."""
        self.advance()
        return self.account.machines[instance_id]

    def disk(self, volume_id: str) -> Disk:
        """A volume past all lag. KeyError where there is none (any more)."""
        self.advance()
        return self.account.disks[volume_id]

    def ssh_open(self, address: str, port: int = 22) -> bool:
        """Whether the machine that has this address now accepts TCP on its SSH port."""
        self.advance()
        machines = self.account.machines.values()
        return port == 22 and any(each.guest_up and each.public_ip == address for each in machines)

    def remove_by_hand(self, object_id: str) -> None:
        """Terminate an instance or destroy a volume as its owner would in the console."""
        with self._lock:
            self.account.advance()
            if object_id in self.account.machines:
                instances.terminate(self.account, self.account.machines[object_id])
            else:
                volumes.destroy(self.account, self.account.disks[object_id])

    def reclaim(self, instance_id: str, notice_seconds: float | None = None) -> None:
        """EC2 wants a spot instance back: the notice now, the end after `notice_seconds` (default: as drawn)."""
        with self._lock:
            machine = self.machine(instance_id)
            seconds = machine.behaviour.notice_seconds if notice_seconds is None else notice_seconds
            instances.reclaim_soon(self.account, machine, self.account.now + seconds)

    def impair(self, instance_id: str, impaired: bool = True) -> None:
        """The status checks fail (or pass again)."""
        self.machine(instance_id).impaired = impaired

    def guest_shutdown(self, instance_id: str) -> None:
        """`shutdown -h now` in the guest."""
        with self._lock:
            instances.guest_shutdown(self.account, self.machine(instance_id))

    def mount(self, volume_id: str) -> None:
        """The guest mounts it: a detach stays `busy` until it is unmounted, forced, or the guest ends."""
        self.disk(volume_id).mounted = True

    def unmount(self, volume_id: str) -> None:
        """The guest lets go of it."""
        with self._lock:
            volumes.unmounted(self.account, self.disk(volume_id))

    def interruption(self, instance_id: str) -> float | None:
        """What the instance's metadata says under `spot/instance-action`: when it ends; None without a notice."""
        machine = self.machine(instance_id)
        return machine.ends_at if machine.notice_at <= self.account.now else None

    def image_id(self, region: str, path: str | None = None) -> str:
        """The image that an SSM path of the settings names there (default: their first)."""
        images = self.settings.image_parameters
        return self.account.moto.image_id(region, images[path or next(iter(images))])

    # --- the API ---

    def handle(self, headers: Mapping[str, str], body: bytes) -> SimResponse:
        """One signed request of the AWS protocol. Raises ConnectionCut where no answer arrives."""
        with self._lock:
            self.account.advance()
            self._requests += 1
            request_id = f"00000000-0000-4000-8000-{self._requests:012d}"
            call, access_key = self._parse(headers, body)
            if call is None:
                return refusal(
                    "ec2", 401, "AuthFailure", text_of("AuthFailure", {}, self.settings.reworded), request_id
                )
            draws = self.account.draws("latency", self._requests)
            latency = draws.between(self.settings.latency_seconds, "latency")
            fault = self.faults.choose(call, self._concerned(call)) if self.faults else None
            try:
                response = self._faulty(call, access_key, fault, request_id)
            except ConnectionCut as cut:
                self._note(call, 0)
                raise ConnectionCut(latency + cut.elapsed_seconds, cut.executed) from None
            delay = fault.delay_seconds if fault else 0.0
            self._note(call, response.status, _code(response))
            return response._replace(elapsed_seconds=latency + delay)

    def _note(self, call: Call, status: int, code: str = "") -> None:
        self.calls.append(SeenCall(call.now, call.region, call.action, call.params, status, code))

    def _parse(self, headers: Mapping[str, str], body: bytes) -> tuple[Call | None, str]:
        found = _CREDENTIAL.search(headers.get("Authorization", ""))
        if found is None:
            return None, ""
        access_key, region, service = found.groups()
        if service == "ssm":
            data = json.loads(body or b"{}")
            params = Params({key: str(value) for key, value in data.items()})
            action = headers.get("X-Amz-Target", "").rpartition(".")[2]
        else:
            sent = Params(parse_qsl(body.decode(), keep_blank_values=True))
            params = from_one(sent)
            body = body if params is sent else urlencode(params).encode()
            action = params.get("Action", "")
        return Call(service, region, action, params, body, headers, self.account.now), access_key

    def _concerned(self, call: Call) -> Concerned:
        """The zones and types that a call is about."""
        params, account = call.params, self.account
        zones = {value for name, value in params.items() if name.endswith("AvailabilityZone")}
        types = {params["InstanceType"]} if "InstanceType" in params else set()
        named = [value for name, value in params.items() if name.split(".")[0] in ("InstanceId", "VolumeId")]
        for each in named:
            thing = account.machines.get(each) or account.disks.get(each)
            if thing is not None:
                zones.add(thing.zone)
            if isinstance(thing, Machine):
                types.add(thing.type)
        subnet = params.get("SubnetId")
        if subnet:
            for by_id in account.moto.backend(call.region).subnets.values():
                if subnet in by_id:
                    zones.add(by_id[subnet].availability_zone)
        return Concerned(frozenset(zones), frozenset(types))

    def _faulty(self, call: Call, access_key: str, fault: Fault | None, request_id: str) -> SimResponse:
        if fault is None:
            return self._guarded(call, access_key, request_id)
        response: SimResponse | None = None
        if fault.empty and call.action in _EMPTY:
            return answer(call.action, _EMPTY[call.action], request_id)
        if fault.executes:
            response = self._guarded(call, access_key, request_id)
            if fault.twice:
                again = Params((name, value) for name, value in call.params.items() if name != "ClientToken")
                response = self._guarded(replace(call, params=again), access_key, request_id)
        if fault.cut:
            raise ConnectionCut(fault.delay_seconds, executed=fault.executes)
        if fault.html:
            page = b"<html><body><h1>503 Service Unavailable</h1></body></html>"
            return SimResponse(fault.status or 503, {"Content-Type": "text/html"}, page)
        if fault.code:
            kind, place = call.params.get("InstanceType", "?"), fault.zone or call.region
            error = ApiError(fault.code, text=fault.text, type=kind, zone=place)
            status = fault.status or status_of(fault.code)
            return refusal(call.service, status, fault.code, message(error, self.settings.reworded), request_id)
        if response is None:
            raise ConnectionCut(fault.delay_seconds, executed=False)
        return response

    def _guarded(self, call: Call, access_key: str, request_id: str) -> SimResponse:
        """The call, behind keys and limits."""
        try:
            keys = self.settings.access_keys
            if (keys is not None and access_key not in keys) or call.region not in self.settings.regions:
                code = "AuthFailure" if call.region not in self.settings.regions else self.settings.refused_code
                raise ApiError(code, status=status_of(code))
            if call.service == "ec2":
                self._limit(call)
                if call.params.flag("DryRun"):
                    raise ApiError("DryRunOperation", status=412)
                return self._ec2(call, request_id)
            return self._other_service(call, request_id)
        except ApiError as error:
            status = error.status if error.status != 400 else status_of(error.code)
            return refusal(call.service, status, error.code, message(error, self.settings.reworded), request_id)
        except PassedOn as passed:
            return SimResponse(passed.status, {"Content-Type": "text/xml"}, passed.body)

    def _limit(self, call: Call) -> None:
        buckets = self.settings.buckets
        name = max((each for each in buckets if call.action.startswith(each)), key=len, default=None)
        if name is None:
            return
        size, refill = buckets[name]
        key = (call.region, call.action)
        bucket = self._buckets.setdefault(key, _Bucket(size, call.now))
        if not bucket.take(size, refill, call.now):
            raise ApiError("RequestLimitExceeded", status=503)

    def _ec2(self, call: Call, request_id: str) -> SimResponse:
        own = operations.OWN.get(call.action)
        if own is not None:
            return answer(call.action, own(self.account, call), request_id)
        checked = operations.CHECKED.get(call.action, operations.other)
        return checked(self.account, call)

    def _other_service(self, call: Call, request_id: str) -> SimResponse:
        if call.service == "sts" and call.action == "GetCallerIdentity":
            account = self.settings.account_id
            inner = (
                element("Arn", f"arn:aws:iam::{account}:user/simulated")
                + element("UserId", "AIDAIOSFODNN7EXAMPLE")
                + element("Account", account)
            )
            body = (
                '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
                f"<GetCallerIdentityResult>{inner}</GetCallerIdentityResult><ResponseMetadata><RequestId>{request_id}"
                "</RequestId></ResponseMetadata></GetCallerIdentityResponse>"
            )
            return SimResponse(200, {"Content-Type": "text/xml"}, body.encode())
        path = call.params.get("Name", "")
        if call.service == "ssm" and call.action == "GetParameter" and path in self.settings.image_parameters:
            value = {"Name": path, "Type": "String", "Value": self.image_id(call.region, path), "Version": 1}
            payload = json.dumps({"Parameter": value}).encode()
            return SimResponse(200, {"Content-Type": "application/x-amz-json-1.1"}, payload)
        return self.account.moto.ask(call.service, call.region, call.headers, call.body)


def _code(response: SimResponse) -> str:
    if response.status < 400:
        return ""
    found = re.search(rb"<Code>([^<]*)</Code>", response.body) or re.search(rb'"__type": "([^"]*)"', response.body)
    return found.group(1).decode() if found else ""
