"""`gpulease local` is killed (kill -9) again and again while leases come up and go: nothing lost, nothing doubled."""

import contextlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpulease.runtime.world import monotonic, sleep
from gpulease_cli.client import ApiUnreachable, Client

from tests.support.local_server import LocalProcess

TIME_SCALE = 25.0
KILLS_WHILE_STARTING = 6
KILLS_WHILE_RELEASING = 3
KILLED_STARTS = 3
PATIENCE_SECONDS = 90.0
REQUESTS = (
    {"name": "network", "plans": ["vcg-a16-2c-8g-2vram"], "private_network": "preferred"},
    {"name": "plain", "plans": ["vcg-a40-12c-60g-24vram"]},
    {"name": "own", "plans": ["vcg-l40s-16c-180g-48vram"], "private_network": "required", "network_scope": "lease"},
)


@pytest.fixture
def server(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[LocalProcess]:
    folder = tmp_path / "data"
    folder.mkdir()
    with contextlib.closing(LocalProcess(folder, pytestconfig.rootpath, time_scale=TIME_SCALE)) as process:
        yield process


def _ask(client: Client, number: int, ids: dict[int, str]) -> None:
    with contextlib.suppress(ApiUnreachable):
        ids[number] = client.create_lease(REQUESTS[number], idempotency_key=f"kill9-{number}").id


def _story(client: Client, lease_id: str) -> str:
    lease = client.lease(lease_id)
    events = "\n".join(f"  {event.at:%H:%M:%S} {event.text}" for event in client.all_events(lease_id))
    return f"{lease.name} is {lease.state} {lease.reason} {lease.reason_detail}\n{events}"


def _until(server: LocalProcess, ids: dict[int, str], *states: str) -> None:
    give_up = monotonic() + PATIENCE_SECONDS
    while not {server.client.lease(lease_id).state for lease_id in ids.values()} <= set(states):
        assert monotonic() < give_up, "\n".join(_story(server.client, lease_id) for lease_id in ids.values())
        sleep(0.1)


def _check_ends(client: Client, ids: dict[int, str]) -> None:
    """Simulated time goes on while nothing runs: on a slow computer a machine may be given up for that reason."""
    for lease_id in ids.values():
        lease = client.lease(lease_id)
        assert lease.state == "running" or lease.reason == "not_ready_in_time", _story(client, lease_id)


@pytest.mark.parametrize("seed", [1])
def test_no_lease_is_lost_or_doubled_when_the_server_is_killed_at_any_moment(server: LocalProcess, seed: int) -> None:
    luck = random.Random(seed)  # noqa: S311 - moments, not secrets
    ids: dict[int, str] = {}

    server.start()
    for kill in range(KILLS_WHILE_STARTING):
        # The first kills also cut off the request that asks for a lease.
        asking = threading.Thread(target=_ask, args=(server.client, kill % len(REQUESTS), ids))
        asking.start()
        sleep(luck.uniform(0.0, 0.05) if kill < 2 else luck.uniform(0.05, 0.8))
        server.kill()
        asking.join()
        if kill < KILLED_STARTS:
            # A start that takes up where the last one was cut off is cut off as well.
            server.start(wait=False)
            sleep(luck.uniform(0.3, 1.0))
            server.kill()
        server.start()
    for number in range(len(REQUESTS)):
        _ask(server.client, number, ids)
    _until(server, ids, "running", "released")
    _check_ends(server.client, ids)
    for _ in range(KILLS_WHILE_RELEASING):
        for lease_id in ids.values():
            server.client.release(lease_id)
        sleep(luck.uniform(0.0, 0.4))
        server.kill()
        server.start()
    _until(server, ids, "released")
    assert server.stop() == 0

    found = server.compare()
    assert len(set(ids.values())) == len(REQUESTS) == found.leases
    assert found.clean, found.findings
    assert all(bill.machines >= 1 for bill in found.bills), found.bills
