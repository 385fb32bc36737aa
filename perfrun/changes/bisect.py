"""`perfrun bisect`: find the commit, image, interpreter or version that changed a metric."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfrun.analysis import bisecting
from perfrun.analysis.bisecting import SearchRule
from perfrun.changes.bisect_results import Between, Given, between
from perfrun.changes.merged_order import Step, merged_steps
from perfrun.changes.package_versions import PackageVersion, parse_versions, versions_in
from perfrun.changes.search import Revision, search, shown_name
from perfrun.changes.search_answer import Asked, answer_of, estimate_of
from perfrun.changes.search_log import SearchLog, begin_search, unfinished_search
from perfrun.changes.search_report import bisect_report, estimate_line
from perfrun.compare.one_result import add_trust
from perfrun.compare.paired_runs import new_seed
from perfrun.errors import Interrupted, PerfrunError, UsageError
from perfrun.options.command_line import parse
from perfrun.options.flags import flags_of_a_run
from perfrun.options.parsers import CommandParser, may_be_hash, parse_whole, shown, split_at_dashes
from perfrun.options.plan import RepoSpec, RunPlan, refuse_baseline, split_items
from perfrun.options.store_address import FILE_NAME, parse_address
from perfrun.reports.terminal import Terminal
from perfrun.run.journal import fingerprint
from perfrun.shown import say, write_json, write_lines
from perfrun.summary.document import to_json
from perfrun.summary.metrics import WALL_TIME
from perfrun.summary.result_folder import write_whole

_EPILOG = """\
Everything else is flags of a run (docs/reference/cli.md). One of:
  perfrun bisect --benchmark_methods=pkg.mod.Class.method \\
      --git_repos='URL;main' --python_path=NAME --good=HASH --bad=HASH
  perfrun bisect --benchmark_methods=pkg.mod.Class.method \\
      --pythons=old/bin/python,...
  perfrun bisect GOOD BAD --metric=NAME
GOOD and BAD are two results, as for `perfrun show`: method, both commits of each repository,
interpreter or image, flags and variables are those on record.

Exit status: 0 one culprit found, 1 none (not reproduced, undecided, a range of revisions that do
not run), 2 wrong usage, or good or bad do not run, 130 interrupted (--resume goes on from there).
All of it is in docs/guides/bisecting.md.
"""


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The flags that say what is searched."""

    good: str | None  # a commit, or the commits of several repositories by their names
    bad: str | None
    images: str | None
    pythons: str | None
    repo: str | None  # the one to search, of several repositories
    versions: str | None = None  # of a package
    wheels: str | None = None  # the folder that they are installed from


def parse_plan(words: Sequence[str], ends: Ends) -> RunPlan:
    """Parse the flags of the run, with the first image or interpreter of the list."""
    given = [name for name in ("images", "pythons") if getattr(ends, name)]
    given += ["versions"] if ends.versions or ends.wheels else []
    if len(given) + bool(ends.good or ends.bad) != 1:
        raise UsageError(
            "perfrun bisect: say what is searched: --good=HASH and --bad=HASH of a repository in "
            "--git_repos, or --images=A,B,..., --pythons=A,B,... or --versions=NAME==V,W,..., "
            "oldest first, or --wheels=DIR"
        )
    if ends.versions:
        parse_versions(ends.versions)  # only for its error
    if not given and not (ends.good and ends.bad):
        raise UsageError("perfrun bisect: --good and --bad are both needed")
    _check_hashes(ends)
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
    if plan.container and given == ["versions"]:
        raise UsageError("--versions: environments are made on this machine: without --image")
    if ends.good:
        _searched(plan, ends)  # only for its error
    return plan


def _check_hashes(ends: Ends) -> None:
    for flag, text in (("--good", ends.good), ("--bad", ends.bad)):
        for name, git_hash in _commits(flag, text).items():
            if not may_be_hash(git_hash):
                # A branch moves, and --resume would then continue another search.
                of = f" of {name}" if name else ""
                raise UsageError(
                    f"{flag}: {git_hash!r}{of} is not a commit hash (4 to 64 hex digits); "
                    "`git rev-parse` says what a branch or tag stands for"
                )


