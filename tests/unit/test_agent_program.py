"""The agent as it is sent: what is left out changes nothing, it fits, and no start script suffers."""

import ast
import base64
import gzip
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from gpulease.agent_program import (
    SMALLEST_LIMIT_BYTES,
    agent_program,
    check_fits,
    fits_anywhere,
    machine_data,
    offers_that_carry,
    stripped,
)
from gpulease.domain.agent_config import agent_config
from gpulease.domain.agent_protocol import PROGRAM_PATH, new_token
from gpulease.domain.cache_spec import CacheUse
from gpulease.domain.spec import MAX_START_SCRIPT_BYTES, LeaseSpec
from gpulease.domain.user_data import (
    AGENT_CONFIG_PATH,
    AGENT_PATH,
    FETCH_PATH,
    START_SCRIPT_PATH,
    UserDataTooLarge,
    agent_config_in,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.ledger_samples import an_offer

SPEC = LeaseSpec(ssh_keys=("ssh-ed25519 " + "A" * 68 + " ada@host",))
VULTR_LIMIT = 64 * 1024
SOURCE = Path(__file__).resolve().parents[2] / "layers/core/python/gpulease/guest/agent.py"


def config(url: str = "https://abcdefghij.execute-api.us-east-1.amazonaws.com") -> Any:
    return agent_config(
        url=url,
        token=new_token("l-aaaaaaaaaaaa", "0123456789abcdef" * 2),
        lease_id="l-aaaaaaaaaaaa",
        gpus=8,
        script_bytes=1,
        ssh_port=22,
        cache=None,
    )


def noise(size: int) -> bytes:
    """Bytes that nothing makes smaller."""
    return random.Random(size).randbytes(size)  # noqa: S311 - nothing secret


def files_of(data: bytes) -> dict[str, bytes]:
    """What cloud-init writes on the machine."""
    text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    document = yaml.safe_load(text)
    unpacked = {"b64": lambda content: content, "gz+b64": gzip.decompress}
    return {f["path"]: unpacked[f["encoding"]](base64.b64decode(f["content"])) for f in document["write_files"]}


def test_what_is_sent_is_the_same_program() -> None:
    def meaning(source: str) -> str:
        tree = ast.parse(source)
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and len(body) > 1:
                node.body = [  # type: ignore[attr-defined]
                    each
                    for each in body
                    if not (isinstance(each, ast.Expr) and isinstance(getattr(each.value, "value", None), str))
                ]
        return ast.dump(tree)

    source = SOURCE.read_text(encoding="utf-8")

    assert meaning(agent_program().source.decode()) == meaning(source)
    assert len(agent_program().source) < len(source) * 3 / 4


def test_nothing_that_means_something_is_left_out() -> None:
    lines = ['"""Doc."""', "# gone", 'X = """a', "    b", "# kept", "", '"""', "", "def f():", '    """Doc."""']
    source = "\n".join([*lines, "    if X:", '        return "# x"']) + "\n"

    assert stripped(source) == 'X = """a\n    b\n# kept\n\n"""\ndef f():\n if X:\n  return "# x"\n'


def test_the_program_needs_nothing_newer_than_python_3_8() -> None:
    ast.parse(agent_program().source.decode(), feature_version=(3, 8))


def test_where_there_is_room_the_program_is_in_the_document() -> None:
    data = machine_data(SPEC, b"x" * 1000, config(), VULTR_LIMIT)

    files = files_of(data)
    assert data.startswith(b"#cloud-config\n")
    assert files[AGENT_PATH] == agent_program().source
    assert json.loads(files[AGENT_CONFIG_PATH]) == agent_config_in(data)


def test_the_largest_script_fits_beside_the_program_into_what_vultr_carries() -> None:
    files = files_of(machine_data(SPEC, noise(MAX_START_SCRIPT_BYTES), config(), VULTR_LIMIT))

    assert files[START_SCRIPT_PATH] == noise(MAX_START_SCRIPT_BYTES)


def test_c60_eight_kilobytes_of_script_fit_into_what_ec2_carries() -> None:
    data = machine_data(SPEC, noise(8192), config(), SMALLEST_LIMIT_BYTES)

    files = files_of(data)
    assert len(data) <= 16384
    assert files[START_SCRIPT_PATH] == noise(8192)
    assert AGENT_PATH not in files and FETCH_PATH in files


def test_a_small_script_is_sent_with_the_program_itself_also_to_ec2() -> None:
    files = files_of(machine_data(SPEC, noise(3000), config(), SMALLEST_LIMIT_BYTES))

    assert files[AGENT_PATH] == agent_program().source


def test_c60_what_fits_in_no_form_is_refused_with_size_and_limit() -> None:
    with pytest.raises(UserDataTooLarge) as refused:
        machine_data(SPEC, noise(17_000), config(), SMALLEST_LIMIT_BYTES)

    assert refused.value.size > 17_000
    assert "16384" in str(refused.value)


@settings(max_examples=25, deadline=None)
@given(st.binary(min_size=1, max_size=200), st.booleans())
def test_c61_any_bytes_arrive_beside_the_agent(script: bytes, small: bool) -> None:
    padded = script + noise(9000) if small else script

    files = files_of(machine_data(SPEC, padded, config(), SMALLEST_LIMIT_BYTES))

    assert files[START_SCRIPT_PATH] == padded


def test_without_an_agent_the_document_is_as_ever_and_packed_only_where_it_must_be() -> None:
    plain = machine_data(SPEC, noise(11_000), None, SMALLEST_LIMIT_BYTES)
    packed = machine_data(SPEC, noise(14_000), None, SMALLEST_LIMIT_BYTES)

    assert plain.startswith(b"#cloud-config\n") and packed.startswith(b"\x1f\x8b")
    assert files_of(packed)[START_SCRIPT_PATH] == noise(14_000)


@pytest.mark.parametrize("size", [0, 100, 8192, 11_000, 12_500, 13_500])
@pytest.mark.parametrize("agent_url", ["", "https://abcdefghij.execute-api.us-east-1.amazonaws.com"])
def test_what_is_taken_to_fit_anywhere_does(size: int, agent_url: str) -> None:
    spec = SPEC.model_copy(update={"cache": CacheUse(name="m", mounts=("/root/.cache",))})

    if fits_anywhere(spec, size):
        check_fits(spec, noise(size), agent_url, SMALLEST_LIMIT_BYTES)


def test_c60_only_offers_of_providers_that_carry_it_are_left() -> None:
    aws, vultr = an_offer(provider="aws"), an_offer()
    limits = {"aws": SMALLEST_LIMIT_BYTES, "vultr": VULTR_LIMIT}

    assert offers_that_carry(SPEC, noise(100), "https://x.y", [aws, vultr], limits.__getitem__) == [aws, vultr]
    assert offers_that_carry(SPEC, noise(17_000), "https://x.y", [aws, vultr], limits.__getitem__) == [vultr]
    with pytest.raises(UserDataTooLarge):
        offers_that_carry(SPEC, noise(17_000), "https://x.y", [aws], limits.__getitem__)


@pytest.fixture
def api() -> Iterator[tuple[str, list[str]]]:
    """Hands out the program on loopback, badly at first; notes the tokens that it was shown."""
    tokens: list[str] = []
    answers = [(500, b"later"), (200, b"something else")]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(str(self.headers["Authorization"]))
            status, body = answers.pop(0) if answers else (200, agent_program().source)
            self.send_response(status if self.path == PROGRAM_PATH else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is said."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", tokens
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_program_is_fetched_until_it_is_the_right_one(tmp_path: Path, api: tuple[str, list[str]]) -> None:
    url, tokens = api
    files = files_of(machine_data(SPEC, noise(9000), config(url), SMALLEST_LIMIT_BYTES))
    (tmp_path / "agent.json").write_bytes(files[AGENT_CONFIG_PATH])
    fetch = files[FETCH_PATH].decode().replace(AGENT_CONFIG_PATH, str(tmp_path / "agent.json"))
    fetch = fetch.replace(AGENT_PATH, str(tmp_path / "agent.py")).replace("p=5", "p=.05")
    ast.parse(fetch, feature_version=(3, 8))

    subprocess.run([sys.executable, "-c", fetch], check=True, timeout=30)  # noqa: S603 - our own

    assert (tmp_path / "agent.py").read_bytes() == agent_program().source
    assert tokens == [f"Bearer {config().token}"] * 3
