"""All that touches moto: its backends, its request handling, its random ids.

moto keeps one world per process and account id; each simulated account takes an account id of its own there, so that
several may live side by side. Ids are drawn anew for each call from the account's seed, so the same calls give the same
ids.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from moto.core.request import normalize_request
from moto.core.responses import ActionResult
from moto.ec2.models import (
    amis,
    ec2_backends,
    elastic_block_store,
    instances,
    key_pairs,
    launch_templates,
    nat_gateways,
    vpcs,
)
from moto.ec2.models.amis import Ami, AmiBackend
from moto.ec2.models.block_device import BlockDeviceType
from moto.ec2.models.elastic_block_store import VolumeAttachment
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.responses import EC2Response
from moto.moto_api._internal import mock_random
from moto.ssm.responses import SimpleSystemManagerResponse
from moto.sts.responses import TokenResponse
from werkzeug.exceptions import HTTPException

from gpulease_sim.answers import SimResponse
from gpulease_sim.aws.wire import NAMESPACE, PassedOn
from gpulease_sim.draws import Draws

_NUMBERS = itertools.count(1)
_WORLD = threading.RLock()
_TIMED: tuple[Any, ...] = (amis, elastic_block_store, instances, key_pairs, launch_templates, nat_gateways, vpcs)
"""Modules of moto that read the computer's clock."""
_RESPONSES = {"ec2": EC2Response, "sts": TokenResponse, "ssm": SimpleSystemManagerResponse}
_MOTO_NAMESPACE = NAMESPACE.rstrip("/").encode() + b'"'
DLAMI_OWNER = "898082745236"


def _load_nothing(_: AmiBackend) -> None:
    """moto's 1,300 images take two seconds per region to load, and six milliseconds per launch to look through."""


class _Queue(dict[str, None]):
    """Freed addresses, the oldest first; moto's own set of texts gives them in another order in each process."""

    def add(self, address: str) -> None:
        """Free from now on."""
        self[address] = None

    def pop(self) -> str:  # type: ignore[override]
        """The one that has been free for longest; KeyError without one."""
        for address in self:
            del self[address]
            return address
        raise KeyError("no address is free")

    def remove(self, address: str) -> None:
        """Taken by name; KeyError where it is not free."""
        del self[address]


def _quick_search(backend: Any) -> Callable[[str], Any]:
    """moto's get_instance copies all reservations and walks through them; ours finds each instance only once."""
    slow, known = backend.get_instance, dict[str, Any]()

    def get_instance(instance_id: str) -> Any:
        found = known.get(instance_id)
        if found is not None and found[0] in backend.reservations:
            return found[1]
        for reservation_id in reversed(backend.reservations):
            for each in backend.reservations[reservation_id].instances:
                if each.id == instance_id:
                    known[instance_id] = (reservation_id, each)
                    return each
        return slow(instance_id)

    return get_instance


class _Caught(Exception):
    """Carries what a handler of moto made past its slow serialization."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class _QuietEC2(EC2Response):
    """moto's handlers, parameters and checks included, without the XML."""

    def serialized(self, action_result: ActionResult) -> Any:
        if isinstance(action_result.result, Exception):
            return super().serialized(action_result)
        raise _Caught(action_result.result)


