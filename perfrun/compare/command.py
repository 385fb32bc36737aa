"""`perfrun compare BASE NEW`: judge a set of results against a baseline."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from perfrun.analysis import two_sets as rule
from perfrun.analysis.two_sets import Comparison
from perfrun.compare.comparison_table import (
    comparison_table,
    derived_lines,
    environment_lines,
    reason_lines,
)
from perfrun.compare.differences import GUARDED, Difference, differences, forbids, mixtures
from perfrun.compare.markdown import comment
from perfrun.compare.selection import Results
from perfrun.errors import UsageError
from perfrun.options.parsers import CommandParser, parse_regex, parse_share, parse_workspace
from perfrun.reports.terminal import Terminal
from perfrun.shown import say, write_json
from perfrun.summary.counted_trials import counted
from perfrun.summary.derived_metrics import (
    DerivedRatio,
    derived_ratios,
    derived_rows,
    judged_metrics,
)
from perfrun.summary.metrics import PEAK_RSS, THROUGHPUT, WALL_TIME
from perfrun.summary.record import SummaryRecord

_EPILOG = """\
BASE and NEW are each a folder (a workspace, an output folder, a result folder), a summary, or a
choice of the results in --workspace: a run, label, execution id, commit, date, FROM..TO, baseline,
or `last` for the latest run. The prefixes run:, label:, id:, hash:, date: and baseline: say which
of these a word is.

Exit status: 0 nothing is slower, 1 something is, 2 sets that cannot be had or not be compared.
All of it is in docs/guides/comparing.md.
"""


@dataclass(frozen=True, kw_only=True)
class CompareResult:
    """The comparisons of two sets, and the facts that surround them."""

    comparisons: tuple[Comparison, ...]
    differences: tuple[Difference, ...]
    only_base: tuple[str, ...]  # methods
    only_new: tuple[str, ...]
    trials: Mapping[str, int]  # numbers: failed, disturbed, and left_out for being disturbed
    derived: Mapping[tuple[str, str], tuple[DerivedRatio, ...]]  # by method and primary metric


@dataclass(frozen=True)
class Wanted:
    """The methods and metrics that are compared."""

    methods: re.Pattern[str] | None = None
    metrics: re.Pattern[str] | None = None

    def method(self, name: str) -> bool:
        return self.methods is None or bool(self.methods.search(name))

    def metric(self, name: str, *, is_primary: bool) -> bool:
        """Return True for a metric that is judged: a derived one only when it is named."""
        return is_primary if self.metrics is None else bool(self.metrics.fullmatch(name))


def compare_sets(
    base: Sequence[SummaryRecord],
    new: Sequence[SummaryRecord],
    *,
    wanted: Wanted | None = None,
    allowed: Iterable[str] = (),
    min_effect: float | None = None,
) -> CompareResult:
    """Compare the methods and metrics that both sets have.

    Raises UsageError for sets that have nothing in common, and for sets that differ in hardware,
    driver or batch size, unless that is allowed.
    """
    wanted = wanted or Wanted()
    names = [{r.method for r in records if wanted.method(r.method)} for records in (base, new)]
    both = names[0] & names[1]
    if not both:
        raise UsageError(f"no method is in both sets: {_listed(names[0])} and {_listed(names[1])}")
    sides = [[r for r in records if r.method in both] for records in (base, new)]
    differing = differences(*sides)
    _refuse(differing, sides, set(allowed))
    pairings = []
    derived: dict[tuple[str, str], tuple[DerivedRatio, ...]] = {}
    for method in sorted(both):
        ours, theirs = ([r for r in side if r.method == method] for side in sides)
        primaries = judged_metrics((*ours, *theirs))
        for metric, direction in _metrics(ours, theirs):
            values = _values(ours, metric), _values(theirs, metric)
            if wanted.metric(metric, is_primary=metric in primaries) and all(values):
                derived[method, metric] = derived_ratios(ours, theirs, metric)
                pairings.append(
                    rule.Pairing(
                        method=method,
                        metric=metric,
                        direction=direction,
                        base=values[0],
                        new=values[1],
                    )
                )
    if not pairings:
        raise UsageError("no metric of a method has a value in both sets: did its trials pass?")
    effect = rule.MIN_EFFECT if min_effect is None else min_effect
    return CompareResult(
        comparisons=rule.compare(pairings, min_effect=effect),
        differences=differing,
        only_base=tuple(sorted(names[0] - both)),
        only_new=tuple(sorted(names[1] - both)),
        trials=_counts(sides),
        derived=derived,
    )


def _metrics(
    ours: Sequence[SummaryRecord], theirs: Sequence[SummaryRecord]
) -> list[tuple[str, Any]]:
    """Return the metrics that both sets have, wall time first, with the newer set's direction."""
    here = {name for record in ours for name in record.values}
    there = {name: d for record in theirs for name, d in record.directions.items()}
    first = (WALL_TIME, THROUGHPUT)

    def place(name: str) -> tuple[int, str]:
        return (first.index(name) if name in first else 3 if name == PEAK_RSS else 2), name

    return [(name, there[name]) for name in sorted(here & there.keys(), key=place)]


def _values(records: Sequence[SummaryRecord], metric: str) -> tuple[float, ...]:
    known = [r for r in records if metric in r.values]
    return tuple(r.values[metric] for r in counted(known))


def _counts(sides: Sequence[Sequence[SummaryRecord]]) -> dict[str, int]:
    counts = {"failed": 0, "disturbed": 0, "left_out": 0}
    for side in sides:
        for method in {record.method for record in side}:
            own = [record for record in side if record.method == method]
            ran = [record for record in own if record.ran]
            counts["failed"] += len(own) - len(ran)
            counts["disturbed"] += sum(record.disturbed for record in ran)
            counts["left_out"] += len(ran) - len(counted(ran))
    return counts


