"""The benchmark's and the model's own source files, and a table of figures beside their lines."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from perfrun.worker.profilers.profile_recorder import TOP_ROWS, Row

# Packages whose lines nobody who writes a model or a benchmark would change.
_FRAMEWORKS = (
    *("torch", "tensorflow", "keras", "tf_keras", "jax", "jaxlib", "flax", "equinox"),
    *("numpy", "scipy", "absl", "memray"),
)
_LIBRARY = os.path.dirname(os.__file__)
_PERFRUN = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PACKAGES = ("site-packages", "dist-packages")


class Line(NamedTuple):
    """A line of a function."""

    path: str
    number: int
    function: str
    begin: int  # the function's first line

    @property
    def where(self) -> str:
        """Return file and line, as in every row of a profile."""
        return "%s:%d" % (self.path, self.number)

    @property
    def text(self) -> str:
        """Return the source of the line."""
        return linecache.getline(self.path, self.number).rstrip()


def is_own(path: str) -> bool:
    """Return True for a file that is neither Python's, nor a framework's, nor perfrun's."""
    if not os.path.isabs(path):  # `<frozen ...>`, `<string>`
        return False
    packages = any(name in path.split(os.sep) for name in _PACKAGES)
    if path.startswith(_PERFRUN + os.sep) or (path.startswith(_LIBRARY + os.sep) and not packages):
        return False
    for name in _FRAMEWORKS:
        loaded = getattr(sys.modules.get(name), "__file__", None)
        if loaded and path.startswith(os.path.dirname(loaded) + os.sep):
            return False
    return True


def line_of(path: str, number: int) -> Line:
    """Return the line with the innermost function around it, as the source tells."""
    around = [one for one in _functions(path) if one[0] <= number <= one[1]]
    begin, _, name = max(around, default=(1, 0, "<module>"))
    return Line(path, number, name, begin)


@functools.lru_cache(maxsize=None)
def _functions(path: str) -> List[Tuple[int, int, str]]:
    """Return first line, last line and name of each function of a file."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):  # the file has changed, or is none
        return []
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        (node.lineno, node.end_lineno or node.lineno, node.name)
        for node in ast.walk(tree)
        if isinstance(node, kinds)
    ]


def line_rows(
    found: Dict[Line, Dict[str, Any]], largest_by: str, most: int = TOP_ROWS
) -> List[Row]:
    """Return the rows of the largest lines; each is named by its source."""
    ordered = sorted(found, key=lambda line: -float(found[line][largest_by]))[:most]
    return [
        {"name": line.text.strip() or line.function, "where": line.where, **found[line]}
        for line in ordered
    ]


def write_lines(
    path: str, found: Dict[Line, Dict[str, Any]], largest_by: str, headings: Sequence[str]
) -> None:
    """Write each function's source with the figures of its lines, the largest function first.

    `headings` are those of the figures, which are texts here already, under `"shown"`.
    """
    functions: Dict[Any, List[Line]] = {}
    for line in found:
        functions.setdefault((line.path, line.begin, line.function), []).append(line)
    sums = {
        one: max(float(found[line][largest_by]) for line in lines)
        for one, lines in functions.items()
    }
    form = "%6s " + " ".join("%%%ds" % max(12, len(name)) for name in headings) + "  %s\n"
    with open(path, "w", encoding="utf-8") as file:
        for key in sorted(functions, key=lambda one: -sums[one]):
            name, begin, function = key
            lines = {line.number: line for line in functions[key]}
            file.write("%s, %s:\n" % (name, function))
            file.write(form % ("line", *headings, "source"))
            for number in range(min(begin, *lines), max(lines) + 1):
                shown = found[lines[number]]["shown"] if number in lines else [""] * len(headings)
                text = linecache.getline(name, number).rstrip()
                file.write(form % (number, *shown, text))
            file.write("\n")
