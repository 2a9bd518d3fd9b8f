"""What the agent on a machine is told at its creation: `/etc/gpulease/agent.json`, readable by root alone."""

from gpulease.domain.cache_spec import CacheSpec, CacheUse
from gpulease.domain.model import Model
from gpulease.domain.user_data import START_SCRIPT_PATH

_SERIAL_HEX = 14
"""Disks of virtual machines have serial numbers of at most 20 characters."""


class AgentVolume(Model):
    """`kind` block: the device with one of these serial numbers; directory: a folder that stands for a volume."""

    kind: str = "block"
    serials: tuple[str, ...] = ()
    path: str = ""


class AgentCache(Model):
    volume: AgentVolume | None = None
    """None = on the machine's own disk."""
    mounts: tuple[str, ...] = ()
    docker: bool = False
    object_store: bool = False


class AgentConfig(Model):
    url: str
    token: str
    lease_id: str
    gpus_expected: int
    interval_seconds: int = 60
    ssh_port: int = 22
    start_script: str = ""
    """Its path; empty = there is none."""
    cache: AgentCache | None = None


def guest_serials(provider_id: str, region: str) -> tuple[str, ...]:
    """Under which serial numbers a volume may show on a machine.

    AWS: the id without its dash (https://docs.aws.amazon.com/ebs/latest/userguide/identify-nvme-ebs-device.html).
    Vultr: `mount_id`, the region and the first 14 digits of the id
    (https://docs.vultr.com/how-to-mount-vultr-block-storage-on-a-linux-instance).
    """
    plain = provider_id.replace("-", "")
    return (plain, f"{region}-{plain[:_SERIAL_HEX]}") if provider_id else ()


def agent_cache(use: CacheUse, spec: CacheSpec, serials: tuple[str, ...]) -> AgentCache:
    """What the agent is told of its cache; without serial numbers the machine does not get the volume."""
    return AgentCache(
        volume=AgentVolume(serials=serials) if serials else None,
        mounts=use.mounts,
        docker=use.docker,
        object_store=spec.object_store is not None,
    )


def agent_config(
    *, url: str, token: str, lease_id: str, gpus: int, script_bytes: int, ssh_port: int, cache: AgentCache | None
) -> AgentConfig:
    """The configuration of one machine's agent."""
    return AgentConfig(
        url=url,
        token=token,
        lease_id=lease_id,
        gpus_expected=gpus,
        ssh_port=ssh_port,
        start_script=START_SCRIPT_PATH if script_bytes else "",
        cache=cache,
    )
