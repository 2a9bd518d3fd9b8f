"""`gpulease local` with AWS: whole leases on a simulated account, in this process and served."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gpulease.runtime.world import monotonic, sleep
from gpulease_cli.client import Client
from gpulease_local import banner
from gpulease_local.options import AwsSetup
from gpulease_local.server import LocalServer, Options, ServerRefused, refuse_to_lose_sight
from gpulease_sim.aws import AwsCloud
from gpulease_sim.aws.server import serve as serve_cloud
from gpulease_sim.wall_clock import ScaledClock as SimulatorClock

from tests.support.aws_world import steady

SCALE = 60.0
PATIENCE_SECONDS = 120.0
ONE_AWS = {"providers": ["aws"], "plans": ["g6.xlarge"], "regions": ["us-east-1"]}


@contextmanager
def serving(options: Options) -> Iterator[tuple[LocalServer, Client]]:
    started = LocalServer(options, {})
    loop = threading.Thread(target=started.run)
    loop.start()
    try:
        content = json.loads((started.public_folder / "api.json").read_text())
        yield started, Client(content["url"], content["token"], timeout_seconds=30)
    finally:
        started.stopping.set()
        loop.join()
        started.close()


def _until(client: Client, lease_id: str, state: str) -> None:
    give_up = monotonic() + PATIENCE_SECONDS
    while client.lease(lease_id).state != state:
        assert monotonic() < give_up, client.lease(lease_id).raw
        sleep(0.1)


def _lives(client: Client) -> str:
    """A lease from its request to its end, with a pause; its id."""
    lease_id = client.create_lease({"name": "box", **ONE_AWS}, idempotency_key="k").id
    _until(client, lease_id, "running")
    first = client.lease(lease_id).raw
    client.pause(lease_id)
    _until(client, lease_id, "paused")
    paused = client.lease(lease_id).raw
    client.resume(lease_id)
    _until(client, lease_id, "running")
    again = client.lease(lease_id).raw
    client.release(lease_id)
    _until(client, lease_id, "released")

    assert paused["address"] == "" and again["address"] not in ("", first["address"])
    assert float(paused["price_per_hour_usd"]) < float(first["price_per_hour_usd"]) / 10
    assert [each["provider_id"] for each in again["resources"]] == [r["provider_id"] for r in first["resources"]]
    return lease_id


def test_a_lease_lives_on_the_simulated_aws_of_this_process_beside_a_simulated_vultr(tmp_path: Path) -> None:
    options = Options(
        provider="simulated,simulated-aws",
        port=0,
        data_dir=tmp_path,
        time_scale=SCALE,
        aws=AwsSetup(regions="us-east-1"),
        aws_simulator=steady(),
    )

    with serving(options) as (started, client):
        lines = banner.opening_lines(started.stack, started.sides, started.url, started.folder, started.public_folder)
        _lives(client)
        offers = {each.provider for each in started.stack.deps.offers.load()}

    told = "\n".join(lines)
    assert "simulated Vultr (nothing is rented" in told and "leases of an earlier run are found lost" in told
    assert offers == {"vultr", "aws"}
    assert (started.sides.real, started.folder.name) == (False, "simulated+simulated-aws")


def test_a_lease_lives_at_a_served_simulated_aws(tmp_path: Path) -> None:
    clock = SimulatorClock.from_now(SCALE)
    cloud = AwsCloud(clock, 3, steady())

    with serve_cloud(cloud, clock=clock) as simulator:
        options = Options(provider="aws", port=0, data_dir=tmp_path, aws=AwsSetup("us-east-1", url=simulator.url))
        with serving(options) as (started, client):
            _lives(client)

    assert (started.sides.real, started.sides.scale) == (False, SCALE)
    assert [each.kind for each in cloud.book.objects()].count("instance") == 1
    assert cloud.book.billed() == []


def test_a_lease_on_the_simulated_aws_of_an_earlier_run_is_found_lost(tmp_path: Path) -> None:
    options = Options(provider="simulated-aws", port=0, data_dir=tmp_path, time_scale=SCALE, aws_simulator=steady())
    with serving(options) as (first, client):
        lease_id = client.create_lease({"name": "box", **ONE_AWS}, idempotency_key="k").id
        _until(client, lease_id, "running")
        with pytest.raises(ServerRefused, match="still held at aws: start with --provider vultr,aws"):
            refuse_to_lose_sight(first.stack.deps.ledger, ["vultr"])
        refuse_to_lose_sight(first.stack.deps.ledger, ["vultr", "aws"])

    with serving(options) as (_, client):
        _until(client, lease_id, "released")
        reason = client.lease(lease_id).raw["reason"]

    assert reason == "lost"
