"""The agent's program as it is sent to machines: `guest/agent.py` without what only people read.

It is data here and never imported. What is taken out: comments, docstrings, blank lines, three of four blanks of
indentation. Invariant: the program has no string of several lines but docstrings and those of whole-line constants,
which are left as they are; tests run it in this very form.
"""

import ast
import gzip
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class AgentProgram:
    """`packed` is the program gzipped."""

    source: bytes
    packed: bytes
    sha256: str


@cache
def agent_program() -> AgentProgram:
    """Read once per process."""
    text = (files("gpulease") / "guest" / "agent.py").read_text(encoding="utf-8")
    source = stripped(text).encode()
    return AgentProgram(source, gzip.compress(source, 9, mtime=0), sha256(source).hexdigest())


def stripped(source: str) -> str:
    """The same program with fewer bytes."""
    drop, keep = set[int](), set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.end_lineno != node.lineno:
            keep.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
        body = getattr(node, "body", None)
        if not isinstance(body, list) or len(body) < 2:
            continue
        for each in body:
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                drop.update(range(each.lineno, (each.end_lineno or 0) + 1))
    lines = []
    for number, line in enumerate(source.splitlines(), 1):
        plain = line.lstrip(" ")
        if number in drop or (number not in keep and (not plain or plain.startswith("# ") or plain == "#")):
            continue
        lines.append(line if number in keep else " " * ((len(line) - len(plain)) // 4) + plain)
    return "\n".join(lines) + "\n"
