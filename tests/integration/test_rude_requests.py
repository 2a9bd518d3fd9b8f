"""The hand-written rude requests of `make fuzz-api` against a whole local server; the generated ones take longer."""

import json
from pathlib import Path

from tests.support.local_server import LocalProcess
from tests.support.rude_requests import Heard, Rude, complaint, rude_requests, send

REPOSITORY = Path(__file__).resolve().parents[2]


def test_rude_requests_are_refused_in_words_and_rent_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    server = LocalProcess(data, REPOSITORY, time_scale=25)
    try:
        server.start()
        address = json.loads((data / "api.json").read_text(encoding="utf-8"))
        port = int(address["url"].rpartition(":")[2])

        complaints = [complaint(rude, send(port, rude.raw)) for rude in rude_requests(port, address["token"])]

        assert [each for each in complaints if each] == []
        assert len(complaints) > 100
        assert list(server.client.leases()) == []
        assert server.client.health()["version"]
    finally:
        server.close()
    assert "Traceback" not in (tmp_path / "stderr.txt").read_text(encoding="utf-8")


def test_an_answer_that_shows_too_much_is_complained_about() -> None:
    rude = Rude("x", b"", (400,))
    problem = json.dumps({"type": "urn:x", "title": "Bad Request", "status": 400, "code": "x"})

    assert complaint(rude, Heard(400, "application/problem+json", problem, "")) == ""
    for heard in (
        Heard(500, "application/problem+json", problem, ""),
        Heard(400, "text/html", "<p>no</p>", ""),
        Heard(400, "application/problem+json", '{"message":"no"}', ""),
        Heard(400, "application/problem+json", problem.replace("400", "401"), ""),
        Heard(400, "application/problem+json", problem.replace("urn:x", "Traceback (most recent call last)"), ""),
    ):
        assert complaint(rude, heard) != ""
