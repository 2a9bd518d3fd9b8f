"""Who calls AWS, and the clients that do: made once per service, region and patience, and only when first used.

Invariants: a client sends each call once (botocore's own repeats would launch twice and sleep on a real clock); where a
stand-in is used, no real credentials are looked for; credentials are in the session alone and in no text.
"""

import threading
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from gpulease.ports import Clock
from gpulease.providers.aws.options import AwsOptions

CONNECT_TIMEOUT_SECONDS = 5
READ_TIMEOUT_SECONDS = 15
CHANGE_TIMEOUT_SECONDS = 30
RENEW_BEFORE_EXPIRY = timedelta(minutes=5)
SESSION_NAME = "gpulease"
DEFAULT_REGION = "us-east-1"
"""Of STS where no region is configured."""
STAND_IN = "simulated"


class Sessions:
    """Clients of one account. Safe for threads."""

    def __init__(self, options: AwsOptions, clock: Clock, endpoint: str = "") -> None:
        self._options = options
        self._clock = clock
        self._endpoint = endpoint
        self._lock = threading.RLock()
        self._session: Any = None
        self._expires_at: datetime | None = None
        self._generation = 0
        self._clients: dict[tuple[str, str, bool], Any] = {}

    def __repr__(self) -> str:
        return f"Sessions({self._options.role_arn or self._options.profile or 'own identity'}, {self._endpoint})"

    @property
    def generation(self) -> int:
        """Counts credentials; what was learned with other ones may not hold."""
        return self._generation

    def client(self, service: str, region: str, *, change: bool = False) -> tuple[Any, int]:
        """The client, and of which generation its credentials are. Raises what botocore raises."""
        with self._lock:
            if self._expires_at is not None and self._clock.now() >= self._expires_at - RENEW_BEFORE_EXPIRY:
                self._forget()
            key = (service, region, change)
            if key not in self._clients:
                self._clients[key] = self._make(self._current(), service, region, change)
            return self._clients[key], self._generation

    def renew(self, generation: int) -> None:
        """Get other credentials, unless somebody has done so since that generation."""
        with self._lock:
            if generation == self._generation:
                self._forget()

    def _forget(self) -> None:
        self._session = None
        self._expires_at = None
        self._clients.clear()
        self._generation += 1

    def _current(self) -> Any:
        if self._session is None:
            own = self._own()
            self._session = self._assumed(own) if self._options.role_arn else own
        return self._session

    def _own(self) -> Any:
        if self._endpoint or self._options.connect is not None:
            return _session(aws_access_key_id=STAND_IN, aws_secret_access_key=STAND_IN)
        return _session(profile_name=self._options.profile or None)

    def _assumed(self, own: Any) -> Any:
        region = self._options.regions[0] if self._options.regions else DEFAULT_REGION
        asked: dict[str, Any] = {"RoleArn": self._options.role_arn, "RoleSessionName": SESSION_NAME}
        if self._options.external_id:
            asked["ExternalId"] = self._options.external_id
        got = self._make(own, "sts", region, True).assume_role(**asked)["Credentials"]
        self._expires_at = got["Expiration"]
        return _session(
            aws_access_key_id=got["AccessKeyId"],
            aws_secret_access_key=got["SecretAccessKey"],
            aws_session_token=got["SessionToken"],
        )

    def _make(self, session: Any, service: str, region: str, change: bool) -> Any:
        from botocore.config import Config

        client = session.client(
            service,
            region_name=region,
            endpoint_url=self._endpoint or None,
            config=Config(
                connect_timeout=CONNECT_TIMEOUT_SECONDS,
                read_timeout=CHANGE_TIMEOUT_SECONDS if change else READ_TIMEOUT_SECONDS,
                retries={"total_max_attempts": 1, "mode": "standard"},
            ),
        )
        if self._options.connect is not None:
            self._options.connect(client)
        return client


def _timestamp(value: Any) -> datetime:
    """EC2's times are ISO 8601. What is not is left to botocore's own parser, which takes twenty times as long: of a
    list of machines, reading their times was a fifth of the work."""
    from botocore.utils import parse_timestamp

    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        found: datetime = parse_timestamp(value)
        return found


@cache
def _loader() -> Any:
    """EC2's model takes a third of a second to read: once per process, not once per session."""
    from botocore.loaders import create_loader

    return create_loader()


def _session(**who: Any) -> Any:
    # Imported on use: a step that calls no provider does not pay for it.
    import boto3
    import botocore.session

    core = botocore.session.get_session()
    core.register_component("data_loader", _loader())
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_timestamp)
    return boto3.Session(botocore_session=core, **who)
