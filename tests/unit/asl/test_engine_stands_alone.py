"""The engine needs nothing but the standard library, so that it can be checked and reused alone."""

import ast
import sys
from pathlib import Path

ENGINE = Path(__file__).resolve().parents[3] / "local" / "gpulease_local" / "asl"


def test_the_engine_imports_only_itself_and_the_standard_library() -> None:
    imported = {
        (file.name, name)
        for file in ENGINE.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        for name in _names(node)
    }

    assert imported
    foreign = {
        (file, name)
        for file, name in imported
        if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith("gpulease_local.asl")
    }
    assert foreign == set()


def test_only_the_clocks_read_the_time() -> None:
    readers = {
        file.name
        for file in ENGINE.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if "time" in _names(node)
    }

    assert readers == {"clocks.py"}


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
