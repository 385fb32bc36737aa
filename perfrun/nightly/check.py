"""`perfrun nightly --check`: look up what a suite names, as the night will.

Repositories and branches are asked for at their remotes, interpreters and images are started, and
methods are looked up where they lie. Nothing is fetched, so a method of a checkout is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from perfrun.changes.creep import find_pin
from perfrun.dataclass import dataclass, replace
from perfrun.errors import PerfrunError
from perfrun.launchers.choice import make_launcher
from perfrun.launchers.launcher import Launcher
from perfrun.nightly.suite import Night, Suite, Unit, units
from perfrun.nightly.suite_file import plan_of
from perfrun.options.plan import RunPlan, parse_repos
from perfrun.run.environment import Paths, Service, describe, expand, wrong_names
from perfrun.run.runner import import_paths
from perfrun.workspace.remote import why_unreachable

_FLAG = "--benchmark_methods: "  # which a suite does not have


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What is wrong with the things that a suite names, and what could not be looked up."""

    problems: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()


def check(suite: Suite, notify: Callable[[str], None]) -> Checked:
    """Look up the repositories, environments and methods of a suite."""
    found = [*_repositories(suite), *_baseline(suite)]
    for unit in units(suite):
        plan = plan_of(suite, unit, Night(night=suite.name))
        try:
            launcher = make_launcher(plan, "check", notify)
            with Service(launcher, {"action": "describe"}, Paths()) as service:
                describe(service)
            found.append(_methods(unit, plan, launcher))
        except PerfrunError as error:
            found.append(Checked(problems=(f"{unit.name}: {error}",)))
    return Checked(
        problems=tuple(line for one in found for line in one.problems),
        not_checked=tuple(dict.fromkeys(line for one in found for line in one.not_checked)),
    )


def _repositories(suite: Suite) -> list[Checked]:
    found = []
    for pin in suite.repos:
        (repo,) = parse_repos(pin.item())
        why = why_unreachable(repo)
        if why:
            found.append(Checked(problems=(f"{repo.shown_url}: {why}",)))
        elif repo.git_hash:
            text = f"commit {repo.git_hash} of {repo.shown_url}, which only a fetch can tell"
            found.append(Checked(not_checked=(text,)))
    return found


def _baseline(suite: Suite) -> list[Checked]:
    if suite.creep is None:
        return []
    try:
        find_pin(suite.creep, suite.workspace)
    except PerfrunError as error:
        return [Checked(problems=(f"creep_baseline: {error}",))]
    return []


def _methods(unit: Unit, plan: RunPlan, launcher: Launcher) -> Checked:
    """Look up the methods of a unit that do not lie in a checkout. Raises PerfrunError."""
    named = [item for item in plan.python_path if not plan.repos or Path(item).is_absolute()]
    paths = import_paths(replace(plan, python_path=tuple(named)))
    roots = (*paths.first, *paths.last)
    here = plan.selectors
    if plan.repos:
        here = tuple(one for one in here if _is_below(one.module, roots))
    wrong = wrong_names(launcher, here, paths)
    expand(launcher, [one for one in here if one.method is None], paths)
    left = [one.text for one in plan.selectors if one not in here]
    return Checked(
        problems=tuple(f"{unit.name}: {text.removeprefix(_FLAG)}" for text in wrong),
        not_checked=tuple(f"{text}, which may lie in a checkout" for text in left),
    )


def _is_below(module: str, roots: Sequence[str]) -> bool:
    first = module.partition(".")[0]
    return any(Path(root, first).is_dir() or Path(root, f"{first}.py").is_file() for root in roots)
