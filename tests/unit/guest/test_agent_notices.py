"""EC2 tells a spot machine when it is taken back: what the agent does with that."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_module import agent_module

AGENT: Any = agent_module()
TIME = "2026-11-30T21:20:00Z"


class Metadata:
    """EC2's metadata service in its second version, which wants a token."""

    def __init__(self) -> None:
        self.notice: dict[str, str] | None = None
        self.status = 404
        self.asked: list[str] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                service.asked.append(self.path)
                assert self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
                self._answer(200, "a-token")

            def do_GET(self) -> None:
                service.asked.append(self.path)
                if self.headers["X-aws-ec2-metadata-token"] != "a-token":
                    self._answer(401, "")
                elif service.notice is None:
                    self._answer(service.status, "")
                else:
                    self._answer(200, json.dumps(service.notice))

            def _answer(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: Any) -> None:
                return None

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def ec2() -> Iterator[Metadata]:
    service = Metadata()
    yield service
    service.server.shutdown()
    service.server.server_close()


def an_agent(tmp_path: Path, ec2: Metadata, vendor: str = "Amazon EC2") -> Any:
    dmi = tmp_path / "sys/class/dmi/id"
    dmi.mkdir(parents=True)
    (dmi / "sys_vendor").write_text(f"{vendor}\n", encoding="utf-8")
    places = {"root": str(tmp_path), "sys": str(tmp_path / "sys"), "nvidia_smi": "/none", "ec2": ec2.place}
    return AGENT.Agent({"url": "http://127.0.0.1:1", "token": "gla_secret", **places})


def test_a_machine_that_is_taken_back_saves_at_once_and_says_so_once(tmp_path: Path, ec2: Metadata) -> None:
    agent = an_agent(tmp_path, ec2)
    agent.begin()
    agent.look(1000.0)
    before = (dict(agent.problems), agent.jobs.qsize())
    ec2.notice = {"action": "terminate", "time": TIME}

    agent.look(1010.0)
    agent.look(1020.0)

    assert before == ({}, 0)
    assert agent.report(1020.0)["problems"] == [f"spot: EC2 takes this machine back at {TIME}"]
    assert agent.jobs.qsize() == 1 and agent.jobs.get() == agent._save_now
    assert agent.wake.is_set()


def test_other_machines_are_not_asked(tmp_path: Path, ec2: Metadata) -> None:
    agent = an_agent(tmp_path, ec2, vendor="Vultr")
    agent.begin()

    agent.look(1000.0)

    assert ec2.asked == []


def test_a_service_that_does_not_answer_is_told_and_left_alone_for_minutes(tmp_path: Path, ec2: Metadata) -> None:
    ec2.status = 503
    agent = an_agent(tmp_path, ec2)
    agent.begin()

    for now in (1000.0, 1010.0, 1200.0):
        agent.look(now)
    asked = len(ec2.asked)
    ec2.status = 404
    agent.look(1301.0)

    assert asked == 2
    assert agent.problems == {}


def test_nonsense_of_the_service_reaches_nobody(tmp_path: Path, ec2: Metadata) -> None:
    agent = an_agent(tmp_path, ec2)
    agent.begin()
    ec2.notice = {"time": "soon <b>"}

    agent.look(1000.0)

    assert agent.problems == {} and agent.jobs.qsize() == 0
