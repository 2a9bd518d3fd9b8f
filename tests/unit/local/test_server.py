"""`gpulease local` starts, says what it serves, refuses what it should, and goes on where it was."""

import io
import json
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpulease.errors import ProviderAuthFailed
from gpulease.runtime.world import monotonic, sleep
from gpulease_cli.client import Client
from gpulease_local import banner, server
from gpulease_local.home import HomeRefused
from gpulease_local.server import LocalServer, Options, ServerRefused
from gpulease_sim.vultr import VultrCloud
from gpulease_sim.vultr.server import serve as serve_cloud
from gpulease_sim.wall_clock import ScaledClock as SimulatorClock

PATIENCE_SECONDS = 60.0
Serve = Callable[..., LocalServer]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start a server over one folder, again and again; the one before is ended first."""
    running: list[tuple[LocalServer, threading.Thread]] = []

    def end() -> None:
        while running:
            started, loop = running.pop()
            started.stopping.set()
            loop.join()
            started.close()

    def start(vultr_url: str | None = None) -> LocalServer:
        end()
        if vultr_url is None:
            options = Options(port=0, data_dir=tmp_path / "data", time_scale=200.0)
        else:
            options = Options(provider="vultr", port=0, data_dir=tmp_path / "data", vultr_url=vultr_url)
        started = LocalServer(options, {})
        loop = threading.Thread(target=started.run)
        loop.start()
        running.append((started, loop))
        return started

    yield start
    end()


def _client(started: LocalServer) -> Client:
    content = json.loads((started.public_folder / "api.json").read_text())
    return Client(content["url"], content["token"])


def _until(client: Client, lease_id: str, state: str) -> None:
    give_up = monotonic() + PATIENCE_SECONDS
    while client.lease(lease_id).state != state:
        assert monotonic() < give_up, client.lease(lease_id).raw
        sleep(0.05)


def test_a_lease_goes_on_over_restarts_and_the_banner_tells_its_price(serve: Serve) -> None:
    first = serve()
    token = (first.public_folder / "token").read_text()
    lease = _client(first).create_lease({"name": "one", "plans": ["vcg-a16-2c-8g-2vram"]}, idempotency_key="k")

    second = serve()
    _until(_client(second), lease.id, "running")
    opening = "\n".join(
        banner.opening_lines(second.stack, second.sides, second.url, second.folder, second.public_folder)
    )
    closing = "\n".join(banner.closing_lines(second.stack, real=False))
    real = "\n".join(banner.closing_lines(second.stack, real=True))
    _client(second).release(lease.id)
    third = serve()
    _until(_client(third), lease.id, "released")

    assert (third.public_folder / "token").read_text() == token
    assert second.url in opening
    assert "200 times real time" in opening
    assert f"{lease.id}  one  running  $0.059/h" in opening
    assert "goes on at the next start" in closing
    assert "STILL RENTED AND BILLED while gpulease is not running" in real
    assert banner.closing_lines(third.stack, real=True) == ["stopped; nothing is rented"]


def test_a_cache_without_any_lease_is_billed_and_named_when_the_server_stops(serve: Serve) -> None:
    server = serve()
    client = _client(server)
    client.create_cache({"name": "models", "provider": "vultr", "region": "ewr", "size_gb": 50})
    give_up = monotonic() + PATIENCE_SECONDS
    while client.cache("models").state != "available":
        assert monotonic() < give_up
        sleep(0.05)

    closing = banner.closing_lines(server.stack, real=True)
    opening = banner.opening_lines(server.stack, server.sides, server.url, server.folder, server.public_folder)

    assert closing[0].startswith("STILL BILLED while gpulease is not running")
    assert closing[1].endswith("cache models  $5.00 a month") and closing[1] in opening
    assert "  open leases none" in opening


def test_secrets_and_data_are_private_and_the_address_ends_with_the_server(tmp_path: Path) -> None:
    started = LocalServer(Options(port=0, data_dir=tmp_path / "data"), {})
    private = [started.public_folder / "token", started.public_folder / "api.json", started.folder / "gpulease.sqlite"]
    modes = [stat.S_IMODE(file.stat().st_mode) for file in private]
    folders = [stat.S_IMODE(folder.stat().st_mode) for folder in (started.public_folder, started.folder)]
    started.close()

    assert modes == [0o600] * 3
    assert folders == [0o700] * 2
    assert not (started.public_folder / "api.json").exists()


def test_a_second_server_over_the_same_folder_is_refused_and_harms_nothing(serve: Serve, tmp_path: Path) -> None:
    first = serve()

    with pytest.raises(HomeRefused, match="another gpulease"):
        LocalServer(Options(port=0, data_dir=tmp_path / "data"), {})

    assert _client(first).health()["version"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (Options(provider="moon"), "no provider is called 'moon'"),
        (Options(provider="vultr", time_scale=2.0), "real time"),
        (Options(time_scale=0.0), "time scale"),
        (Options(time_scale=float("nan")), "time scale"),
        (Options(vultr_url="http://127.0.0.1:1/v2"), "goes with provider vultr"),
        (Options(provider="vultr", vultr_url="http://api.example/v2"), "must be https"),
        (Options(provider="vultr", vultr_url="https:///v2"), "must be https"),
    ],
)
def test_what_makes_no_sense_together_is_refused_before_anything_is_made(
    tmp_path: Path, options: Options, why: str
) -> None:
    with pytest.raises(ServerRefused, match=why):
        LocalServer(options, {"GPULEASE_HOME": str(tmp_path / "home")})

    assert not (tmp_path / "home").exists()


def test_a_real_provider_without_a_key_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = server.main(provider="vultr", port=0, env={"GPULEASE_HOME": str(tmp_path)}, out=io.StringIO())

    said = capsys.readouterr().err
    assert (status, len(said.splitlines())) == (2, 1)
    assert "VULTR_API_KEY" in said


def test_a_port_that_is_taken_is_one_line_and_frees_the_folder(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = serve().front.port

    status = server.main(port=taken, data_dir=tmp_path / "other", env={}, out=io.StringIO())

    assert (status, f"port {taken} cannot be used" in capsys.readouterr().err) == (2, True)
    LocalServer(Options(port=0, data_dir=tmp_path / "other"), {}).close()


def test_the_simulated_and_the_real_provider_have_folders_of_their_own(tmp_path: Path) -> None:
    home = {"GPULEASE_HOME": str(tmp_path)}
    LocalServer(Options(port=0), home).close()

    with pytest.raises(ProviderAuthFailed, match="VULTR_API_KEY"):
        LocalServer(Options(provider="vultr", port=0), home)

    assert {each.name for each in (tmp_path / "local").iterdir() if each.is_dir()} == {"simulated", "real"}


def test_a_lease_lives_at_a_simulator_that_is_served_beside_it(serve: Serve) -> None:
    clock = SimulatorClock.from_now(200.0)
    cloud = VultrCloud(clock)

    with serve_cloud(cloud, clock=clock) as simulator:
        started = serve(f"{simulator.url}/v2")
        lease = _client(started).create_lease({"name": "one", "plans": ["vcg-a16-2c-8g-2vram"]}, idempotency_key="k")
        _until(_client(started), lease.id, "running")
        _client(started).release(lease.id)
        _until(_client(started), lease.id, "released")

    assert (started.sides.real, started.sides.scale) == (False, 200.0)
    assert [each.kind for each in cloud.book_objects()] == ["instance"]
    assert cloud.book.billed() == []


def test_an_address_that_is_no_simulator_of_ours_is_a_real_provider_and_wants_a_key(tmp_path: Path) -> None:
    nobody = Options(provider="vultr", port=0, data_dir=tmp_path / "data", vultr_url="http://127.0.0.1:9/v2")

    with pytest.raises(ProviderAuthFailed, match="VULTR_API_KEY"):
        LocalServer(nobody, {"GPULEASE_HOME": str(tmp_path)})
