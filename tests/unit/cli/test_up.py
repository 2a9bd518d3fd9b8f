"""`gpulease up` rents what was asked for, once, and tells how it went."""

import json

import pytest

from tests.support.cli_world import Cli, interrupt
from tests.support.fake_api import OFFER, FakeApi, Fault, lease, released

WAITING = lease(state="provisioning", waiting_for="the machine to boot", resources=[], address="")
FAILED = {
    "number": 1,
    "offer": "vultr/ams/vcg-a100-12c/on-demand",
    "price_per_hour_usd": "2.397",
    "started_at": "2026-01-05T12:00:00Z",
    "ended_at": "2026-01-05T12:00:09Z",
    "reason": "no_capacity",
    "detail": "sold out",
}


def test_it_waits_until_the_machine_runs_and_says_how_to_connect_and_to_give_back(cli: Cli, api: FakeApi) -> None:
    api.created.append([lease(state="requested"), WAITING, WAITING, lease()])

    result = cli.run("up", "--gpu", "A100")

    assert result.code == 0
    assert result.out.splitlines() == [
        "train is running on 1 x A100 (80 GiB) at vultr/ewr, $2.397/h",
        "  connect:    ssh root@203.0.113.7",
        "  next:       runs until it is given back",
        "  give back:  gpulease down train",
    ]


def test_options_become_the_fields_of_the_api(cli: Cli, api: FakeApi) -> None:
    api.created.append([lease()])
    (cli.home / "setup.sh").write_text("#!/bin/sh\n")

    cli.run(
        *("up", "--gpu", "A100,H100", "--gpu", "L40S", "--count", "2", "--min-gpu-memory", "40"),
        *("--min-vcpus", "8", "--min-memory", "64", "--min-disk", "200", "--provider", "vultr", "--region", "ewr,ams"),
        *("--plan", "vcg-a100-12c", "--kind", "vm", "--spot", "any", "--max-price", "$2.50"),
        *("--private-network", "preferred", "--network-scope", "lease"),
        *("--ssh-key", "ssh-ed25519 AAAA me", "--start-script", "setup.sh"),
        *("--image", "ubuntu-24.04", "--label", "team=vision", "--label", "run=7", "--max-duration", "2h"),
        *("--max-attempts", "3", "--retry-not-ready", "--name", "train", "--idempotency-key", "mine"),
    )

    (post,) = api.of("POST")
    assert post.headers["idempotency-key"] == "mine"
    assert post.body == {
        "gpu": ["A100", "H100", "L40S"],
        "gpu_count": 2,
        "min_gpu_memory_gib": 40.0,
        "min_vcpus": 8,
        "min_memory_gib": 64.0,
        "min_disk_gb": 200,
        "providers": ["vultr"],
        "regions": ["ewr", "ams"],
        "plans": ["vcg-a100-12c"],
        "plan_kinds": ["vm"],
        "spot": "any",
        "max_price_per_hour_usd": "2.50",
        "private_network": "preferred",
        "network_scope": "lease",
        "ssh_keys": ["ssh-ed25519 AAAA me"],
        "start_script": "#!/bin/sh\n",
        "image": "ubuntu-24.04",
        "labels": {"team": "vision", "run": "7"},
        "max_duration_seconds": 7200,
        "max_attempts": 3,
        "retry_not_ready": True,
        "name": "train",
    }


def test_options_override_the_file(cli: Cli, api: FakeApi) -> None:
    api.created.append([lease()])
    (cli.home / "lease.yaml").write_text("gpu: A100\nmax_price_per_hour_usd: 4\nstart_script: echo file\n")
    (cli.home / "s.sh").write_bytes(b"\xff\xfe")

    cli.run("up", "-f", "lease.yaml", "--max-price", "2", "--start-script", "s.sh")

    body = api.of("POST")[0].body
    assert (body["gpu"], body["max_price_per_hour_usd"]) == (["A100"], "2")
    assert body["start_script_base64"] == "//4="
    assert "start_script" not in body


def test_each_invocation_has_its_own_key(cli: Cli, api: FakeApi) -> None:
    api.created.extend([[lease()], [lease("l-bbbbbbbbbbbb", "other")]])

    cli.run("up")
    cli.run("up")

    assert [item.headers["idempotency-key"] for item in api.of("POST")] == ["key-1", "key-2"]


def test_a_lost_answer_rents_once(cli: Cli, api: FakeApi) -> None:
    api.created.append([lease()])
    api.faults = [Fault("POST", carried_out=True)]

    assert cli.run("up").code == 0
    assert len(api.scripts) == 1


def test_when_no_answer_comes_at_all_it_says_how_to_ask_again_safely(cli: Cli, api: FakeApi) -> None:
    api.faults = [Fault("POST")] * 4

    result = cli.run("up")

    assert result.code == 3
    assert "--idempotency-key key-1" in result.error
    assert "not known" in result.error


