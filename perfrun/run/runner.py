"""The run: put code and data in place, then hand over to the rounds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfrun.dataclass import asdict
from perfrun.errors import UsageError
from perfrun.launchers.choice import make_launcher
from perfrun.launchers.launcher import SHIPPED
from perfrun.options.plan import RunPlan
from perfrun.run import environment
from perfrun.run.environment import Paths, Service
from perfrun.run.interruption import Interruption, taking_signals
from perfrun.run.journal import UnfinishedRun
from perfrun.run.progress import Screen
from perfrun.summary.estimates import RunResult
from perfrun.summary.storage import Storage
from perfrun.worker.procfs import adopt_orphans

if TYPE_CHECKING:
    from perfrun.run.journal import UnfinishedRun
    from perfrun.run.rounds import Rounds
    from perfrun.workspace.checkouts import Checkout

PACKAGE = Path(__file__).resolve().parent.parent


def run(plan: RunPlan, screen: Screen, interruption: Interruption | None = None) -> RunResult:
    """Carry out the plan. Raises PerfrunError for what stops it before the first trial.

    `interruption` is that of a caller that has taken over the signals for more than this run.
    """
    adopt_orphans()
    with taking_signals(interruption) as ours:
        with ours.allowed(), ExitStack() as stack:
            trials = prepare(plan, screen, ours, stack)
            # From here on nothing is cut short: what was measured is written first.
            stack_of_run = stack.pop_all()
        with stack_of_run:
            return trials.run()


def prepare(
    plan: RunPlan,
    screen: Screen,
    interruption: Interruption,
    stack: ExitStack,
    seed: int | None = None,
    like: Rounds | None = None,
) -> Rounds:
    """Put everything in place for the first trial; `stack` holds it there.

    `seed` is for who orders the trials of several plans together; a run that goes on has its own.
    `like` is a run in place, of the same workspace and environment, of which only values of flags
    after `--` differ: its commits are taken, and the flags are not checked once more.
    """
    past = _past(plan, screen)
    run_id = past.run_id if past else _new_run_id()
    storage = Storage(plan.output, run_id, screen.note)
    _open(storage, plan, stack)
    launcher = make_launcher(plan, run_id, screen.note)
    with Service(launcher, {"action": "describe"}, Paths()) as service:
        # Meanwhile, what has to be done anyway: half of a run's imports, for the first.
        from perfrun.probes.machine import machine
        from perfrun.run.journal import Journal
        from perfrun.run.rounds import Rounds
        from perfrun.run.trial import Surroundings
        from perfrun.store.recorder import make_recorder
        from perfrun.summary.assemble import RunFacts
        from perfrun.workspace.worktree import harness_git_info

        screen.prepare()
        this_machine = machine()
        harness_info = harness_git_info(PACKAGE.parent)
        described = environment.describe(service)
        setup_info = environment.setup_info(service)
    if not harness_info and plan.container is None:  # then we are in that image ourselves
        harness_info = environment.image_harness_info(setup_info)
    data = _with_data(plan, screen)
    checkouts = stack.enter_context(_checkouts(plan, past, like, screen)) if plan.repos else ()
    facts = RunFacts(
        plan=plan,
        run_id=run_id,
        machine=this_machine,
        harness_info=harness_info,
        environment=described,
        env_vars={k: v for k, v in os.environ.items() if k.startswith("PERFZERO_")},
        setup_info=setup_info,
        checkouts=tuple(_plain(asdict(checkout)) for checkout in checkouts),
        data=data,
        container=launcher.container_facts(),
    )
    paths = import_paths(plan)
    methods = environment.expand(launcher, plan.selectors, paths, plan.allow_empty)
    if plan.benchmark_flags and like is None:  # it would import the framework again
        modules = [method.module for method in methods]
        environment.check_flags(launcher, modules, plan.benchmark_flags, paths)
    path = past.path if past else plan.workspace / "runs" / f"{run_id}.jsonl"
    journal = Journal(path, screen.note)
    seed = _seed(plan, past, seed)
    if not past:
        journal.begin(plan, {c.directory: c.git_hash for c in checkouts}, seed)
    if not stack.enter_context(journal.held()):
        raise UsageError(f"--resume: another perfrun has just gone on with run {run_id}")
    recorder = make_recorder(plan, screen.note)
    around = Surroundings(
        launcher=launcher,
        paths=paths,
        storage=storage,
        streams=(screen.stdout, screen.stderr),
        interruption=interruption,
    )
    return Rounds(facts, methods, around, journal, past, screen, seed, recorder)


def import_paths(plan: RunPlan) -> Paths:
    """Return what goes on the worker's path; raise for a `--python_path` that is not there."""
    first = []
    for item in plan.python_path:
        path = plan.site_packages / item  # an absolute item stays itself, as in PerfZero
        if not path.is_dir():
            there = sorted(p.name for p in plan.site_packages.glob("*") if p.is_dir())
            raise UsageError(
                f"--python_path: {path} is not a folder; site-packages has: "
                f"{', '.join(there) or 'nothing'}"
            )
        first.append(str(path))
    last = (str(SHIPPED),) if (SHIPPED / "benchmarks").is_dir() else ()
    return Paths(first=tuple(first), last=last)


def _open(storage: Storage, plan: RunPlan, stack: ExitStack) -> None:
    try:
        storage.open()
    except OSError as error:
        raise UsageError(f"--workspace={plan.workspace}: cannot be written: {error}") from None
    stack.callback(storage.close)


def _past(plan: RunPlan, screen: Screen) -> UnfinishedRun | None:
    if not plan.resume:
        return None
    from perfrun.run.journal import unfinished

    past = unfinished(plan.workspace / "runs", plan)
    if past is None:
        screen.note("--resume: no unfinished run like this one in the workspace; starting anew")
    else:
        screen.note(f"--resume: going on with run {past.run_id}; {len(past.finished)} finished")
    return past


def _with_data(plan: RunPlan, screen: Screen) -> tuple[Mapping[str, Any], ...]:
    if not plan.data:
        return ()
    from perfrun.workspace.downloads import (
        provide_data,  # pulls in requests: only for who downloads
    )

    root = Path(plan.root_data_dir)
    return tuple(asdict(item) for item in provide_data(plan.data, root=root, notify=screen.note))


def _checkouts(
    plan: RunPlan, past: UnfinishedRun | None, like: Rounds | None, screen: Screen
) -> AbstractContextManager[tuple[Checkout, ...]]:
    from perfrun.workspace.checkouts import (
        checked_out,  # most runs of one machine's own code need no git
    )

    return checked_out(
        plan.repos,
        workspace=plan.workspace,
        use_cached=plan.use_cached_site_packages,
        pinned=past.pinned if past else like.commits if like else {},
        notify=screen.note,
    )


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: str(v) if isinstance(v, Path) else v for key, v in values.items()}


def _seed(plan: RunPlan, past: UnfinishedRun | None, proposed: int | None) -> int:
    """The seed of the order: the one asked for, that of the run that goes on, or a random one."""
    if plan.repetition.seed is not None:
        return plan.repetition.seed
    if past is not None and past.seed is not None:
        return past.seed
    if proposed is not None:
        return proposed
    return int.from_bytes(os.urandom(4), "big")


def _new_run_id() -> str:
    return f"{datetime.now():%Y%m%d-%H%M%S-%f}-{os.urandom(3).hex()}"
