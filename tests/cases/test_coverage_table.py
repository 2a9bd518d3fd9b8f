"""The table in README.md names every case, and exactly the files that play it."""

import re
from pathlib import Path

FOLDER = Path(__file__).parent


def _rows() -> dict[str, set[str]]:
    rows: dict[str, set[str]] = {}
    for line in (FOLDER / "README.md").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\| (C\d\d(?:, C\d\d)*) \|", line):
            for case in match[1].split(", "):
                rows[case] = set(re.findall(r"`(test_\w+\.py)`", line))
    return rows


def _played() -> dict[str, set[str]]:
    played: dict[str, set[str]] = {}
    for file in FOLDER.glob("test_*.py"):
        for number in re.findall(r"^def test_c(\d\d)_", file.read_text(encoding="utf-8"), re.MULTILINE):
            played.setdefault(f"C{number}", set()).add(file.name)
    return played


def test_every_case_has_a_row() -> None:
    assert sorted(_rows()) == [f"C{number:02}" for number in range(1, 79)]


def test_each_row_names_the_files_that_play_it() -> None:
    played = _played()

    assert {case: files for case, files in _rows().items() if files} == played
