"""What is wrong with a request is said before anything is sent: where, what, and what would be right."""

import pytest

from tests.support.cli_world import Cli
from tests.support.fake_api import FakeApi, lease


def refused(cli: Cli, api: FakeApi, *words: str) -> str:
    """The error of a command line that must send nothing."""
    result = cli.run("up", *words)
    assert result.code == 2
    assert len(result.err.splitlines()) == 1
    assert api.seen == []
    return result.error


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--max-price", "0"], "--max-price: 0 can rent nothing; give US dollars per hour above 0, like 2.50"),
        (["--max-price", "-3"], "--max-price: -3 can rent nothing; give US dollars per hour above 0, like 2.50"),
        (["--max-price", "nan"], "--max-price: nan can rent nothing; give US dollars per hour above 0, like 2.50"),
        (["--max-price", "cheap"], "--max-price: 'cheap' is not a price; give US dollars per hour, like 2.50"),
        (["--gpu-count", "0"], "--gpu-count: 0 is out of range; give 1 to 16"),
        (["--count", "two"], "--gpu-count: 'two' is not a whole number; give 1 to 16"),
        (["--min-gpu-memory", "-1"], "--min-gpu-memory: -1 is not possible; give a number of GiB above 0"),
        (["--gpu", ","], "--gpu: is empty; give at least one name"),
        (["--gpu", "A100;rm"], "--gpu: 'A100;rm' is not right; give a model name like A100"),
        (["--label", "team"], "--label: 'team' has no name and value; give it as name=value"),
        (["--label", "a=1", "--label", "a=2"], "--label: 'a' is given twice with different values; give it once"),
        (["--max-duration", "5"], "--max-duration: '5' is not a duration; give a number with its unit, like 90s,"),
        (["--max-duration", "0s"], "--max-duration: '0s' is no time at all; give more than 0s"),
        (["--max-duration", "59s"], "--max-duration: 59s is too small; give 1m00s or more"),
        (["--no-wait", "--timeout", "5m"], "--timeout: contradicts --no-wait; give one of the two"),
        (["--provider", "vastai", "--private-network", "required"], "private_network: required contradicts providers"),
        (["--start-script", "none.sh"], "--start-script: cannot read none.sh (No such file or directory); give a file"),
        (["-f", "none.yaml"], "-f: cannot read none.yaml (No such file or directory); give a file that exists"),
        (["--ssh-key", "none.pub"], "--ssh-key: cannot read none.pub (No such file or directory); give a file with"),
        (["--ssh-key", "ssh-ed25519"], "--ssh-key: 'ssh-ed25519' is not right; give a public key line like"),
        (["--idempotency-key", "a b"], "--idempotency-key: has blanks or is too long; give 1 to 255 visible ASCII"),
        (["--kind", "moon"], "--kind: 'moon' is not one of 'vm', 'bare_metal'; see `gpulease up --help`"),
        (["--gpuu", "A100"], "--gpuu: no such option; did you mean --gpu?"),
        (["--gpu"], "--gpu: needs a value, or takes none; see `gpulease"),
        (["A100"], "Got unexpected extra argument (A100); see `gpulease up --help`"),
    ],
)
def test_wrong_options_are_one_line(cli: Cli, api: FakeApi, words: list[str], error: str) -> None:
    assert refused(cli, api, *words).startswith(error)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("gpu: [A100\nname: x\n", "lease.yaml: line 2, column 5: "),
        ("gpu: A100\n\tname: x\n", "lease.yaml: line 2, column 1: "),
        ("", "lease.yaml: holds no fields; give lines like `gpu: [A100]`"),
        ("- gpu\n", "lease.yaml: holds no fields"),
        ("gpus: [A100]\n", "lease.yaml: gpus: unknown field; did you mean gpu?"),
        ("zzz: 1\n", "lease.yaml: zzz: unknown field; known: gpu, gpu_count, "),
        ("gpu_count: 99\n", "gpu_count: 99 is too large; give 16 or less"),
        ("max_price_per_hour_usd: -1\n", "max_price_per_hour_usd: -1 is not possible; give more than 0"),
        ("spot: sometimes\n", "spot: 'sometimes' is not known; give one of 'on-demand', 'spot' or 'any'"),
        ("name: 5\n", "name: 5 is not text; put it in quotes"),
        ("start_script: a\nstart_script_base64: YQ==\n", "start_script: contradicts start_script_base64; give one"),
        ("start_script_base64: '*'\n", "start_script_base64: is not base64; encode the script's bytes"),
        ("labels: [a]\n", "labels: ['a'] is not right; give names of letters"),
    ],
)
def test_wrong_files_are_one_line_with_the_place(cli: Cli, api: FakeApi, content: str, error: str) -> None:
    (cli.home / "lease.yaml").write_text(content)

    assert refused(cli, api, "-f", "lease.yaml").startswith(error)