def test_a_fault_of_the_api_says_that_a_lease_may_have_been_made(cli: Cli, api: FakeApi) -> None:
    api.faults = [Fault("POST", 500, {"title": "Internal Server Error", "detail": "request 1234"})]

    result = cli.run("up")

    assert result.code == 7
    assert "--idempotency-key key-1" in result.err
    assert result.error == "Internal Server Error: request 1234"


def test_the_story_is_told_once_in_lines_where_there_is_no_terminal(cli: Cli, api: FakeApi) -> None:
    notice = "bare metal can take up to 55 minutes"
    second = {**WAITING, "attempts": [FAILED], "notices": [notice], "warnings": ["no private network"]}
    api.created.append([lease(state="requested", offer=None), WAITING, WAITING, second, second, lease()])

    lines = cli.run("up").err.splitlines()

    assert [line for line in lines if "attempt 1" in line] == [
        "train: attempt 1: vultr/ams/vcg-a100-12c/on-demand at $2.397/h failed: no_capacity: sold out (9s)"
    ]
    assert lines.count(f"train: note: {notice}") == 1
    assert lines.count("train: warning: no private network") == 1
    (boot,) = [line for line in lines if "waiting for the machine to boot" in line]
    assert boot == (
        "train: provisioning for 2m02s; 1 x A100 at vultr/ewr; waiting for the machine to boot; $2.397/h, $0.04 so far"
    )


def test_a_lease_that_ends_without_running_is_exit_1_with_its_reason(cli: Cli, api: FakeApi) -> None:
    api.created.append([WAITING, released(WAITING, "no_capacity", "3 offers tried")])

    result = cli.run("up")

    assert result.code == 1
    assert result.error.startswith("train: ended without running (no_capacity: 3 offers tried)")
    assert result.out == ""


def test_json_is_the_final_view_alone(cli: Cli, api: FakeApi) -> None:
    api.created.append([WAITING, lease()])

    result = cli.run("up", "--json")

    assert json.loads(result.out) == lease()
    assert result.code == 0


def test_json_of_a_lease_that_ended_is_the_final_view_too(cli: Cli, api: FakeApi) -> None:
    end = released(WAITING, "no_capacity")
    api.created.append([WAITING, end])

    result = cli.run("up", "--json")

    assert (result.code, json.loads(result.out)) == (1, end)


def test_no_wait_ends_with_the_acceptance(cli: Cli, api: FakeApi) -> None:
    api.created.append([WAITING, lease()])

    result = cli.run("up", "--no-wait")

    assert result.code == 0
    assert not [seen for seen in api.of("GET") if seen.path.startswith("/v1/leases")]
    assert "follow:     gpulease events --follow train" in result.out


def test_a_time_out_leaves_the_lease_and_says_so(cli: Cli, api: FakeApi) -> None:
    api.created.append([WAITING])

    result = cli.run("up", "--timeout", "1m", "--json")

    assert result.code == 6
    assert json.loads(result.out) == WAITING
    assert cli.clock.slept == 60
    assert "train is provisioning" in result.error
    assert "is billed" in result.error
    assert api.of("DELETE") == []


def test_an_api_that_restarts_does_not_end_the_waiting(cli: Cli, api: FakeApi) -> None:
    api.created.append([WAITING, lease()])
    api.faults = [Fault("GET"), Fault("GET"), Fault("GET", 500)]

    result = cli.run("up")

    assert result.code == 0
    assert result.err.count("still trying") == 1


def test_an_api_that_stays_away_ends_the_waiting_in_the_end(cli: Cli, api: FakeApi) -> None:
    api.created.append([WAITING])
    api.faults = [Fault("GET")] * 1000

    assert cli.run("up").code == 3
    assert 180 < cli.clock.slept < 600


def test_a_dry_run_shows_the_offers_in_order_and_rents_nothing(cli: Cli, api: FakeApi) -> None:
    api.offers = [OFFER, {**OFFER, "region": "ams", "price_per_hour_usd": "2.5", "in_stock": False}]

    result = cli.run("up", "--gpu", "A100", "--dry-run")

    title, first, second = result.out.splitlines()
    assert title.split()[:3] == ["TRY", "GPU", "MEM/GPU"]
    assert first.split()[:1] + first.split()[6:7] == ["1", "vultr/ewr"]
    assert "$2.50" in second
    assert api.scripts == {}
    assert "Nothing was rented." in result.err


def test_a_dry_run_as_json_is_the_answer_of_the_api(cli: Cli) -> None:
    result = cli.run("up", "--dry-run", "--json")

    assert json.loads(result.out)["offers"] == [OFFER]


def test_on_a_terminal_the_price_is_shown_and_the_user_asked(cli: Cli, api: FakeApi) -> None:
    cli.typed = "n\n"

    result = cli.run("up", "--gpu", "A100")

    assert result.code == 1
    assert "1 x A100 (80 GiB) at vultr/ewr, $2.397/h is tried first" in result.err
    assert api.scripts == {}


