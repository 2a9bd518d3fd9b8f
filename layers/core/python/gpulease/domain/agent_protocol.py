"""What the agent on a machine and the API say to each other, and the token that opens it.

A report is built by `guest/agent.py`, or by whatever plays an agent: `AgentReport(...).model_dump(mode="json")` is its
body. Invariants: a token names its lease, is random, is stored as a hash only, and belongs to one attempt's machine.
"""

import hmac
import re
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StrictBool, StrictInt

from gpulease.domain.agent import REPORT_EVERY_SECONDS, AgentRecord, reported
from gpulease.domain.model import Model
from gpulease.domain.policy import Signal

HEARTBEAT_PATH = "/v1/agent/heartbeat"
KEYS_PATH = "/v1/agent/cache-credentials"
PROGRAM_PATH = "/v1/agent/program"
MAX_REPORT_BYTES = 16 * 1024
PREPARING_SECONDS = 10
SAVING_SECONDS = 10
MAX_CARDS = 16
YEAR_SECONDS = 366 * 86400

Line = Annotated[str, Field(max_length=300)]
Percent = Annotated[StrictInt, Field(ge=0, le=100)]
Mib = Annotated[StrictInt, Field(ge=0, le=2**31)]
Ago = Annotated[float, Field(ge=0, le=YEAR_SECONDS, allow_inf_nan=False)]
HostKey = Annotated[
    str, Field(max_length=800, pattern=r"^(ssh-|ecdsa-|sk-)[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,3}( [^\x00-\x1f\x7f]*)?$")
]


class AgentReport(Model):
    """The body of one report. Unknown fields are refused: a machine's word is taken for what it says and no more."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, str_max_length=800)

    agent_version: str = Field(default="", max_length=20)
    boot_id: str = Field(default="", max_length=64)
    ready: StrictBool = True
    """Its checks are over: from now on `gpus` is the whole truth."""
    gpus: Annotated[StrictInt, Field(ge=0, le=64)] | None = None
    gpu_models: tuple[Annotated[str, Field(max_length=80)], ...] = Field(default=(), max_length=MAX_CARDS)
    gpu_percent: tuple[Percent, ...] = Field(default=(), max_length=MAX_CARDS)
    gpu_memory_mib: tuple[Mib, ...] = Field(default=(), max_length=MAX_CARDS)
    gpu_memory_used_mib: tuple[Mib, ...] = Field(default=(), max_length=MAX_CARDS)
    seen_seconds_ago: dict[Signal, Ago] = Field(default_factory=dict)
    """How long ago each signal was last there, by the machine's own monotonic clock; not named = not since it began."""
    host_keys: tuple[HostKey, ...] = Field(default=(), max_length=10)
    mounted: tuple[Annotated[str, Field(max_length=256)], ...] = Field(default=(), max_length=25)
    problems: tuple[Line, ...] = Field(default=(), max_length=10)
    start_script: Literal["", "running", "done", "failed"] = ""
    start_script_exit: Annotated[StrictInt, Field(ge=-255, le=255)] | None = None
    saving: StrictBool = False
    """It is being saved and let go of, as was asked for. Older agents do not say this."""
    flushed: StrictBool = False
    """The cache is saved and let go of."""


class AgentAnswer(Model):
    """What a report is answered with."""

    interval_seconds: int = REPORT_EVERY_SECONDS
    flush: bool = False
    """Save the cache and let go of it now."""
    flush_seconds: int | None = None
    """How long that may still take at most; told with `flush`."""
    volume_attached: bool = False
    """The cache's volume is attached at the provider: it shows on the machine within two minutes, or something is
    wrong. Told only while the agent prepares."""
    start: bool = False
    """Nothing else is done to the machine: a start script may begin. Told only while the agent prepares."""


class CacheKeys(Model):
    """Where the cache's content lies in an object store, and what opens it. Without a key: what the image brings."""

    provider: str
    """rclone's name for it."""
    endpoint: str = ""
    region: str = ""
    bucket: str
    prefix: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""
    session_token: str = ""
    expires_in_seconds: int | None = None


