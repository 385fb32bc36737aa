"""A cell of a notebook as the file of a benchmark class.

The setup becomes the begin of the method, the cell becomes its step, and the value of the cell's
last expression is returned, so that `Benchmark.measure` waits for what a framework computes.
"""

from __future__ import annotations

import ast
import keyword
import symtable
from collections.abc import Sequence

from perfrun.errors import UsageError
from perfrun.worker.author import Benchmark

MODULE, CLASS = "notebook_cell", "Cell"
MARK = "# perfrun: measure"  # a line of its own: what stands above it is setup
_TEMPLATE = f"""
from perfrun import Benchmark

class {CLASS}(Benchmark):
    def METHOD(self):
        def step():
            pass
        self.measure(step, OPTIONS)
"""


def source_of(code: str, setup: Sequence[str], method: str, max_time_s: float | None = None) -> str:
    """Return the file's text. Raises UsageError for code that is no plain Python."""
    check_name(method)
    before, step = split(code)
    beginning = _parsed("\n".join([*setup, before]), "the setup")
    body = _parsed(step, "the cell")
    if not body.body:
        raise UsageError("%%perfrun: there is nothing to measure in the cell")
    outer = _assigned("\n".join([*setup, before])) & _assigned(step)
    if isinstance(body.body[-1], ast.Expr):
        body.body[-1] = ast.Return(body.body[-1].value)
    options = "" if max_time_s is None else f"max_time_s={max_time_s!r}"
    made = ast.parse(_TEMPLATE.replace("OPTIONS", options))
    function = made.body[1].body[0]  # type: ignore[attr-defined]
    function.name = method
    function.body[0].body = [*([ast.Nonlocal(sorted(outer))] if outer else []), *body.body]
    function.body[:0] = beginning.body
    text = ast.unparse(ast.fix_missing_locations(made)) + "\n"
    try:
        compile(text, "<cell>", "exec", dont_inherit=True)
    except SyntaxError as error:  # as a cell it was right, in a function it is not
        raise UsageError(f"%%perfrun: {error.msg}; a measured cell is a function's body") from None
    return text


def split(code: str) -> tuple[str, str]:
    """Return what stands above the line `# perfrun: measure`, and what stands below it.

    Lines keep their numbers, so that a message about the second part names the cell's own.
    """
    lines = code.split("\n")
    at = next((number for number, one in enumerate(lines) if one.strip() == MARK), None)
    if at is None:
        return "", code
    return "\n".join(lines[:at]), "\n" * (at + 1) + "\n".join(lines[at + 1 :])


def check_name(method: str) -> None:
    """Refuse a name that no method can have, or that `Benchmark` has. Raises UsageError."""
    if not method.isidentifier() or keyword.iskeyword(method) or method.startswith("_"):
        raise UsageError(f"--name={method}: must be a name of Python, as sort_list")
    if hasattr(Benchmark, method) or method in ("step", "self"):
        raise UsageError(f"--name={method}: is taken by perfrun.Benchmark; choose another name")


def _parsed(code: str, what: str) -> ast.Module:
    try:
        compile(code, "<cell>", "exec", dont_inherit=True)  # finds a `return` or `break` outside
        return ast.parse(code)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f", line {line}" if line else ""
        text = getattr(error, "msg", None) or str(error)
        raise UsageError(
            f"%%perfrun: {what}{where}: {text}; a measured cell is plain Python, without magics"
        ) from None


def _assigned(code: str) -> set[str]:
    """Return the names that code binds: assignments, imports, functions, classes."""
    table = symtable.symtable(code, "<cell>", "exec")
    return {
        one.get_name()
        for one in table.get_symbols()
        if one.is_assigned() or one.is_imported() or one.is_namespace()
    }
