"""What a real machine's agent reports, for simulated agents, whose own reports are smaller than that.

Invariant: as many and as long fields as on an Ubuntu machine with NVIDIA's driver: three SSH host keys, GPU models and
figures, a UUID as boot id. A row's size decides what each report costs.
"""

import base64
import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

from gpulease.domain.policy import Signal


def as_on_a_machine(body: Mapping[str, Any]) -> dict[str, Any]:
    """A simulated agent's report with all that the real one tells of a machine with this many GPUs."""
    boot_id, gpus = str(body["boot_id"]), int(body["gpus"] or 0)
    seen = dict(body["seen_seconds_ago"])
    if seen:
        # Somebody logged in to start what computes.
        seen.setdefault(str(Signal.SSH), 600.0 + max(seen.values()))
    return {
        **body,
        "agent_version": "1",
        "boot_id": str(uuid.uuid5(uuid.NAMESPACE_OID, boot_id)),
        "gpu_models": ["NVIDIA L40S"] * gpus,
        "gpu_percent": [97 if seen else 0] * gpus,
        "gpu_memory_mib": [46068] * gpus,
        "gpu_memory_used_mib": [31337 if seen else 4] * gpus,
        "seen_seconds_ago": seen,
        "host_keys": host_keys(boot_id.rpartition("-")[0]),
        "start_script": "done",
        "start_script_exit": 0,
    }


def host_keys(machine: str) -> list[str]:
    """As `ssh-keygen -A` makes them: ECDSA, Ed25519 and RSA of 3072 bits, with the sizes that they have."""
    sizes = {"ecdsa-sha2-nistp256": 104, "ssh-ed25519": 51, "ssh-rsa": 407}
    return [f"{kind} {_key(machine + kind, size)} root@{machine}" for kind, size in sizes.items()]


def _key(of: str, size: int) -> str:
    return base64.b64encode(hashlib.shake_128(of.encode()).digest(size)).decode()