def revisions_of(
    plan: RunPlan, words: Sequence[str], ends: Ends, notify: Callable[[str], None]
) -> tuple[Revision, ...]:
    """Return all revisions, good first. Raises PerfrunError when they cannot be read."""
    if listed := _listed(ends):
        return tuple(
            Revision(name=name, plan=labelled(parse([flag, *words]), name)) for name, flag in listed
        )
    if ends.versions or ends.wheels:
        return _packages(plan, ends)
    from perfrun.workspace.commits import commits_between

    searched = _searched(plan, ends)
    # Of several, one that stays where it is is pinned there. A hash may be short.
    moved = [one for one in searched if not _is_still(one)] or searched[:1]
    histories = {
        one.repo.directory: commits_between(plan.workspace, one.repo, one.good, one.bad, notify)
        for one in moved
    }
    still = {
        one.repo.directory: max(one.good, one.bad, key=len) for one in searched if one not in moved
    }
    return revisions_at(at_commits(plan, still), merged_steps(histories))


def _is_still(one: _Range) -> bool:
    return one.good.startswith(one.bad) or one.bad.startswith(one.good)


def _packages(plan: RunPlan, ends: Ends) -> tuple[Revision, ...]:
    """Return a revision for each version of a package. Raises UsageError."""
    wheels = Path(ends.wheels).absolute() if ends.wheels else None
    if ends.versions:
        found = parse_versions(ends.versions)
        if wheels is not None and not wheels.is_dir():
            raise UsageError(f"--wheels={wheels}: is no folder")
    else:
        assert wheels is not None
        found = versions_in(wheels)
    made = [
        PackageVersion(name=name, version=version, base=plan.python, wheels=wheels)
        for name, version in found
    ]
    return tuple(
        Revision(name=one.shown, plan=labelled(plan, one.shown), package=one) for one in made
    )


@dataclass(frozen=True, kw_only=True)
class _Range:
    """A repository, and the commits of it that are searched."""

    repo: RepoSpec
    good: str
    bad: str


def _commits(flag: str, text: str | None) -> dict[str, str]:
    """Parse `HASH`, whose repository has the name '', or `NAME=HASH,...`. Raises UsageError."""
    if not text or "=" not in text:
        return {"": text} if text else {}
    found: dict[str, str] = {}
    for item in split_items(text):
        name, equals, git_hash = (part.strip() for part in item.partition("="))
        if not (name and equals):
            raise UsageError(
                f"{flag}: {item!r} is not NAME=HASH, a checkout of --git_repos and its commit"
            )
        if name in found:
            raise UsageError(f"{flag}: {name!r} is named twice")
        found[name] = git_hash
    return found


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


def _searched(plan: RunPlan, ends: Ends) -> list[_Range]:
    """Return the repositories whose commits are searched. Raises UsageError."""
    good, bad = _commits("--good", ends.good), _commits("--bad", ends.bad)
    there = ", ".join(repo.directory for repo in plan.repos) or "none"
    if good.keys() != bad.keys():
        raise UsageError(
            "perfrun bisect: --good and --bad name the same repositories, each with its commit; "
            f"--git_repos has: {there}"
        )
    if "" not in good:
        return _named(plan, ends, good, bad, there)
    name = ends.repo
    open_ = [r for r in plan.repos if (r.directory == name if name else r.git_hash is None)]
    if len(open_) != 1:
        raise UsageError(
            "perfrun bisect: which repository? Leave the hash out of one in --git_repos and pin "
            "the others, or say --repo=NAME, or --good=NAME=HASH,... and --bad=NAME=HASH,... for "
            f"several; --git_repos has: {there}"
        )
    return [_Range(repo=open_[0], good=good[""].lower(), bad=bad[""].lower())]


