"""Differences between both sides of the source files in which a profile found rows."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfrun.untrusted import Refused, read_file

LARGEST_BYTES = 2**20  # of a source file
MOST_FILES = 20
_MOST_LINES = 20_000
_MOST_FUNCTIONS = 10


@dataclass(frozen=True, kw_only=True)
class CodeChange:
    """The difference of one file."""

    file: str  # as in the rows
    added: int  # lines
    removed: int
    functions: tuple[str, ...]  # in which lines differ, on the new side or, if gone, in base


@dataclass(frozen=True)
class SourceFile:
    """A file of the rows, where it lies on each side; None where the rows do not have it."""

    file: str
    base: str | None
    new: str | None


def code_changes(
    files: Iterable[SourceFile], roots: Sequence[Sequence[str]]
) -> tuple[CodeChange, ...]:
    """Return the files that differ. Only files below the roots of their side are read."""
    found = []
    for one in list(files)[:MOST_FILES]:
        if one.base is None or one.new is None or one.base == one.new:
            continue
        texts = [_lines(path, own) for path, own in zip((one.base, one.new), roots, strict=True)]
        if texts[0] is not None and texts[1] is not None and texts[0] != texts[1]:
            found.append(_change(one.file, texts[0], texts[1]))
    return tuple(found)


def _lines(path: str, roots: Sequence[str]) -> list[str] | None:
    """Return the lines of a source file; None for what is none, or lies elsewhere."""
    below = any(path.startswith(root.rstrip("/") + "/") for root in roots)
    if not below or ".." in path.split("/") or not path.endswith(".py"):
        return None
    try:
        text = read_file(Path(path), LARGEST_BYTES).decode("utf-8", "replace")
    except (OSError, Refused):
        return None
    lines = text.splitlines()
    return lines if len(lines) <= _MOST_LINES else None


def _change(file: str, base: list[str], new: list[str]) -> CodeChange:
    matcher = difflib.SequenceMatcher(None, base, new, autojunk=True)
    changed = [one for one in matcher.get_opcodes() if one[0] != "equal"]
    names: dict[str, None] = {}
    places = _functions(new), _functions(base)
    for _, begin, end, new_begin, new_end in changed:
        own = _within(places[0], new_begin + 1, new_end) or _within(places[1], begin + 1, end)
        names.update(dict.fromkeys(own))
    return CodeChange(
        file=file,
        added=sum(one[4] - one[3] for one in changed),
        removed=sum(one[2] - one[1] for one in changed),
        functions=tuple(names)[:_MOST_FUNCTIONS],
    )


_Place = tuple[int, int, str]  # first line, last line, name with its classes


def _functions(lines: Sequence[str]) -> list[_Place]:
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: list[_Place] = []
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, outer = waiting.pop()
        for inner in ast.iter_child_nodes(node):
            name = outer
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{outer}.{inner.name}" if outer else inner.name
                if not isinstance(inner, ast.ClassDef):
                    found.append((inner.lineno, inner.end_lineno or inner.lineno, name))
            waiting.append((inner, name))
    return found


def _within(places: Sequence[_Place], begin: int, end: int) -> list[str]:
    """Return the innermost functions around the lines, in their order."""
    names: dict[str, None] = {}
    for number in range(begin, end + 1):
        around = [one for one in places if one[0] <= number <= one[1]]
        if around:
            names[max(around)[2]] = None
    return list(names)