def test_a_file_that_is_not_text_is_refused(cli: Cli, api: FakeApi) -> None:
    (cli.home / "lease.yaml").write_bytes(b"\xff\xfe\x00")

    assert refused(cli, api, "-f", "lease.yaml") == "lease.yaml: is not UTF-8 text; give a YAML file"


def test_yaml_cannot_run_code(cli: Cli, api: FakeApi) -> None:
    (cli.home / "lease.yaml").write_text("gpu: !!python/object/apply:os.system [true]\n")

    assert refused(cli, api, "-f", "lease.yaml").startswith("lease.yaml: line 1, column 6: ")


def test_a_start_script_that_is_too_large_is_refused_with_both_sizes(cli: Cli, api: FakeApi) -> None:
    (cli.home / "big.sh").write_bytes(b"x" * 32769)

    error = refused(cli, api, "--start-script", "big.sh")

    assert error.startswith("--start-script: the script has 32769 bytes; at most 32768 fit")


def test_a_start_script_of_the_largest_size_is_fine(cli: Cli, api: FakeApi) -> None:
    api.created.append([lease()])
    (cli.home / "big.sh").write_bytes(b"x" * 32768)

    assert cli.run("up", "--start-script", "big.sh").code == 0


def test_a_private_key_stays_on_this_computer(cli: Cli, api: FakeApi) -> None:
    (cli.home / "id").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n")

    error = refused(cli, api, "--ssh-key", "id")

    assert error == "--ssh-key: id is a private key and stays on this computer; give id.pub"


def test_a_key_file_may_hold_several_keys_and_comments(cli: Cli, api: FakeApi) -> None:
    api.created.append([lease()])
    (cli.home / "keys").write_text("# us\nssh-ed25519 AAAA a\n\nssh-rsa BBBB b\nssh-ed25519 AAAA a\n")

    cli.run("up", "--ssh-key", "keys")

    assert api.of("POST")[0].body["ssh_keys"] == ["ssh-ed25519 AAAA a", "ssh-rsa BBBB b"]


def test_a_file_of_the_documentation_is_sent_as_it_is(cli: Cli, api: FakeApi) -> None:
    api.created.append([lease()])
    (cli.home / "lease.yaml").write_text(
        "name: train\ngpu: [A100, H100]\nmax_price_per_hour_usd: '2.50'\nregions: ewr\nlabels: {team: vision}\n"
        "ssh_keys: [ssh-ed25519 AAAA me]\nstart_script: |\n  #!/bin/sh\n  echo hello\n"
    )

    cli.run("up", "-f", "lease.yaml")

    assert api.of("POST")[0].body == {
        "name": "train",
        "gpu": ["A100", "H100"],
        "max_price_per_hour_usd": "2.50",
        "regions": ["ewr"],
        "labels": {"team": "vision"},
        "ssh_keys": ["ssh-ed25519 AAAA me"],
        "start_script": "#!/bin/sh\necho hello\n",
    }
