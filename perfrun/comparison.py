"""`perfrun compare BASE NEW`: what two sets of results say of each other, and what else differs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfrun.arguments import CommandParser, parse_regex, parse_share, parse_workspace
from perfrun.derived import derived_rows
from perfrun.differences import GUARDED, Difference
from perfrun.errors import UsageError
from perfrun.reports.comparison import comparison_table, derived_lines, environment_line
from perfrun.reports.terminal import Terminal
from perfrun.selection import Results
from perfrun.sets import Compared, Wanted, compare_sets, listed

if TYPE_CHECKING:
    from perfrun.analysis.compare import Comparison

_EPILOG = """\
BASE and NEW are each a folder (a workspace, an output folder, a result folder), a summary, or of
the results in --workspace a run, label, execution id, commit, date or FROM..TO; run:, label:, id:,
hash: and date: say which.

Exit status: 0 nothing is slower, 1 something is, 2 sets that cannot be had or not be compared.
All of it is in docs/comparing.md.
"""


def parser() -> CommandParser:
    """The flags of `perfrun compare`."""
    about = "Compare two sets of results: ratio, interval, verdict, and what else differs."
    made = CommandParser("perfrun compare", about, _EPILOG)
    made.add_argument("base", metavar="BASE", help="the set that is compared with")
    made.add_argument("new", metavar="NEW", help="the set that is judged")
    made.add_workspace()
    made.add_store()
    made.flag("--metrics", "REGEX", "compare only metrics whose whole name matches", parse_regex)
    made.flag("--methods", "REGEX", "compare only methods in whose name this is found", parse_regex)
    effect = "differences below this are none (default 1%%)"
    made.flag("--min_effect", "PERCENT", effect, parse_share)
    made.flag("--allow_different", "LIST", f"compare although these differ: {', '.join(GUARDED)}")
    made.add_format()
    return made


def compare_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun compare`: 1 when something is slower."""
    given = parser().parse_args(list(argv))
    allowed = _allowed(given.allow_different)
    wanted = Wanted(given.methods, given.metrics)
    results = Results(parse_workspace(given.workspace), _say, given.store)
    base, new = results.select(given.base), results.select(given.new)
    compared = compare_sets(base, new, wanted=wanted, allowed=allowed, min_effect=given.min_effect)
    if given.format == "json":
        sys.stdout.write(json.dumps(document(compared)) + "\n")
    else:
        show(compared)
    return 1 if any(c.verdict == "slower" for c in compared.comparisons) else 0


def document(compared: Compared) -> dict[str, Any]:
    """What `--format=json` prints."""
    return {
        "comparisons": [
            {
                **comparison_row(found),
                "derived": derived_rows(compared.derived.get((found.method, found.metric), ())),
            }
            for found in compared.comparisons
        ],
        "environment_differences": [difference_row(found) for found in compared.differences],
        "only_in_base": list(compared.only_base),
        "only_in_new": list(compared.only_new),
        "trials": dict(compared.trials),
    }


def comparison_row(found: Comparison) -> dict[str, Any]:
    """One row of that document."""
    return {
        "method": found.method,
        "metric": found.metric,
        "ratio": found.ratio,
        "low": found.interval.low if found.interval else None,
        "high": found.interval.high if found.interval else None,
        "verdict": found.verdict,
        "n_base": found.n_base,
        "n_new": found.n_new,
        "direction": found.direction,
        "base_median": found.base_median,
        "new_median": found.new_median,
        "cliffs_delta": found.cliffs_delta,
        "p_value": found.p_value,
        "detectable_effect": found.detectable_effect,
        "margin": found.margin,
        "reason": found.reason,
    }


def difference_row(found: Difference) -> dict[str, Any]:
    """One difference of the environment, in that document."""
    facts = {"kind": found.kind, "name": found.name, "base": found.base, "new": found.new}
    return {**facts, "text": found.text}


def show(compared: Compared) -> None:
    """Print the table, and below it what else there is to know."""
    found = compared.comparisons
    screen = Terminal(sys.stdout, sys.stderr, quiet=True)
    screen.table(comparison_table(found))
    lines = [*derived_lines(found, compared.derived), environment_line(compared.differences)]
    for names, where in ((compared.only_base, "BASE"), (compared.only_new, "NEW")):
        if names:
            lines.append(f"Only in {where}: {listed(names)}.")
    lines += _trial_lines(compared.trials)
    sys.stdout.write("\n" + "\n".join(lines) + "\n")


def _trial_lines(counts: Mapping[str, int]) -> list[str]:
    lines = []
    if counts["failed"]:
        lines.append(f"Trials that failed: {counts['failed']}.")
    if counts["disturbed"]:
        counted = counts["disturbed"] - counts["left_out"]
        why = f"; {counted} count, since most trials of their method were" if counted else ""
        lines.append(f"Disturbed trials: {counts['left_out']} left out{why}.")
    return lines


def _allowed(text: str | None) -> tuple[str, ...]:
    named = tuple(item.strip() for item in (text or "").split(",") if item.strip())
    for item in named:
        if item not in GUARDED:
            raise UsageError(f"--allow_different={item}: must be some of {', '.join(GUARDED)}")
    return named


def _say(text: str) -> None:
    sys.stderr.write(f"perfrun: {text}\n")