class MotoSide:
    """One account within moto."""

    def __init__(self, clock: Callable[[], float], seed: int, images: tuple[str, ...], shown_account: str) -> None:
        self.account = f"{next(_NUMBERS):012d}"
        self._clock = clock
        self._seed = seed
        self._shown = shown_account
        self._calls = 0
        self._images = images
        self._backends: dict[str, Any] = {}

    def backend(self, region: str) -> Any:
        """moto's EC2 of one region, with our images only: each launch looks through all of them."""
        found = self._backends.get(region)
        if found is None:
            with self.within(reads=True, region=region):
                load = AmiBackend._load_amis
                AmiBackend._load_amis = _load_nothing  # type: ignore[method-assign,assignment]
                try:
                    found = self._backends[region] = ec2_backends[self.account][region]
                finally:
                    AmiBackend._load_amis = load  # type: ignore[method-assign]
                for name in self._images:
                    self._add_image(found, region, name)
                found.get_instance = _quick_search(found)  # type: ignore[method-assign,assignment]
        return found

    def image_id(self, region: str, name: str) -> str:
        """The id of one of the account's named images in a region."""
        return f"ami-0{Draws(0, f'{region}/{name}').text('image')}"

    def _add_image(self, backend: Any, region: str, name: str) -> None:
        image_id = self.image_id(region, name)
        backend.amis[image_id] = Ami(
            backend,
            image_id,
            name=f"Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) {name}",
            owner_id=DLAMI_OWNER,
            owner_alias="amazon",
            public=True,
            virtualization_type="hvm",
            architecture="x86_64",
            root_device_type="ebs",
        )

    @contextlib.contextmanager
    def within(self, *, reads: bool = False, region: str = "") -> Iterator[None]:
        """moto's ids and times within are this account's, whoever else uses moto; reads do not move its luck.

        A region's first network has ids of its own, whenever it is first looked at."""
        self._calls += not reads
        now = naive(self._clock())
        with _WORLD:
            mock_random.seed(f"{self._seed}/{region or self._calls}")
            kept = [(module, module.utcnow) for module in _TIMED]
            for module in _TIMED:
                module.utcnow = lambda: now
            try:
                yield
            finally:
                for module, original in kept:
                    module.utcnow = original

    def ask(self, service: str, region: str, headers: Mapping[str, str], body: bytes) -> SimResponse:
        """moto's own answer to a call."""
        self.backend(region)
        with self.within(reads=b"Action=Describe" in body):
            status, answered, text = self._dispatch(_RESPONSES[service], service, region, headers, body)
        kept = {name: str(value) for name, value in answered.items() if name.lower() == "content-type"}
        plain = text if isinstance(text, bytes) else text.encode()
        shown = plain.replace(self.account.encode(), self._shown.encode())
        # The real namespace ends in a slash, and libcloud looks for that.
        return SimResponse(status, kept, shown.replace(_MOTO_NAMESPACE, NAMESPACE.encode() + b'"'))

    def make(self, region: str, body: bytes) -> Any:
        """What moto's EC2 makes of a call, as an object. Raises PassedOn where moto refuses it."""
        self.backend(region)
        try:
            with self.within():
                status, _, text = self._dispatch(_QuietEC2, "ec2", region, {}, body)
        except _Caught as caught:
            return caught.result
        raise PassedOn(status, text if isinstance(text, bytes) else text.encode())

    def _dispatch(
        self, handler: Any, service: str, region: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, Any], Any]:
        sent = HTTPHeaders()
        for name in ("Content-Type", "X-Amz-Target"):
            if name in headers and service == "ssm":
                sent[name] = headers[name]
        if service != "ssm":
            sent["Content-Type"] = "application/x-www-form-urlencoded; charset=utf-8"  # a GET names none
        sent["x-moto-account-id"] = self.account
        credential = f"AKIAIOSFODNN7EXAMPLE/20260101/{region}/{service}/aws4_request"
        sent["Authorization"] = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=x"
        url = f"https://{service}.{region}.amazonaws.com/"
        request = normalize_request(
            AWSPreparedRequest(method="POST", url=url, headers=sent, body=body, stream_output=False)
        )
        try:
            status, answered, text = handler.dispatch(request, request.raw_url, request.headers)
        except HTTPException as error:
            return error.code or 500, dict(error.get_headers()), error.get_body()
        return int(status), answered, text

    def forget(self) -> None:
        """Give back what moto holds for this account."""
        self._backends.clear()
        ec2_backends.pop(self.account, None)

    # --- moto's objects, where its own ways are slow or wrong ---

    def attach(self, volume: Any, instance: Any, device: str, at: float, *, delete_on_termination: bool) -> None:
        """Like moto's attach_volume, without its search through all instances."""
        when = naive(at)
        volume.attachment = VolumeAttachment(volume, instance, device, "attached")  # type: ignore[abstract]
        volume.attachment.attach_time = when
        instance.block_device_mapping[device] = BlockDeviceType(
            volume_id=volume.id,
            status="in-use",
            size=volume.size,
            attach_time=when,
            delete_on_termination=delete_on_termination,
        )

    def detach(self, volume: Any) -> None:
        """Like moto's detach_volume."""
        held = volume.attachment
        if held is not None:
            held.instance.block_device_mapping.pop(held.device, None)
            volume.attachment = None

    def keep_elastic(self, region: str, instance: Any) -> None:
        """moto's stop and start forget that an Elastic IP stays."""
        for address in self.backend(region).addresses:
            if address.eni is not None and address.eni in instance.nics.values():
                address.eni.public_ip = address.public_ip

    def tag_interfaces(self, region: str, instance: Any, tags: dict[str, str]) -> None:
        """moto leaves the launch's tags for network interfaces out."""
        for nic in instance.nics.values():
            if tags:
                self.backend(region).tags[nic.id] = dict(tags)

    def drop_interfaces(self, region: str, instance: Any) -> None:
        """The primary interface of a terminated instance is gone; moto would keep it for ever."""
        backend = self.backend(region)
        for nic in list(instance.nics.values()):
            backend.enis.pop(nic.id, None)
            backend.tags.pop(nic.id, None)
        for address in list(instance._private_ips):
            subnet = backend.get_subnet(instance.subnet_id)
            if not isinstance(subnet._unused_ips, _Queue):
                subnet._unused_ips = _Queue()
            subnet.del_subnet_ip(address)
        instance._private_ips.clear()

    def drop_instance(self, region: str, instance: Any, reservation_id: str) -> None:
        """A terminated instance is not even shown any more."""
        backend = self.backend(region)
        found = backend.reservations.get(reservation_id)
        if found is not None:
            found.instances = [each for each in found.instances if each is not instance]
            if not found.instances:
                del backend.reservations[reservation_id]
        backend.tags.pop(instance.id, None)

    def holders_of_group(self, region: str, group_id: str) -> list[str]:
        """Network interfaces that keep a security group from being deleted."""
        held = []
        for nic in self.backend(region).enis.values():
            groups = list(nic._group_set) + (list(nic.instance.security_groups) if nic.instance else [])
            if any(group.id == group_id for group in groups):
                held.append(nic.id)
        return held


def vcpus(type_: str) -> int | None:
    """vCPUs of an instance type; None where there is no such type."""
    found = INSTANCE_TYPES.get(type_)
    return None if found is None else int(found["VCpuInfo"]["DefaultVCpus"])


def naive(at: float) -> datetime:
    """A moment in moto's form."""
    return datetime.fromtimestamp(at, UTC).replace(tzinfo=None)