def _refuse(
    differing: Sequence[Difference], sides: Sequence[Sequence[SummaryRecord]], allowed: set[str]
) -> None:
    wrong = [d for d in differing if d.kind not in allowed and forbids(d)]
    if wrong:
        kinds = list(dict.fromkeys(d.kind for d in wrong))
        what = "; ".join(d.text for d in wrong[:3]) + (" ..." if len(wrong) > 3 else "")
        raise UsageError(
            f"BASE and NEW differ in {' and '.join(kinds)}: {what}; "
            f"--allow_different={','.join(kinds)} compares them all the same"
        )
    for side, name in zip(sides, ("BASE", "NEW"), strict=True):
        mixed = [fact for fact in mixtures(side) if fact[0] not in allowed]
        if mixed:
            kind, what = mixed[0]
            raise UsageError(
                f"{name} holds trials of several kinds: they differ in {kind} ({what}); choose "
                f"some of them, or say --allow_different={kind}"
            )


def _listed(names: Iterable[str]) -> str:
    """Return the first five names, and the number of the others."""
    ordered = sorted(names)
    more = f" and {len(ordered) - 5} more" if len(ordered) > 5 else ""
    return (", ".join(ordered[:5]) or "none") + more


def parser() -> CommandParser:
    """Return the parser of the flags of `perfrun compare`."""
    about = "Compare two sets of results: ratio, interval, verdict, and what else differs."
    made = CommandParser("perfrun compare", about, _EPILOG)
    made.add_argument("base", metavar="BASE", help="the baseline")
    made.add_argument("new", metavar="NEW", help="the set that is judged")
    made.add_workspace()
    made.add_store()
    made.flag("--metrics", "REGEX", "compare only metrics whose whole name matches", parse_regex)
    made.flag("--methods", "REGEX", "compare only methods in whose name this is found", parse_regex)
    effect = "smaller differences are ignored (default 1%%)"
    made.flag("--min_effect", "PERCENT", effect, parse_share)
    made.flag("--allow_different", "LIST", f"compare although these differ: {', '.join(GUARDED)}")
    made.add_format(("table", "json", "markdown"))
    return made


def compare_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun compare`: 1 when something is slower."""
    given = parser().parse_args(list(argv))
    allowed = allowed_kinds(given.allow_different)
    wanted = Wanted(given.methods, given.metrics)
    results = Results(parse_workspace(given.workspace), _warn, given.store)
    base, new = results.select(given.base), results.select(given.new)
    compared = compare_sets(base, new, wanted=wanted, allowed=allowed, min_effect=given.min_effect)
    _warn_of_common(base, new)
    if given.format == "json":
        write_json(document_of(compared))
    elif given.format == "markdown":
        notes = lines_below(compared, ())
        words = ("perfrun", "compare", *argv)
        sys.stdout.write(comment(compared.comparisons, compared.differences, notes, words))
    else:
        show_compared(compared)
    return status_of(compared)


def status_of(compared: CompareResult) -> int:
    """Return the exit status: 1 when something is slower."""
    return 1 if any(one.verdict == "slower" for one in compared.comparisons) else 0


def document_of(compared: CompareResult) -> dict[str, Any]:
    """Return the document that `--format=json` prints."""
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
    """Return a comparison as the JSON document has it."""
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
    """Return a difference of the environment as the JSON document has it."""
    return {**asdict(found), "text": found.text}


def show_compared(compared: CompareResult) -> None:
    """Print the table, then derived metrics, differences and the trials that do not count."""
    found = compared.comparisons
    screen = Terminal(sys.stdout, sys.stderr, quiet=True)
    screen.table(comparison_table(found))
    screen.lines(["", *lines_below(compared, environment_lines(compared.differences))])


def lines_below(compared: CompareResult, environment: Sequence[str]) -> list[str]:
    """Return what a table is followed by; the lines about the environment come in their place."""
    found = compared.comparisons
    lines = [*reason_lines(found), *derived_lines(found, compared.derived), *environment]
    for names, where in ((compared.only_base, "BASE"), (compared.only_new, "NEW")):
        if names:
            lines.append(f"Only in {where}: {_listed(names)}.")
    return lines + _trial_lines(compared.trials)


def _trial_lines(counts: Mapping[str, int]) -> list[str]:
    lines = []
    if counts["failed"]:
        lines.append(f"Trials that failed: {counts['failed']}.")
    if counts["disturbed"]:
        counted = counts["disturbed"] - counts["left_out"]
        why = f"; {counted} count, since most trials of their method were" if counted else ""
        lines.append(f"Disturbed trials: {counts['left_out']} left out{why}.")
    return lines


def _warn_of_common(base: Sequence[SummaryRecord], new: Sequence[SummaryRecord]) -> None:
    common = len({record.uid for record in base} & {record.uid for record in new})
    if common:
        _warn(f"{common} trial{'s are' if common > 1 else ' is'} in both BASE and NEW")


def allowed_kinds(text: str | None) -> tuple[str, ...]:
    """Parse the comma list of `--allow_different`. Raises UsageError."""
    named = tuple(item.strip() for item in (text or "").split(",") if item.strip())
    for item in named:
        if item not in GUARDED:
            raise UsageError(f"--allow_different={item}: must be some of {', '.join(GUARDED)}")
    return named


def _warn(text: str) -> None:
    say(text)
