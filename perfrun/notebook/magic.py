"""`%load_ext perfrun` and `%%perfrun`: a cell of a notebook measured in fresh processes."""

from __future__ import annotations

import argparse
import shlex
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfrun.errors import PerfrunError
from perfrun.notebook import cell, engine
from perfrun.notebook.results import Results
from perfrun.options.command_line import parse
from perfrun.options.parsers import CommandParser, parse_duration, parse_whole, parse_workspace
from perfrun.shown import say, visible, write_lines

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMEOUT_S = "300"
_EPILOG = f"""\
The names of the notebook are NOT visible in the cell: it runs in a fresh process that has not seen
the other cells. Give it what it needs as setup: by --setup, or above a line
`{cell.MARK}` of the cell. The setup runs once a trial and is not timed.

Modules of the current folder can be imported. All other flags are those of `perfrun run`, as
--precision=1, --python=FILE, --env=NAME=VALUE, --image=NAME.
"""


def load_ipython_extension(shell: Any) -> None:
    """Add `%%perfrun` to IPython; `%load_ext perfrun` calls it."""
    from IPython.core.error import UsageError as ShownError
    from IPython.core.magic import no_var_expand

    def perfrun(words: str, code: str) -> Results | None:
        try:
            return measure_cell(words, code, partial(_assign, shell))
        except PerfrunError as error:
            raise ShownError(visible(error.line)) from None  # one line, without a traceback

    perfrun.__doc__ = (
        "Measure a cell: each trial is a fresh process that times the cell to its steady state.\n\n"
        f"{parser().format_help()}"
    )
    shell.register_magic_function(no_var_expand(perfrun), "cell", "perfrun")


def parser() -> CommandParser:
    """Return the parser of the first line of such a cell."""
    about = "Measure a cell: each trial times it to its steady state in a fresh process."
    made = CommandParser("%%perfrun", about, _EPILOG, "%%%%perfrun [flags]")
    made.set_defaults(asked_for_help=False)
    whole = partial(parse_whole, least=1)
    made.flag("--trials", "N", "fresh processes, one after the other (default 3)", whole, 3)
    made.flag("--setup", "CODE", "run once a trial, before the first timed step; repeatable",
              default=[], action="append")  # fmt: skip
    made.flag("--name", "NAME", "of the method; equal names can be compared (default cell)")
    made.flag("--label", "TEXT", "copied to the summaries; `filter(label=...)` finds it")
    made.flag("--to", "VARIABLE", "of the notebook that gets the results")
    seconds = "most for the timed steps of a trial (default 3)"
    made.flag("--max_time", "SECONDS", seconds, parse_duration)
    made.flag("--workspace", "DIR", "keep the summaries there (default: kept in memory alone)")
    made.flag("--timeout", "SECONDS", f"end a trial after so long (default {_TIMEOUT_S})")
    return made


def measure_cell(
    words: str, code: str, assign: Callable[[str, Results], None] | None = None
) -> Results | None:
    """Carry out `%%perfrun WORDS` with the cell's code; None when only help was asked for.

    Raises UsageError, PerfrunError, or KeyboardInterrupt, after which no process is left.
    """
    made = parser()
    try:
        typed = shlex.split(words)
    except ValueError as error:
        made.error(f"{error}: quote CODE with blanks as --setup='import json'")
    if {"-h", "--help"} & set(typed):
        write_lines(made.format_help().splitlines())
        return None
    given, others = made.parse_known_args(typed)
    if given.to and not given.to.isidentifier():
        made.error(f"--to={given.to}: must be the name of a variable")
    method = given.name or "cell"
    text = cell.source_of(code, given.setup, method, given.max_time)
    with tempfile.TemporaryDirectory(prefix="perfrun-cell-") as folder:
        file = Path(folder, "code", f"{cell.MODULE}.py")
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        workspace = given.workspace or str(Path(folder, "workspace"))
        run_words = [f"{file}::{cell.CLASS}.{method}", *_flags(given, others, workspace)]
        parse(run_words, also=made)  # a wrong flag is found before a process starts
        answer = engine.run(run_words, keeps_files=bool(given.workspace))
    found = Results(answer.records)
    if all(trial.record.ran for trial in found):  # else the results say it
        for problem in answer.problems:
            say(problem)
    if given.to and assign:
        assign(given.to, found)
    return found


def _flags(given: argparse.Namespace, others: Sequence[str], workspace: str) -> list[str]:
    """Return the flags of the run: the cell's own, then those of `perfrun run` as they are."""
    found = [
        f"--workspace={workspace}",
        f"--benchmark_num_trials={given.trials}",
        f"--timeout={given.timeout or _TIMEOUT_S}",
    ]
    if given.label:
        found.append(f"--execution_label={given.label}")
    # Modules are imported from the current folder, as the notebook itself imports them. A container
    # is not shown that folder, and a comma would make two folders of it.
    here = str(parse_workspace("."))
    if "," not in here and not any(one.startswith(("--image", "--python_path")) for one in others):
        found.append(f"--python_path={here}")
    return [*found, *others]


def _assign(shell: Any, name: str, found: Results) -> None:
    shell.user_ns[name] = found
