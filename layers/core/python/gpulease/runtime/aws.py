"""How AWS services beside the ledger's own table are called: within the time that a function has.

The service clients' own defaults wait a minute for each of five tries, which is longer than any function lives. What is
called so is safe to repeat: reads, starts under a name, alarms.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.config import Config

CONNECT_TIMEOUT_SECONDS = 2
READ_TIMEOUT_SECONDS = 5
TRIES = 2


def client_config() -> "Config":
    """Two tries of at most seven seconds."""
    from botocore.config import Config

    return Config(
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=READ_TIMEOUT_SECONDS,
        retries={"total_max_attempts": TRIES, "mode": "standard"},
    )


def client(service: str, config: "Config | None" = None) -> Any:
    """A client of that service, as boto3 would hand it out. Importing boto3 makes a cold start a tenth longer."""
    return _session().create_client(service, config=config or client_config())


@cache
def _session() -> Any:
    from botocore.session import get_session

    return get_session()