def _named(
    plan: RunPlan, ends: Ends, good: Mapping[str, str], bad: Mapping[str, str], there: str
) -> list[_Range]:
    """Return the repositories that --good and --bad name. Raises UsageError."""
    if ends.repo:
        raise UsageError("--repo: --good and --bad name the repositories already")
    repos = {repo.directory: repo for repo in plan.repos}
    for name in good:
        if name not in repos:
            raise UsageError(f"--good: {name!r} is not in --git_repos, which has: {there}")
    for name, repo in repos.items():
        if name not in good and repo.git_hash is None:
            raise UsageError(
                f"--git_repos: {name} is neither pinned to a commit nor named by --good and --bad"
            )
    # In the order of --git_repos, so that the order of the flags does not change the search.
    return [
        _Range(repo=repos[name], good=good[name].lower(), bad=bad[name].lower())
        for name in repos
        if name in good
    ]


def revisions_at(plan: RunPlan, steps: Sequence[Step]) -> tuple[Revision, ...]:
    """Return a revision for each step."""
    return tuple(_revision(plan, step) for step in steps)


def _revision(plan: RunPlan, step: Step) -> Revision:
    commit = step.commit
    short = commit.git_hash[:12]
    name = f"{step.repository}-{short}" if len(step.commits) > 1 else short
    return Revision(
        name=commit.git_hash,
        plan=labelled(at_commits(plan, step.commits), name),
        author=commit.author,
        date=commit.date,
        subject=commit.subject,
        repository=step.repository,
        commits=step.commits,
        parents=commit.parents,
        pull_request=commit.pull_request,
        branch=commit.branch,
    )


def at_commits(plan: RunPlan, commits: Mapping[str, str]) -> RunPlan:
    """Return the plan with these checkouts (by name) at their commits."""
    repos = tuple(
        replace(own, git_hash=commits[own.directory]) if own.directory in commits else own
        for own in plan.repos
    )
    shown = ",".join(
        ";".join((own.shown_url, own.branch or "", own.git_hash or "")) for own in repos
    )
    return replace(plan, repos=repos, flags={**plan.flags, "git_repos": shown})


def labelled(plan: RunPlan, name: str) -> RunPlan:
    """Return the plan with a label that names the revision."""
    label = f"{plan.execution_label}/{name}" if plan.execution_label else f"bisect/{name}"
    return replace(plan, execution_label=label, flags={**plan.flags, "execution_label": label})


def parser() -> CommandParser:
    """Return the parser of the flags that a run does not have."""
    made = CommandParser(
        "perfrun bisect",
        "Find the revision that changed a metric: pairs of trials decide each step.",
        _EPILOG,
        "perfrun bisect (GOOD BAD | --good=HASH --bad=HASH | --images=A,B,... | "
        "--pythons=A,B,... | --versions=NAME==V,W,... | --wheels=DIR) "
        "[flags of a run] [-- flags of the benchmark]",
    )
    made.add_argument("results", metavar="GOOD BAD", nargs="*", help="two results, bad the later")
    made.flag("--good", "HASH", "commit from before the change; NAME=HASH,... of several")
    made.flag("--bad", "HASH", "commit that has it; of several repositories likewise")
    made.flag("--repo", "NAME", "search its commits, if --git_repos pins several")
    made.flag("--images", "A,B,...", "images, the good one first")
    made.flag("--pythons", "A,B,...", "interpreters, the good one first")
    made.flag("--versions", "NAME==V,W,...", "versions of a package, oldest first")
    made.flag("--wheels", "DIR", "folder of wheels, which alone the versions are installed from")
    made.flag("--method", "METHOD", "the same as --benchmark_methods")
    made.flag("--metric", "NAME", "the metric that changed (default wall_time)")
    most = bisecting.MAX_PAIRS
    made.flag("--max_pairs", "N", f"most pairs of the search (default {most})", parse_whole, most)
    made.switch("--allow_differences", "of two results: search though more than commits differs")
    add_trust(made)
    made.switch("--into_merges", "search the commits of the merge that is found, too")
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
    into_merges: bool = False
    trial_s: float | None = None  # of a trial, as earlier results in the index tell it

    @property
    def asked(self) -> Asked:
        """The figure whose change is searched for."""
        return Asked(
            method=self.plan.selectors[0].text,
            metric=self.metric,
            rule=self.rule,
            trial_s=self.trial_s,
        )


