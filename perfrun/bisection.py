"""`perfrun bisect`: which commit, image or interpreter changed a figure, by pairs of trials."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun.analysis import bisecting
from perfrun.analysis.bisecting import End, Rule
from perfrun.analysis.directions import Direction
from perfrun.analysis.pairs import Judgement
from perfrun.arguments import CommandParser, parse_whole, split_at_dashes
from perfrun.comparison import difference_row
from perfrun.differences import Difference, differences
from perfrun.document import to_json
from perfrun.errors import Interrupted
from perfrun.journal import fingerprint
from perfrun.plan import RunPlan
from perfrun.reports.bisection import report
from perfrun.reports.terminal import Terminal
from perfrun.revisions import Ends, parse_plan, revisions_of
from perfrun.searching import Found, Revision, new_seed, search, shown_name
from perfrun.searchlog import SearchLog, begin, unfinished
from perfrun.storage import write_whole
from perfrun.summary_metrics import WALL_TIME
from perfrun.summary_record import SummaryRecord, read_record

_EPILOG = """\
Everything else is flags of a run (docs/cli.md). One of:
  perfrun bisect --benchmark_methods=pkg.mod.Class.method --git_repos='URL;main' \\
      --python_path=NAME --good=HASH --bad=HASH
  perfrun bisect --benchmark_methods=pkg.mod.Class.method --pythons=old/bin/python,...

Exit status: 0 one culprit found, 1 none (not reproduced, undecided, a range of revisions that do
not run), 2 wrong usage, or good or bad do not run, 130 interrupted (--resume goes on from there).
All of it is in docs/bisecting.md.
"""


def parser() -> CommandParser:
    """The flags of `perfrun bisect` that are not a run's."""
    from perfrun.analysis import bisecting  # numpy

    made = CommandParser(
        "perfrun bisect",
        "Find the revision that changed a figure, with pairs of trials as oracle.",
        _EPILOG,
        "perfrun bisect (--good=HASH --bad=HASH | --images=A,B,... | --pythons=A,B,...) "
        "[flags of a run] [-- flags of the benchmark]",
    )
    made.flag("--good", "HASH", "commit from before the change")
    made.flag("--bad", "HASH", "commit that has it")
    made.flag("--repo", "NAME", "whose commits, if --git_repos pins several")
    made.flag("--images", "A,B,...", "images, the good one first")
    made.flag("--pythons", "A,B,...", "interpreters, the good one first")
    made.flag("--method", "METHOD", "the same as --benchmark_methods")
    made.flag("--metric", "NAME", "what changed (default wall_time)")
    most = bisecting.MAX_PAIRS
    made.flag("--max_pairs", "N", f"most pairs of the search (default {most})", parse_whole, most)
    made.add_pair_rules(bisecting.Rule.min_effect)
    return made


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The command line of `perfrun bisect`."""

    plan: RunPlan
    words: tuple[str, ...]  # of the run
    ends: Ends
    metric: str
    rule: Rule
    time_s: float | None
    seed: int | None


def bisect_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun bisect`."""
    asked = parse_bisect(argv)
    plan = asked.plan
    as_json = plan.output_format == "json"
    screen = Terminal(sys.stderr if as_json else sys.stdout, sys.stderr, quiet=plan.quiet)
    revisions = revisions_of(plan, asked.words, asked.ends, screen.note)
    log = _log(asked, revisions, screen)
    screen.note(f"{len(revisions) - 1} revisions after {shown_name(revisions[0])}; {log.folder}")
    found = search(revisions, asked.metric, asked.rule, log, screen, asked.time_s)
    if found.end is None:
        sys.stderr.write("perfrun: interrupted; `--resume` with the same flags goes on from here\n")
        return Interrupted.exit_code
    answer = document(asked, revisions, log, found, found.end)
    record = log.folder / "answer.json"
    try:
        write_whole(record, to_json(answer))
    except OSError as error:
        screen.note(f"{record} could not be written: {error.strerror}")
    if as_json:
        sys.stdout.write(json.dumps(answer) + "\n")
    else:
        sys.stdout.write("\n".join(report(answer)) + "\n")
    return 0 if found.end.status == "found" else 1


def parse_bisect(argv: Sequence[str]) -> Asked:
    """Parse the command line. Raises UsageError; touches nothing."""

    own, after = split_at_dashes(argv)
    given, common = parser().parse_known_args(own)
    if given.method:
        common.append(f"--benchmark_methods={given.method}")
    words = (*common, *(("--", *after) if after else ()))
    ends = Ends(
        good=given.good or None,
        bad=given.bad or None,
        images=given.images or None,
        pythons=given.pythons or None,
        repo=given.repo or None,
    )
    return Asked(
        plan=parse_plan(words, ends),
        words=words,
        ends=ends,
        metric=given.metric or WALL_TIME,
        rule=bisecting.Rule(min_effect=given.min_effect, max_pairs=given.max_pairs),
        time_s=given.time_budget,
        seed=given.seed,
    )


