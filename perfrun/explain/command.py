"""`perfrun explain BASE NEW`: why a method takes another time than before."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from perfrun.analysis.attribution import FEWEST_TURNS
from perfrun.errors import Interrupted
from perfrun.explain.answer import Answer, answer_of, document_of
from perfrun.explain.arms import Given, Sides, sides_of
from perfrun.explain.explain_report import markdown_report, show
from perfrun.explain.turns import ExplainFailed, frameworks_of, run_turns
from perfrun.options.flags import flags_of_a_run
from perfrun.options.parsers import (
    CommandParser,
    parse_duration,
    parse_whole,
    split_at_dashes,
)
from perfrun.reports.terminal import Terminal
from perfrun.shown import say, write_json
from perfrun.summary.document import to_json
from perfrun.summary.metrics import WALL_TIME
from perfrun.summary.record import SummaryRecord
from perfrun.summary.result_folder import write_whole

TURNS = 10
_EXIT_CODES = {"interrupted": Interrupted.exit_code, "failed": ExplainFailed.exit_code}
FORMATS = ("table", "json", "markdown")
_EPILOG = """\
BASE and NEW are commits of the repository in --git_repos whose hash is left out; without
--git_repos they are saved results, as in `perfrun compare`, which are run again. All other flags
are flags of a run and apply to both sides. One of:
  perfrun explain 0123abcd 89abcdef --git_repos='URL;main' --python_path=NAME \\
      --benchmark_methods=pkg.mod.Class.method
  perfrun explain baseline:v1.0 last
  perfrun explain --a='--python=old/bin/python' --b='--python=new/bin/python' \\
      --benchmark_methods=pkg.mod.Class.method

Exit status: 0 it ran, whatever it found, 1 the trials of a side fail, 2 wrong usage, 130
interrupted. With 1 and 130 the complete turns are shown. All of it is in docs/guides/explaining.md.
"""


def parser() -> CommandParser:
    """Return the parser of the flags that a run does not have."""
    made = CommandParser(
        "perfrun explain",
        "Say why NEW takes another time than BASE: profiles of both, in turns.",
        _EPILOG,
        "perfrun explain (BASE NEW | --a=FLAGS --b=FLAGS) [flags of a run] "
        "[-- flags of the benchmark]",
    )
    made.add_argument("base", metavar="BASE", nargs="?", help="the side that is compared with")
    made.add_argument("new", metavar="NEW", nargs="?", help="the side that is explained")
    made.flag("--a", "FLAGS", "flags of the base, quoted as for a shell", default="")
    made.flag("--b", "FLAGS", "flags of the new side", default="")
    made.flag("--repo", "NAME", "BASE and NEW are its commits, if --git_repos pins several")
    fewest = partial(parse_whole, least=FEWEST_TURNS)
    made.flag("--turns", "N", f"turns of trials and profiles (default {TURNS})", fewest, TURNS)
    made.flag("--time_budget", "SECONDS", "begin no turn beyond (20m, 1h)", parse_duration)
    made.flag("--seed", "N", "of the order (default: random)", partial(parse_whole, least=0))
    made.add_format(FORMATS)
    return made


def parse_explain(argv: Sequence[str]) -> tuple[Given, Any]:
    """Parse the command line, without touching a file. Raises UsageError."""
    made = parser()
    words, after = split_at_dashes(argv)
    words, common = flags_of_a_run(words, made)
    own, others = made.parse_known_intermixed_args(words)
    given = Given(
        base=own.base,
        new=own.new,
        a=own.a or "",
        b=own.b or "",
        repo=own.repo,
        common=(*common, *others),
        after=tuple(after),
        parser=made,
    )
    return given, own


def explain_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun explain`."""
    given, own = parse_explain(argv)
    is_table = own.format == "table"
    sides = sides_of(given, say)
    plan = sides.plans["a"]
    screen = Terminal(
        sys.stdout if is_table else sys.stderr, sys.stderr, quiet=plan.quiet, verbose=plan.verbose
    )
    turns = run_turns(
        sides.plans,
        partial(_kinds, sides.kinds),
        own.turns,
        WALL_TIME,
        screen,
        seed=own.seed,
        time_s=own.time_budget,
    )
    if turns.failure:
        say(f"stopped after {len(turns.pairs)} turns: {turns.failure}")
    if turns.stopped_by == "interrupted":
        say(f"interrupted after {len(turns.pairs)} turns")
    if turns.pairs:
        answer = answer_of(turns, WALL_TIME, {name: sides.names[name] for name in ("a", "b")})
        _print(own.format, answer, _save(sides, answer, screen), screen)
    elif turns.stopped_by != "interrupted":
        raise ExplainFailed(f"no turn of {turns.method} was complete")
    return _EXIT_CODES.get(turns.stopped_by, 0)


def _kinds(asked: Sequence[str], record: SummaryRecord) -> tuple[str, ...]:
    """Return the kinds of profile: those that were asked for, or that suit the method."""
    if asked:
        return tuple(asked)
    from shutil import which

    names = frameworks_of(record)
    operators = [name for name in ("torch", "tensorflow") if name in names]
    counters = ["counters"] if which("perf") else []
    return (*operators, "cprofile", "memory_lines", *counters)


def _save(sides: Sides, answer: Answer, screen: Terminal) -> str | None:
    """Write the document beside the workspaces of the sides; return its path."""
    name = Path(answer.turns.pairs[0].a.path).parent.name
    path = sides.workspace / "explain" / f"{name}.json"
    try:
        write_whole(path, to_json(document_of(answer)))
    except OSError as error:
        screen.problem(f"{path} could not be written: {error.strerror}")
        return None
    return str(path)


def _print(style: str, answer: Answer, record: str | None, screen: Terminal) -> None:
    if style == "json":
        write_json({**document_of(answer), "record": record})
    elif style == "markdown":
        sys.stdout.write(markdown_report(answer, record))
    else:
        show(answer, record, screen)