def test_on_a_terminal_what_a_pause_would_cost_is_shown_before_the_user_is_asked(cli: Cli, api: FakeApi) -> None:
    api.when_paused = "when paused: the machine is stopped (running $2.397/h, paused $0.011/h)"
    cli.typed = "n\n"

    told, _, _ = cli.run("up", "--gpu", "A100").err.partition("Rent the first")

    assert api.when_paused in told


def test_a_dry_run_tells_of_each_sort_of_machine_on_a_line_of_its_own(cli: Cli, api: FakeApi) -> None:
    api.when_paused = "when paused: [aws] it is stopped; and kept; [vultr] it is given back"

    lines = cli.run("up", "--gpu", "A100", "--dry-run").out.splitlines()

    assert lines[-2:] == ["when paused: [aws] it is stopped; and kept", "  or [vultr] it is given back"]


@pytest.mark.parametrize("typed", ["y\n", "what?\nYes\n"])
def test_yes_rents(cli: Cli, api: FakeApi, typed: str) -> None:
    api.created.append([lease()])
    cli.typed = typed

    assert cli.run("up").code == 0
    assert len(api.scripts) == 1


def test_the_option_yes_asks_nothing(cli: Cli, api: FakeApi) -> None:
    api.created.append([lease()])
    cli.typed = ""

    assert cli.run("up", "--yes").code == 0
    assert len(api.of("POST")) == 1


def test_complaints_of_the_api_name_the_option(cli: Cli, api: FakeApi) -> None:
    message = "'NOSUCHGPU' is no known GPU model; known: A100, H100"
    errors = [{"field": "gpu[0]", "message": message, "value": "NOSUCHGPU"}]
    api.faults = [Fault("POST", 422, {"title": "Unprocessable", "code": "invalid_request", "errors": errors})]

    result = cli.run("up", "--gpu", "NOSUCHGPU")

    assert result.code == 2
    assert result.err == "gpulease: error: --gpu: 'NOSUCHGPU' is no known GPU model; known: A100, H100\n"


def test_when_nothing_fits_it_is_exit_1_and_says_what_would(cli: Cli, api: FakeApi) -> None:
    errors = [{"field": "max_price_per_hour_usd", "message": "without this limit 2 offers match"}]
    api.faults = [Fault("POST", 422, {"title": "Unprocessable", "code": "no_matching_offer", "errors": errors})]

    result = cli.run("up", "--gpu", "A100", "--max-price", "1")

    assert result.code == 1
    assert result.error == "no offer matches; --max-price: without this limit 2 offers match"


def test_ctrl_c_without_a_terminal_leaves_the_lease_and_says_so(cli: Cli, api: FakeApi) -> None:
    api.created.append([WAITING])
    cli.clock.on_sleep = [interrupt]

    result = cli.run("up")

    assert result.code == 130
    assert "goes on and is billed" in result.err
    assert "gpulease down train" in result.err
    assert api.of("DELETE") == []


def test_ctrl_c_can_release(cli: Cli, api: FakeApi) -> None:
    api.created.append([WAITING])
    cli.clock.on_sleep = [interrupt]
    cli.typed = "r\n"

    result = cli.run("up", "--yes", "--json")

    assert result.code == 130
    assert json.loads(result.out)["state"] == "released"
    assert "train is released; it cost $0.04" in result.err


def test_ctrl_c_can_keep_waiting(cli: Cli, api: FakeApi) -> None:
    api.created.append([WAITING, lease()])
    cli.clock.on_sleep = [interrupt]
    cli.typed = "k\n"

    assert cli.run("up", "--yes").code == 0


@pytest.mark.parametrize("typed", ["l\n", "\n", ""])
def test_ctrl_c_leaves_it_running_when_nothing_else_is_said(cli: Cli, api: FakeApi, typed: str) -> None:
    api.created.append([WAITING])
    cli.clock.on_sleep = [interrupt]
    cli.typed = typed

    result = cli.run("up", "--yes")

    assert result.code == 130
    assert "goes on and is billed" in result.err
    assert api.of("DELETE") == []


def test_the_users_own_key_is_taken_and_named(cli: Cli, api: FakeApi) -> None:
    api.created.append([lease()])
    (cli.home / ".ssh").mkdir()
    (cli.home / ".ssh" / "id_ed25519.pub").write_text("ssh-ed25519 AAAAmine me@here\n")

    result = cli.run("up")

    assert api.of("POST")[0].body["ssh_keys"] == ["ssh-ed25519 AAAAmine me@here"]
    assert f"SSH key: {cli.home}/.ssh/id_ed25519.pub" in result.err


def test_without_any_key_the_user_is_warned(cli: Cli, api: FakeApi) -> None:
    api.created.append([lease()])

    assert "nobody will be able to log in" in cli.run("up").err