def _log(asked: Asked, revisions: Sequence[Revision], screen: Terminal) -> SearchLog:
    """The search that goes on, or a new one."""
    names = [revision.name for revision in revisions]
    key = json.dumps([fingerprint(asked.plan), asked.metric, asked.rule.min_effect, names])
    mark = hashlib.sha256(key.encode()).hexdigest()
    searches = asked.plan.workspace / "bisect"
    if asked.plan.resume:
        log = unfinished(searches, mark)
        if log is not None:
            screen.note(f"--resume: going on after {len(log.pairs)} pairs")
            return log
        screen.note("--resume: no unfinished search like this one in the workspace; starting anew")
    return begin(searches, mark, names, new_seed() if asked.seed is None else asked.seed)


def document(
    asked: Asked, revisions: Sequence[Revision], log: SearchLog, found: Found, end: End
) -> dict[str, Any]:
    """What `--format=json` prints."""
    readings = _readings(log, end.after, end.last)
    directions = [r.directions[asked.metric] for side in readings for r in side]
    direction: Direction = directions[-1] if directions else "none"
    judged = end.change or end.verified
    culprit = _row(revisions[end.last]) if end.status == "found" else None
    of_log: dict[int, int] = {}
    for pair in log.pairs:
        for index in (pair.a, pair.b):
            of_log[index] = of_log.get(index, 0) + 1
    return {
        "status": end.status,
        "method": asked.plan.selectors[0].text,
        "metric": asked.metric,
        "direction": _direction(judged, direction),
        "culprit": culprit,
        "previous": _row(revisions[end.after]),
        "candidates": [_row(one) for one in revisions[end.after + 1 : end.last + 1]],
        "probability": end.probability,
        **_judged(end.change),
        "good_against_bad": _judged(end.verified),
        "revisions": len(revisions),
        "tested": [
            {"name": revisions[index].name, "trials": of_log[index]} for index in sorted(of_log)
        ],
        "skipped": [
            {"name": revisions[index].name, "reason": log.broken[index]}
            for index in sorted(log.broken)
        ],
        "pairs_run": len(log.pairs),
        "trials_run": log.trials,
        "stopped_by": _stopped_by(found, end, len(log.pairs) >= asked.rule.max_pairs),
        "environment_differences": [difference_row(d) for d in _differences(*readings)],
        "seed": log.seed,
        "folder": str(log.folder),
    }


def _row(revision: Revision) -> dict[str, Any]:
    return {
        "name": revision.name,
        "author": revision.author,
        "date": revision.date,
        "subject": revision.subject,
    }


def _judged(judged: Judgement | None) -> dict[str, Any]:
    """The same keys as a comparison's; all null where the two were not paired."""
    interval = judged.interval if judged else None
    return {
        "ratio": judged.ratio if judged else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "p_value": judged.p_value if judged else None,
        "pairs": judged.pairs if judged else 0,
    }


def _direction(judged: Judgement, direction: Direction) -> str | None:
    """`worse` or `better`; `changed` where nobody knows which of them it is."""
    if judged.verdict not in ("faster", "slower"):
        return None
    if direction == "none":
        return "changed"
    grew = judged.verdict == "slower"  # the search takes every metric for one of which less is good
    return "worse" if grew == (direction == "lower") else "better"


def _stopped_by(found: Found, end: End, is_spent: bool) -> str:
    if end.status != "undecided":
        return "decided"
    if found.out_of_time:
        return "time_budget"
    return "max_pairs" if is_spent else "noise"


def _readings(log: SearchLog, a: int, b: int) -> tuple[list[SummaryRecord], list[SummaryRecord]]:
    sides: tuple[list[SummaryRecord], list[SummaryRecord]] = ([], [])
    for pair in log.pairs:
        for side, index in zip(sides, (a, b), strict=True):
            for own, path in zip((pair.a, pair.b), pair.summaries, strict=True):
                if own == index:
                    try:
                        side.append(read_record(Path(path)))
                    except (OSError, ValueError):
                        continue  # removed since
    return sides


def _differences(a: Sequence[SummaryRecord], b: Sequence[SummaryRecord]) -> tuple[Difference, ...]:
    return differences(a, b) if a and b else ()
