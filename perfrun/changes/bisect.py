"""`perfrun bisect`: find the commit, image or interpreter that changed a metric."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfrun.analysis import bisecting
from perfrun.analysis.bisecting import End, SearchRule
from perfrun.analysis.directions import Direction, worse_or_better
from perfrun.analysis.pairs import Judgement
from perfrun.changes.change_report import bisect_report
from perfrun.changes.search import Revision, SearchState, search, shown_name
from perfrun.changes.search_log import SearchLog, begin_search, unfinished_search
from perfrun.compare.command import difference_row
from perfrun.compare.differences import differences
from perfrun.compare.paired_runs import new_seed
from perfrun.errors import Interrupted, UsageError
from perfrun.options.command_line import parse
from perfrun.options.parsers import CommandParser, may_be_hash, parse_whole, split_at_dashes
from perfrun.options.plan import RepoSpec, RunPlan, refuse_baseline, split_items
from perfrun.reports.terminal import Terminal
from perfrun.run.journal import fingerprint
from perfrun.shown import say, write_json, write_lines
from perfrun.summary.document import to_json
from perfrun.summary.metrics import WALL_TIME
from perfrun.summary.record import SummaryRecord, read_record
from perfrun.summary.result_folder import write_whole

_EPILOG = """\
Everything else is flags of a run (docs/reference/cli.md). One of:
  perfrun bisect --benchmark_methods=pkg.mod.Class.method \\
      --git_repos='URL;main' --python_path=NAME --good=HASH --bad=HASH
  perfrun bisect --benchmark_methods=pkg.mod.Class.method \\
      --pythons=old/bin/python,...

Exit status: 0 one culprit found, 1 none (not reproduced, undecided, a range of revisions that do
not run), 2 wrong usage, or good or bad do not run, 130 interrupted (--resume goes on from there).
All of it is in docs/guides/bisecting.md.
"""


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The flags that say what is searched."""

    good: str | None
    bad: str | None
    images: str | None
    pythons: str | None
    repo: str | None  # the one to search, of several repositories


def parse_plan(words: Sequence[str], ends: Ends) -> RunPlan:
    """Parse the flags of the run, with the first image or interpreter of the list."""
    given = [name for name in ("images", "pythons") if getattr(ends, name)]
    if len(given) + bool(ends.good or ends.bad) != 1:
        raise UsageError(
            "perfrun bisect: say what is searched: --good=HASH and --bad=HASH of a repository in "
            "--git_repos, or --images=A,B,..., or --pythons=A,B,..., oldest first"
        )
    if not given and not (ends.good and ends.bad):
        raise UsageError("perfrun bisect: --good and --bad are both needed")
    for flag, text in (("--good", ends.good), ("--bad", ends.bad)):
        if text and not may_be_hash(text):
            # A branch moves, and --resume would then continue another search.
            raise UsageError(
                f"{flag}: {text!r} is not a commit hash (4 to 64 hex digits); "
                "`git rev-parse` says what a branch or tag stands for"
            )
    first = [flag for _, flag in _listed(ends)[:1]]
    plan = parse([*first, *words], also=parser())
    refuse_baseline(plan, "perfrun bisect")
    if plan.repetition.precision is not None or plan.num_trials != 1:
        raise UsageError(
            "perfrun bisect: pairs run until the search is decided; limit them by --max_pairs and "
            "--time_budget, not by --benchmark_num_trials or --precision"
        )
    if plan.repetition.max_reruns or plan.execution_id or plan.profiles:
        raise UsageError("perfrun bisect: takes no --max_reruns, --execution_id or --profile")
    if ends.good:
        _searched(plan, ends.repo)  # only for its error
    return plan


def revisions_of(
    plan: RunPlan, words: Sequence[str], ends: Ends, notify: Callable[[str], None]
) -> tuple[Revision, ...]:
    """Return all revisions, good first. Raises PerfrunError when they cannot be read."""
    if listed := _listed(ends):
        return tuple(
            Revision(name=name, plan=_labelled(parse([flag, *words]), name))
            for name, flag in listed
        )
    from perfrun.workspace.commits import commits_between

    repo = _searched(plan, ends.repo)
    assert ends.good is not None
    assert ends.bad is not None
    commits = commits_between(plan.workspace, repo, ends.good.lower(), ends.bad.lower(), notify)
    return tuple(
        Revision(
            name=commit.git_hash,
            plan=_labelled(_at(plan, repo, commit.git_hash), commit.git_hash[:12]),
            author=commit.author,
            date=commit.date,
            subject=commit.subject,
        )
        for commit in commits
    )


def _listed(ends: Ends) -> list[tuple[str, str]]:
    """Return the images or interpreters to search, each with its flag. Raises UsageError."""
    for kind, text in (("image", ends.images), ("python", ends.pythons)):
        if text:
            names = split_items(text)
            if len(names) < 2:
                raise UsageError(f"--{kind}s: name two or more, oldest first")
            if len(set(names)) < len(names):
                raise UsageError(f"--{kind}s: one of them is named twice")
            return [(name, f"--{kind}={name}") for name in names]
    return []


def _searched(plan: RunPlan, name: str | None) -> RepoSpec:
    """Return the repository whose commits are searched. Raises UsageError."""
    open_ = [r for r in plan.repos if (r.directory == name if name else r.git_hash is None)]
    if len(open_) != 1:
        there = ", ".join(repo.directory for repo in plan.repos) or "none"
        raise UsageError(
            "perfrun bisect: which repository? Leave the hash out of one in --git_repos and pin "
            f"the others, or say --repo=NAME; --git_repos has: {there}"
        )
    return open_[0]


