"""The run: puts code and data in place, then starts the rounds."""

from __future__ import annotations

import os
import time
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
from perfrun.run.progress import Screen
from perfrun.summary.estimates import RunResult
from perfrun.summary.result_folder import Storage
from perfrun.worker.procfs import adopt_orphans

if TYPE_CHECKING:
    from perfrun.run.journal import UnfinishedRun
    from perfrun.run.rounds import Rounds
    from perfrun.workspace.checkouts import Checkout

PACKAGE = Path(__file__).resolve().parent.parent


def run(
    plan: RunPlan,
    screen: Screen,
    interruption: Interruption | None = None,
    *,
    check_names: bool = False,
) -> RunResult:
    """Carry out the plan. Raises PerfrunError when something stops it before the first trial.

    `interruption` is that of a caller that handles the signals for more than this run. With
    `check_names` the name of a method that does not exist is such a thing; else its trials fail,
    and the others run: a night does not end because somebody renamed a method.
    """
    adopt_orphans()
    with taking_signals(interruption) as ours:
        with ours.allowed(), ExitStack() as stack:
            trials = prepare(plan, screen, ours, stack, check_names=check_names)
            # From here on nothing is cut short: results are written first.
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
    *,
    check_names: bool = False,
) -> Rounds:
    """Put everything in place for the first trial; `stack` releases it.

    `seed` is that of a caller that orders the trials of several plans; a resumed run has its own.
    `like` is a prepared run of the same workspace and environment that differs only in values of
    flags after `--`: this run takes its commits and does not check the flags again.
    """
    resumed = _resumed(plan, screen)
    run_id = resumed.run_id if resumed else _new_run_id()
    storage = Storage(plan.output, run_id, screen.problem)
    _open(storage, plan, stack)
    launcher = make_launcher(plan, run_id, screen.note)
    with Service(launcher, {"action": "describe"}, Paths()) as service:
        # While the worker starts: half of a run's imports, and what else has to be done anyway.
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
    if plan.allocator != "default":
        from perfrun.run.allocator import provide_allocator  # only for runs that ask for one

        provide_allocator(launcher, plan)
    if not harness_info and plan.container is None:  # then this process may run in an image
        harness_info = environment.image_harness_info(setup_info)
    begun_s = time.monotonic()
    data = _with_data(plan, screen)
    with_data_s = time.monotonic()
    checkouts = stack.enter_context(_checkouts(plan, resumed, like, screen)) if plan.repos else ()
    checked_out_s = time.monotonic()
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
        setup_s={
            "download_data": with_data_s - begun_s,
            "checkout_repository": checked_out_s - with_data_s,
        },
    )
    paths = import_paths(plan)
    methods = environment.expand(launcher, plan.selectors, paths, plan.allow_empty)
    if check_names:
        environment.check_names(launcher, plan.selectors, paths, plan.timeout_s)
    if plan.benchmark_flags and like is None:  # checking imports the framework
        modules = [method.module for method in methods]
        environment.check_flags(launcher, modules, plan.benchmark_flags, paths)
    path = resumed.path if resumed else plan.workspace / "runs" / f"{run_id}.jsonl"
    journal = Journal(path, screen.problem)
    seed = _seed(plan, resumed, seed)
    if not resumed:
        image_id = (facts.container or {}).get("image_id")
        journal.begin(plan, {c.directory: c.git_hash for c in checkouts}, seed, image_id)
    if not stack.enter_context(journal.held()):
        raise UsageError(f"--resume: another perfrun has just gone on with run {run_id}")
    if resumed:
        journal.remove_unfinished()
    recorder = make_recorder(plan, screen.problem)
    around = Surroundings(
        launcher=launcher,
        paths=paths,
        storage=storage,
        streams=(screen.stdout, screen.stderr),
        interruption=interruption,
    )
    return Rounds(facts, methods, around, journal, resumed, screen, seed, recorder)


def import_paths(plan: RunPlan) -> Paths:
    """Return the worker's import path. Raises UsageError for a `--python_path` that is missing."""
    first = []
    for item in plan.python_path:
        path = plan.site_packages / item  # an absolute item stays itself, as in PerfZero
        if not path.is_dir():
            folders = sorted(p.name for p in plan.site_packages.glob("*") if p.is_dir())
            here = f"; for the folder here write ./{item}" if Path(item).is_dir() else ""
            raise UsageError(
                f"--python_path: {path} is not a folder; site-packages has: "
                f"{', '.join(folders) or 'nothing'}{here}"
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


def _resumed(plan: RunPlan, screen: Screen) -> UnfinishedRun | None:
    if not plan.resume:
        return None
    from perfrun.run.journal import unfinished

    resumed = unfinished(plan.workspace / "runs", plan)
    if resumed is None:
        screen.note("--resume: no unfinished run like this one in the workspace; starting anew")
    else:
        screen.note(
            f"--resume: going on with run {resumed.run_id}; {len(resumed.finished)} finished"
        )
    return resumed


def _with_data(plan: RunPlan, screen: Screen) -> tuple[Mapping[str, Any], ...]:
    if not plan.data:
        return ()
    from perfrun.workspace.downloads import provide_data  # it imports requests

    root, records = Path(plan.root_data_dir), plan.workspace / "data-records"
    provided = provide_data(plan.data, root=root, records=records, notify=screen.note)
    return tuple(asdict(item) for item in provided)


def _checkouts(
    plan: RunPlan, resumed: UnfinishedRun | None, like: Rounds | None, screen: Screen
) -> AbstractContextManager[tuple[Checkout, ...]]:
    from perfrun.workspace.checkouts import checked_out  # only for runs that need git

    return checked_out(
        plan.repos,
        workspace=plan.workspace,
        use_cached=plan.use_cached_site_packages,
        pinned=resumed.pinned if resumed else like.commits if like else {},
        notify=screen.note,
    )


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: str(v) if isinstance(v, Path) else v for key, v in values.items()}


def _seed(plan: RunPlan, resumed: UnfinishedRun | None, proposed: int | None) -> int:
    """Return the seed of the order: from the flag, the resumed run, the caller, or at random."""
    if plan.repetition.seed is not None:
        return plan.repetition.seed
    if resumed is not None and resumed.seed is not None:
        return resumed.seed
    if proposed is not None:
        return proposed
    return int.from_bytes(os.urandom(4), "big")


def _new_run_id() -> str:
    return f"{datetime.now():%Y%m%d-%H%M%S-%f}-{os.urandom(3).hex()}"
