"""Files of one computer: private, replaced whole, one server at a time."""

import stat
from pathlib import Path

import pytest
from gpulease_local.home import (
    DataLock,
    HomeRefused,
    RollingFile,
    home_of,
    kept_deployment,
    kept_token,
    private_folder,
    read_private,
    write_private,
)

TOKEN = "t" * 32


def test_home_is_where_the_environment_says() -> None:
    assert home_of({"GPULEASE_HOME": "/x"}) == Path("/x")
    assert home_of({}) == Path.home() / ".gpulease"


def test_a_token_is_made_once_and_only_its_user_can_read_it(tmp_path: Path) -> None:
    made = kept_token(tmp_path / "token", lambda: TOKEN)

    assert made == TOKEN == kept_token(tmp_path / "token", lambda: "u" * 32)
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    kept_token(tmp_path / "token", lambda: TOKEN)
    (tmp_path / "token").chmod(0o644)

    with pytest.raises(HomeRefused, match="chmod 600"):
        kept_token(tmp_path / "token", lambda: TOKEN)


def test_a_file_is_replaced_whole_and_a_leftover_of_a_crash_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / ".key.new").write_text("half")
    (tmp_path / ".key.new").chmod(0o644)

    write_private(tmp_path / "key", "secret\n")

    assert read_private(tmp_path / "key") == "secret"
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_a_folder_becomes_private(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "a" / "b")

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_log_that_is_full_makes_room_and_keeps_the_part_before(tmp_path: Path) -> None:
    log = RollingFile(tmp_path / "log", max_bytes=10)

    for line in ("first line\n", "second line\n", "third line\n"):
        log.write(line)
    log.close()

    assert (tmp_path / "log").read_text() == "third line\n"
    assert (tmp_path / "log.1").read_text() == "second line\n"
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600


def test_two_servers_never_share_a_folder(tmp_path: Path) -> None:
    first = DataLock(tmp_path / "lock")

    with pytest.raises(HomeRefused, match="another gpulease"):
        DataLock(tmp_path / "lock")

    first.release()
    DataLock(tmp_path / "lock").release()


def test_a_folder_keeps_its_deployment_and_its_provider(tmp_path: Path) -> None:
    made = kept_deployment(tmp_path / "d.json", "simulated", lambda: "0123456789abcdef")

    assert made == "0123456789ab" == kept_deployment(tmp_path / "d.json", "simulated", lambda: "f" * 16)
    with pytest.raises(HomeRefused, match="holds leases at simulated, not vultr"):
        kept_deployment(tmp_path / "d.json", "vultr", lambda: "f" * 16)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"deployment": "A!", "provider": "simulated"}'])
def test_a_broken_deployment_file_is_never_replaced_by_a_new_id(tmp_path: Path, text: str) -> None:
    (tmp_path / "d.json").write_text(text)

    with pytest.raises(HomeRefused):
        kept_deployment(tmp_path / "d.json", "simulated", lambda: "f" * 16)
    assert (tmp_path / "d.json").read_text() == text
