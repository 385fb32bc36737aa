"""`perfrun nightly --check`: look up what a suite names, as the night will.

Repositories and branches are asked for at their remotes, interpreters and images are started, and
methods are looked up where they lie, and flags of benchmarks in them. Nothing is fetched, so a
method of a checkout is not.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from perfrun.changes.creep import find_pin
from perfrun.dataclass import dataclass, replace
from perfrun.errors import PerfrunError
from perfrun.launchers.choice import make_launcher
from perfrun.launchers.launcher import Launcher
from perfrun.nightly.suite import Night, Suite, Unit, units
from perfrun.nightly.suite_file import plan_of
from perfrun.options.plan import MethodSelector, RunPlan, parse_repos
from perfrun.options.sweeps import Sweep, few_settings, narrowed, with_setting
from perfrun.run.environment import (
    FlagsRefused,
    Paths,
    Service,
    check_flags,
    describe,
    expand,
    wrong_names,
)
from perfrun.run.runner import import_paths
from perfrun.workspace.remote import why_unreachable

# What a suite does not have.
_FLAG, _AFTER = "--benchmark_methods: ", "flags after --: "


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What is wrong with the things that a suite names, and what could not be looked up."""

    problems: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()


def check(suite: Suite, notify: Callable[[str], None]) -> Checked:
    """Look up the repositories, environments and methods of a suite."""
    found = [*_repositories(suite), *_baseline(suite)]
    for unit in units(replace(suite, sweep=())):
        plan = plan_of(suite, unit, Night(night=suite.name))
        try:
            launcher = make_launcher(plan, "check", notify)
            with Service(launcher, {"action": "describe"}, Paths()) as service:
                describe(service)
            found.append(_methods(unit, plan, launcher))
            found.append(_flags(suite, unit, plan, launcher))
        except PerfrunError as error:
            found.append(Checked(problems=(f"{unit.name}: {error}",)))
    return _together(found)


def check_sweep(suite: Suite, notify: Callable[[str], None]) -> Checked:
    """Look up the flags of the sweep where the benchmarks and their interpreters lie here.

    What is not here may be on the machines that run the suite.
    """
    found = []
    for unit in units(replace(suite, sweep=())) if suite.sweep else ():
        plan = plan_of(suite, unit, Night(night=suite.name))
        unknown = f"flags of the sweep in {unit.environment.name}, which is not here"
        is_absent = plan.container is not None or shutil.which(plan.python) is None
        try:
            if is_absent:
                found.append(Checked(not_checked=(unknown,)))
            else:
                found.append(_flags(suite, unit, plan, make_launcher(plan, "check", notify)))
        except PerfrunError:
            found.append(Checked(not_checked=(unknown,)))
    return _together(found)


def _together(found: Sequence[Checked]) -> Checked:
    return Checked(
        problems=tuple(dict.fromkeys(line for one in found for line in one.problems)),
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
    paths, here = _here(plan)
    wrong = wrong_names(launcher, here, paths)
    expand(launcher, [one for one in here if one.method is None], paths)
    left = [one.text for one in plan.selectors if one not in here]
    return Checked(
        problems=tuple(f"{unit.name}: {text.removeprefix(_FLAG)}" for text in wrong),
        not_checked=tuple(f"{text}, which may lie in a checkout" for text in left),
    )


def _flags(suite: Suite, unit: Unit, plan: RunPlan, launcher: Launcher) -> Checked:
    """Look up the flags of the benchmarks of a unit, with all values of a sweep.

    Those of methods in checkouts are left out. Raises PerfrunError.
    """
    paths, here = _here(plan)
    texts = {one.text for one in here}
    modules: dict[Sweep, list[str]] = {}
    for method in unit.methods:
        if method.selector.text in texts:
            sweep = narrowed(suite.sweep, method.sweep)
            modules.setdefault(sweep, []).append(method.selector.module)
    problems = []
    for sweep, own in modules.items():
        every = [with_setting(unit.rules.benchmark_flags, one) for one in few_settings(sweep)]
        if not any(every):
            continue
        for module in dict.fromkeys(own):
            try:
                check_flags(launcher, [module], every[0], paths, every[1:])
            except FlagsRefused as error:
                problems.append(f"{unit.name}: flags: {str(error).removeprefix(_AFTER)}")
    return Checked(problems=tuple(problems))


def _here(plan: RunPlan) -> tuple[Paths, tuple[MethodSelector, ...]]:
    """Return where a plan's benchmarks lie that need no fetching, and their methods."""
    named = [item for item in plan.python_path if not plan.repos or Path(item).is_absolute()]
    paths = import_paths(replace(plan, python_path=tuple(named)))
    if not plan.repos:
        return paths, plan.selectors
    roots = (*paths.first, *paths.last)
    return paths, tuple(one for one in plan.selectors if _is_below(one.module, roots))


def _is_below(module: str, roots: Sequence[str]) -> bool:
    first = module.partition(".")[0]
    return any(Path(root, first).is_dir() or Path(root, f"{first}.py").is_file() for root in roots)