def _at(plan: RunPlan, repo: RepoSpec, git_hash: str) -> RunPlan:
    pinned = replace(repo, git_hash=git_hash)
    repos = tuple(pinned if own is repo else own for own in plan.repos)
    shown = ",".join(
        ";".join((own.shown_url, own.branch or "", own.git_hash or "")) for own in repos
    )
    return replace(plan, repos=repos, flags={**plan.flags, "git_repos": shown})


def _labelled(plan: RunPlan, name: str) -> RunPlan:
    label = f"{plan.execution_label}/{name}" if plan.execution_label else f"bisect/{name}"
    return replace(plan, execution_label=label, flags={**plan.flags, "execution_label": label})


def parser() -> CommandParser:
    """Return the parser of the flags that a run does not have."""
    made = CommandParser(
        "perfrun bisect",
        "Find the revision that changed a metric: pairs of trials decide each step.",
        _EPILOG,
        "perfrun bisect (--good=HASH --bad=HASH | --images=A,B,... | --pythons=A,B,...) "
        "[flags of a run] [-- flags of the benchmark]",
    )
    made.flag("--good", "HASH", "commit from before the change")
    made.flag("--bad", "HASH", "commit that has it")
    made.flag("--repo", "NAME", "search its commits, if --git_repos pins several")
    made.flag("--images", "A,B,...", "images, the good one first")
    made.flag("--pythons", "A,B,...", "interpreters, the good one first")
    made.flag("--method", "METHOD", "the same as --benchmark_methods")
    made.flag("--metric", "NAME", "the metric that changed (default wall_time)")
    most = bisecting.MAX_PAIRS
    made.flag("--max_pairs", "N", f"most pairs of the search (default {most})", parse_whole, most)
    made.add_pair_rules(bisecting.SearchRule.min_effect)
    return made


@dataclass(frozen=True, kw_only=True)
class BisectPlan:
    """The command line of `perfrun bisect`."""

    plan: RunPlan
    words: tuple[str, ...]  # the flags of the run
    ends: Ends
    metric: str
    rule: SearchRule
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
        say("interrupted; `--resume` with the same flags goes on from here")
        return Interrupted.exit_code
    answer = _document(asked, revisions, log, found, found.end)
    record = log.folder / "answer.json"
    try:
        write_whole(record, to_json(answer))
    except OSError as error:
        screen.problem(f"{record} could not be written: {error.strerror}")
    if as_json:
        write_json(answer)
    else:
        write_lines(bisect_report(answer))
    return 0 if found.end.status == "found" else 1


def parse_bisect(argv: Sequence[str]) -> BisectPlan:
    """Parse the command line, without touching a file. Raises UsageError."""
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
    return BisectPlan(
        plan=parse_plan(words, ends),
        words=words,
        ends=ends,
        metric=given.metric or WALL_TIME,
        rule=bisecting.SearchRule(min_effect=given.min_effect, max_pairs=given.max_pairs),
        time_s=given.time_budget,
        seed=given.seed,
    )


def _log(asked: BisectPlan, revisions: Sequence[Revision], screen: Terminal) -> SearchLog:
    """Return the log of the search to continue, or of a new one."""
    names = [revision.name for revision in revisions]
    key = json.dumps([fingerprint(asked.plan), asked.metric, asked.rule.min_effect, names])
    mark = hashlib.sha256(key.encode()).hexdigest()
    searches = asked.plan.workspace / "bisect"
    if asked.plan.resume:
        log = unfinished_search(searches, mark)
        if log is not None:
            screen.note(f"--resume: going on after {len(log.pairs)} pairs")
            return log
        screen.note("--resume: no unfinished search like this one in the workspace; starting anew")
    return begin_search(searches, mark, names, new_seed() if asked.seed is None else asked.seed)


def _document(
    asked: BisectPlan, revisions: Sequence[Revision], log: SearchLog, found: SearchState, end: End
) -> dict[str, Any]:
    """Return the document that `--format=json` prints."""
    records = _records(log, end.after, end.last)
    directions = [r.directions[asked.metric] for side in records for r in side]
    direction: Direction = directions[-1] if directions else "none"
    judged = end.change or end.verified
    culprit = _row(revisions[end.last]) if end.status == "found" else None
    trials = Counter(index for pair in log.pairs for index in (pair.a, pair.b))
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
            {"name": revisions[index].name, "trials": trials[index]} for index in sorted(trials)
        ],
        "skipped": [
            {"name": revisions[index].name, "reason": log.broken[index]}
            for index in sorted(log.broken)
        ],
        "pairs_run": len(log.pairs),
        "trials_run": log.trials,
        "stopped_by": _stopped_by(found, end, len(log.pairs) >= asked.rule.max_pairs),
        "environment_differences": [
            difference_row(found) for found in (differences(*records) if all(records) else ())
        ],
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
    """Return the keys of a comparison; all are null where the two were not paired."""
    interval = judged.interval if judged else None
    return {
        "ratio": judged.ratio if judged else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "p_value": judged.p_value if judged else None,
        "pairs": judged.pairs if judged else 0,
    }


def _direction(judged: Judgement, direction: Direction) -> str | None:
    """Return `worse` or `better`, or `changed` for a metric without a direction."""
    if judged.verdict not in ("faster", "slower"):
        return None
    if direction == "none":
        return "changed"
    grew = judged.verdict == "slower"  # the search takes lower as better for every metric
    return worse_or_better(grew=grew, direction=direction)


def _stopped_by(found: SearchState, end: End, is_spent: bool) -> str:
    if end.status != "undecided":
        return "decided"
    if found.out_of_time:
        return "time_budget"
    return "max_pairs" if is_spent else "noise"


def _records(log: SearchLog, a: int, b: int) -> tuple[list[SummaryRecord], list[SummaryRecord]]:
    """Read the summaries of two revisions from all pairs that have one of them."""
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