def noted(agent: AgentRecord, report: AgentReport, now: datetime) -> AgentRecord:
    """The row after this report. A report of a machine that still prepares proves no readiness."""
    after = reported(agent, now, report.seen_seconds_ago)
    flushed = report.flushed and agent.flush_wanted_at is not None
    saving = report.saving and agent.flush_wanted_at is not None and not flushed
    return after.model_copy(
        update={
            "first_report_at": after.first_report_at if report.ready else agent.first_report_at,
            "boot_id": report.boot_id,
            "gpus": report.gpus,
            "gpu_models": report.gpu_models,
            "gpu_percent": report.gpu_percent,
            "gpu_memory_mib": report.gpu_memory_mib,
            "gpu_memory_used_mib": report.gpu_memory_used_mib,
            "host_keys": pinned(report.host_keys),
            "mounted": report.mounted,
            "problems": report.problems,
            "start_script": report.start_script,
            "start_script_exit": report.start_script_exit,
            "saving_at": now if saving else None,
            "flushed_at": (agent.flushed_at or now) if flushed else None,
            "agent_version": report.agent_version,
        }
    )


def pinned(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The one host key that is kept of these, without its comment.

    SSH asks a server for the kind of key that it knows, so one is enough. An RSA key is longer than all the rest of the
    row, and each report writes the row: with all keys it would be over a KiB and each report would cost twice as much.
    """
    best = min(keys, key=lambda key: _KINDS.get(key.partition(" ")[0], len(_KINDS)), default="")
    return (" ".join(best.split(" ")[:2]),) if best else ()


_KINDS = {kind: rank for rank, kind in enumerate(("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"))}


def answer_to(
    agent: AgentRecord,
    now: datetime,
    *,
    volume_attached: bool = False,
    start: bool = False,
    interval_seconds: int = REPORT_EVERY_SECONDS,
) -> AgentAnswer:
    """The answer to a report that led to this row. Who prepares is heard more often: somebody waits for it."""
    return AgentAnswer(
        interval_seconds=interval_seconds if agent.first_report_at is not None else PREPARING_SECONDS,
        flush=agent.flush_wanted_at is not None,
        flush_seconds=None if agent.flush_until is None else max(0, int((agent.flush_until - now).total_seconds())),
        volume_attached=volume_attached,
        start=start,
    )


# --- the token --------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"gla_([lc]-[a-z2-7]{12})_[0-9a-f]{32}\Z")


def new_token(lease_id: str, random_hex: str) -> str:
    """`gla_<lease id>_<32 hex>`; `random_hex` from `ports.Ids.token`."""
    return f"gla_{lease_id}_{random_hex}"


def token_digest(token: str) -> str:
    """What is stored of a token. It has 128 random bits, so a plain hash tells nothing."""
    return sha256(token.encode()).hexdigest()


def lease_of_token(token: str) -> str | None:
    """The lease that a token names; None = it has not the form of one."""
    match = _TOKEN.match(token)
    return match[1] if match else None


def bearer(headers: Mapping[str, str]) -> str:
    """The token of a request's Authorization header; empty = none."""
    value = next((v for k, v in headers.items() if k.lower() == "authorization"), "")
    scheme, _, token = value.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def opens(token: str, agent: AgentRecord | None) -> bool:
    """Whether the token is the one of this row. Takes as long whether there is a row or not."""
    return _is(token, agent.token_sha256 if agent is not None else "")


def opens_kept(token: str, agent: AgentRecord | None) -> bool:
    """Whether it is the one of a machine that is kept while new ones are tried."""
    return _is(token, agent.kept_token_sha256 if agent is not None else "")


def _is(token: str, stored: str) -> bool:
    return hmac.compare_digest(token_digest(token).encode(), (stored or "0" * 64).encode())