def bisect_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun bisect`."""
    asked = parse_bisect(argv)
    plan = asked.plan
    as_json = plan.output_format == "json"
    screen = Terminal(sys.stderr if as_json else sys.stdout, sys.stderr, quiet=plan.quiet)
    revisions = revisions_of(plan, asked.words, asked.ends, screen.note)
    asked = replace(asked, trial_s=_known_trial_s(plan))
    try:
        answer = _answer(asked, revisions, screen)
    except Interrupted:
        say("interrupted; `--resume` with the same flags goes on from here")
        return Interrupted.exit_code
    if as_json:
        write_json(answer)
    else:
        write_lines(bisect_report(answer))
    return 0 if answer["status"] == "found" else 1


def _answer(asked: BisectPlan, revisions: Sequence[Revision], screen: Terminal) -> dict[str, Any]:
    """Search, and then in the merge that was found. Raises Interrupted."""
    log = _log(asked, revisions, screen)
    screen.note(f"{len(revisions) - 1} revisions after {shown_name(revisions[0])}; {log.folder}")
    screen.note(estimate_line(estimate_of(asked.asked, len(revisions))))
    found = search(revisions, asked.metric, asked.rule, log, screen, asked.time_s)
    if found.end is None:
        raise Interrupted("interrupted")
    answer = answer_of(asked.asked, revisions, log, found)
    _keep(answer, log, screen)
    culprit = revisions[found.end.last]
    if asked.into_merges and found.end.status == "found" and len(culprit.parents) > 1:
        answer["inside"] = _inside(asked, culprit, log, screen)
        _keep(answer, log, screen)
    return answer


def _known_trial_s(plan: RunPlan) -> float | None:
    """Return the time of a trial by the index; None without one that knows it."""
    if not plan.store and not (plan.workspace / FILE_NAME).is_file():
        return None
    from perfrun.run.known_costs import known_costs

    name = plan.selectors[0].text
    try:
        address = parse_address(plan.store, plan.workspace)
        known = known_costs([name], plan.workspace, address)[name]
    except PerfrunError:
        return None  # the search does not need it
    return known.trial_s if known else None


def _keep(answer: Mapping[str, Any], log: SearchLog, screen: Terminal) -> None:
    record = log.folder / "answer.json"
    try:
        write_whole(record, to_json(answer))
    except OSError as error:
        screen.problem(f"{record} could not be written: {error.strerror}")


def _inside(
    asked: BisectPlan, merge: Revision, log: SearchLog, screen: Terminal
) -> dict[str, Any] | None:
    """Search the commits that a merge brought in, with what is left of pairs and time.

    None when there is nothing to search, or when it cannot be searched. Raises Interrupted.
    """
    from perfrun.workspace.commits import commits_inside

    plan = at_commits(asked.plan, merge.commits)
    [repo] = (one for one in plan.repos if one.directory == merge.repository)
    pairs, time_s = asked.rule.max_pairs - len(log.pairs), asked.time_s
    if time_s is not None:
        time_s -= log.spent_s
    if pairs < 1 or (time_s is not None and time_s <= 0):
        screen.note("into the merge: nothing is left of --max_pairs or --time_budget")
        return None
    own = replace(asked, plan=plan, rule=replace(asked.rule, max_pairs=pairs), time_s=time_s)
    answer = None
    for commits in commits_inside(plan.workspace, repo, merge.name, screen.note):
        screen.note(f"into the merge {shown_name(merge)}: {len(commits) - 1} commits")
        try:
            answer = _answer(
                own, revisions_at(plan, merged_steps({repo.directory: commits})), screen
            )
        except Interrupted:
            raise
        except PerfrunError as error:  # its ends do not run by themselves, for one
            screen.note(f"into the merge: not searched: {error.line}")
            continue
        if answer["status"] != "not_reproduced":
            break
    return answer


def parse_bisect(argv: Sequence[str], searched: Callable[[Given], Between] = between) -> BisectPlan:
    """Parse the command line. Raises UsageError.

    Where it names two results, `searched` reads them and says what is searched between them.
    """
    made = parser()
    own, after = split_at_dashes(argv)
    own, common = flags_of_a_run(own, made)
    given, others = made.parse_known_intermixed_args(own)
    common += others
    if given.method:
        common.append(f"--benchmark_methods={given.method}")
    words = (*common, *(("--", *after) if after else ()))
    asked = _results(given, common, after, made)
    found = searched(asked) if asked else None
    if found is not None:
        words = found.words
    ends = Ends(
        good=found.good if found else given.good or None,
        bad=found.bad if found else given.bad or None,
        images=given.images or None,
        pythons=given.pythons or None,
        repo=given.repo or None,
        versions=given.versions or None,
        wheels=given.wheels or None,
    )
    return BisectPlan(
        plan=parse_plan(words, ends),
        words=words,
        ends=ends,
        metric=given.metric or WALL_TIME,
        rule=bisecting.SearchRule(min_effect=given.min_effect, max_pairs=given.max_pairs),
        time_s=given.time_budget,
        seed=given.seed,
        into_merges=bool(given.into_merges),
    )


def _results(
    given: argparse.Namespace, common: Sequence[str], after: Sequence[str], made: CommandParser
) -> Given | None:
    """Return the two results that are named, and what is said with them; None where none is."""
    if not given.results:
        for flag in ("trust", "allow_differences"):
            if getattr(given, flag):
                raise UsageError(f"--{flag} is about two results: perfrun bisect GOOD BAD")
        return None
    if len(given.results) != 2:
        raise UsageError(
            "perfrun bisect: name two results, GOOD and BAD, or say what is searched by flags "
            f"({shown(given.results[0])} is no flag)"
        )
    for flag in ("good", "bad", "repo", "images", "pythons", "versions", "wheels"):
        if getattr(given, flag):
            raise UsageError(f"--{flag}: GOOD and BAD, two results, say what is searched")
    good, bad = given.results
    return Given(
        good=good,
        bad=bad,
        common=tuple(common),
        after=tuple(after),
        trust=given.trust,
        allows_differences=bool(given.allow_differences),
        parser=made,
    )


def _log(asked: BisectPlan, revisions: Sequence[Revision], screen: Terminal) -> SearchLog:
    """Return the log of the search to continue, or of a new one."""
    names = [revision.name for revision in revisions]
    orders = orders_of(revisions)
    said = [fingerprint(asked.plan), asked.metric, asked.rule.min_effect, names]
    wheels = asked.ends.wheels and str(Path(asked.ends.wheels).absolute())
    key = json.dumps([*said, *(one for one in (orders, wheels) if one)])
    mark = hashlib.sha256(key.encode()).hexdigest()
    searches = asked.plan.workspace / "bisect"
    if asked.plan.resume:
        # A search that has found a merge goes on inside it.
        log = unfinished_search(searches, mark, ended_too=asked.into_merges)
        if log is not None:
            screen.note(f"--resume: going on after {len(log.pairs)} pairs")
            return log
        screen.note("--resume: no unfinished search like this one in the workspace; starting anew")
    seed = new_seed() if asked.seed is None else asked.seed
    return begin_search(searches, mark, names, seed, orders)


def orders_of(revisions: Sequence[Revision]) -> dict[str, list[str]]:
    """Return the commits of each repository in its order; nothing unless several moved."""
    first = revisions[0].commits
    if len(first) < 2:
        return {}
    orders = {name: [git_hash] for name, git_hash in first.items()}
    for revision in revisions[1:]:
        assert revision.repository is not None
        orders[revision.repository].append(revision.name)
    return orders
