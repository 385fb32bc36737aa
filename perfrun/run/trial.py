"""One trial, from an empty folder to a summary on disk."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perfrun.dataclass import dataclass, field, replace
from perfrun.errors import Interrupted
from perfrun.launchers.launcher import Exit, Launcher, Running
from perfrun.options.plan import RunPlan
from perfrun.probes.oom import OomKills
from perfrun.probes.watch import Watch, Watched
from perfrun.run.digest import digest_of_module
from perfrun.run.environment import Method, Paths
from perfrun.run.interruption import Interruption
from perfrun.run.outcome import Leftovers, judge_outcome, notes_on, read_leftovers
from perfrun.run.progress import Follower
from perfrun.run.taken_back import take_back
from perfrun.schema import bounded
from perfrun.summary.allocator import trial_allocator
from perfrun.summary.assemble import RunFacts, TrialFacts, build_summary
from perfrun.summary.cpu import MeasuredSections, bring_together
from perfrun.summary.document import (
    LARGEST_BYTES,
    Order,
    Outcome,
    Status,
    TrialResult,
    Usage,
    to_json,
)
from perfrun.summary.finding import MachineDelta, machine_delta
from perfrun.summary.quality import judge_quality
from perfrun.summary.result_folder import (
    PROFILE_SUMMARY,
    SUMMARY,
    ResultFolder,
    Storage,
    full_disk,
)
from perfrun.untrusted import Refused
from perfrun.worker.outcome_file import FIRST_REQUEST
from perfrun.worker.procfs import memory_marks

Write = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """Identity of a trial and its folder."""

    method: Method
    trial_id: int
    folder: ResultFolder  # its name is the execution id
    order: Order = field(default_factory=Order)
    announce: Callable[[str], None] | None = None  # gets the summary before it is written
    all_rows: bool = False  # of a profile: its rows are written to a file, and not only the top

    @property
    def execution_id(self) -> str:
        """Name of the folder; a profile trial's folder lies in that of a trial that counts."""
        if self.order.profile is None:
            return self.folder.path.name
        return f"{self.folder.path.parent.parent.name}/profiles/{self.folder.path.name}"


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Means that all trials of a run share."""

    launcher: Launcher
    paths: Paths
    storage: Storage
    streams: tuple[Write, Write]  # they show standard output and standard error
    interruption: Interruption
    asked_companions: dict[str, str] = field(default_factory=dict)  # see perfrun.run.companion
    # Called while a worker starts: what waits for the disk then costs no time.
    once_started: Callable[[], None] = lambda: None


def run_trial(run: RunFacts, spec: TrialSpec, around: Surroundings) -> TrialResult:
    """Run one trial and write its summary. Whatever the benchmark does, there is a result.

    What a trial leaves is checked where it is read. Should it break perfrun all the same, that is
    this trial's failure, with the path of a log, and the run goes on.
    """
    begun_s = time.monotonic()
    try:
        result = _write(run, spec, _run_and_judge(run, spec, around), around.storage)
        _refuse_unreadable(Path(result.summary))
        return result
    except Interrupted:
        raise
    except Exception as error:
        from perfrun.run.internal_error import internal_error  # never, if all goes well

        why = internal_error(error)
        facts = _unjudged(run, spec, around, why, time.monotonic() - begun_s)
        return _write(run, spec, facts, around.storage)


def _run_and_judge(run: RunFacts, spec: TrialSpec, around: Surroundings) -> TrialFacts:
    with OomKills() as killed:
        end, watched, span, why_not = _run_worker(run.plan, spec, around)
        kills, is_certain = killed.of(watched.pid if watched else None)
    taken = take_back(spec.folder.path, from_container=run.plan.container is not None)
    left = read_leftovers(spec.folder.path, spec.folder.private)
    if end is None:
        outcome = Outcome(status=Status.FAILED, reason=why_not, phase="start")
    else:
        outcome = judge_outcome(left, end, oom_kills=kills, timeout_s=run.plan.timeout_s)
    outcome = _with_full_disk(outcome, spec.folder.path)
    own_peak = memory_marks()["peak_rss_bytes"] or 0
    measured = bring_together(left.record, end, watched, own_peak_rss_bytes=own_peak)
    notes = notes_on(left, end, outcome, knows_victim=is_certain) if end else ()
    facts = _facts(run.plan, spec, left, outcome, measured, (*notes, *taken))
    facts = _with_module(facts, spec, run.plan, around.paths)
    if end:
        facts = replace(facts, container=end.container)
    if span:
        quality = judge_quality(
            span,
            series=left.series,
            devices=measured.devices.devices or (),
            samples=measured.usage.samples,
            allocator=facts.allocator,
        )
        facts = replace(facts, quality=quality)
    return _with_arithmetic(run, spec, facts, around)


def _refuse_unreadable(summary: Path) -> None:
    """Refuse a summary that is larger than any reader takes."""
    with contextlib.suppress(OSError):
        size = summary.stat().st_size
        if size > LARGEST_BYTES:
            raise Refused(f"what the trial left makes a summary of {size // 2**20} MiB")


def _unjudged(
    run: RunFacts, spec: TrialSpec, around: Surroundings, why: str, elapsed_s: float
) -> TrialFacts:
    """Return the facts of a trial of which nothing is known but that it could not be judged."""
    taken = take_back(spec.folder.path, from_container=run.plan.container is not None)
    status = Status.INTERRUPTED if around.interruption.asked else Status.FAILED
    measured = bring_together({}, None, None, own_peak_rss_bytes=0)
    return TrialFacts(
        name=spec.method.text,
        trial_id=spec.trial_id,
        execution_id=spec.execution_id,
        timestamp=time.time() - elapsed_s,
        outcome=Outcome(status=status, reason=f"perfrun could not judge this trial: {why}"),
        measured=replace(measured, usage=Usage(elapsed_s=elapsed_s)),
        allocator=trial_allocator(None, run.plan.allocator),
        notes=taken,
        order=spec.order,
    )


def recover_trial(
    run: RunFacts, spec: TrialSpec, around: Surroundings
) -> tuple[TrialResult, bool] | None:
    """Write the summary of a trial whose harness was killed; None when its worker wrote nothing.

    The second value is True when the method had finished: the trial need not run again. What cannot
    be judged is None, too.
    """
    try:
        return _recovered(run, spec, around)
    except Interrupted:
        raise
    except Exception as error:
        from perfrun.run.internal_error import internal_error

        internal_error(error)
        return None


def _recovered(
    run: RunFacts, spec: TrialSpec, around: Surroundings
) -> tuple[TrialResult, bool] | None:
    taken = take_back(spec.folder.path, from_container=run.plan.container is not None)
    left = read_leftovers(spec.folder.path, spec.folder.private)
    if not left.record:
        return None
    if left.complete:
        gone = Exit(
            exit_code=0,
            signal_number=None,
            stopped_for=None,
            elapsed_s=0.0,
            user_cpu_s=0.0,
            system_cpu_s=0.0,
            max_rss_bytes=0,
            strays=(),
        )
        outcome = judge_outcome(left, gone, oom_kills=0, timeout_s=None)
        outcome = replace(outcome, exit_code=None)
    else:
        outcome = Outcome(
            status=Status.INTERRUPTED,
            reason="perfrun itself was killed during the trial",
            phase=left.record.get("phase"),
            stderr_tail=left.stderr_tail,
        )
    measured = bring_together(left.record, None, None, own_peak_rss_bytes=0)
    notes = ("summary written by a later --resume: what was watched from outside is lost", *taken)
    facts = _facts(run.plan, spec, left, outcome, measured, notes)
    facts = _with_module(facts, spec, run.plan, around.paths)
    facts = _with_arithmetic(run, spec, facts, around)
    return _write(run, spec, facts, around.storage), left.complete


def _with_arithmetic(
    run: RunFacts, spec: TrialSpec, facts: TrialFacts, around: Surroundings
) -> TrialFacts:
    """Add what the benchmark asked to be counted after it; its own process has ended."""
    is_asked = (spec.folder.private / FIRST_REQUEST).exists()
    if not is_asked or not facts.outcome.status.ran or spec.order.profile is not None:
        return facts
    from perfrun.run.companion import Companion  # few benchmarks ask

    companion = Companion(
        run=run,
        launcher=around.launcher,
        paths=around.paths,
        interruption=around.interruption,
        asked=around.asked_companions,
        disturbed=facts.quality is None or facts.quality.disturbed,
    )
    reports, notes = companion.completed(facts.reports, spec.folder.private)
    return replace(facts, reports=reports, notes=(*facts.notes, *bounded(notes)))


def _with_full_disk(outcome: Outcome, folder: Path) -> Outcome:
    """Add a full disk to the reason: many libraries do not name it, and a SIGBUS never does."""
    if outcome.status not in (Status.FAILED, Status.CRASHED, Status.EXITED):
        return outcome
    full = full_disk(folder)
    reason = f"{outcome.reason}; the disk of its folder is full ({full})"
    return replace(outcome, reason=reason) if full else outcome


def _run_worker(
    plan: RunPlan, spec: TrialSpec, around: Surroundings
) -> tuple[Exit | None, Watched | None, MachineDelta | None, str]:
    folder = spec.folder.path
    try:
        process = _start(plan, spec, around)
    except OSError as error:
        return None, None, None, f"the worker could not be started: {error}"
    try:
        watch = Watch(process.pid, folder, own_cgroup=process.own_cgroup)
        with _followed(folder, around.streams):
            around.once_started()
            end = _wait(process, plan.timeout_s, around.interruption)
            watched = watch.finish()
            span = machine_delta(watched.before, watched.after, end)
    except Exception:
        with contextlib.suppress(Exception):  # nothing of it may run beside the next trial
            process.kill()
            process.wait(None)
            process.close()
        raise
    last_facts = process.close()  # last: it keeps an engine busy
    if last_facts:
        end = replace(end, container={**(end.container or {}), **last_facts})
    return end, watched, span, ""


def _start(plan: RunPlan, spec: TrialSpec, around: Surroundings) -> Running:
    order = _order(plan, spec, around.paths)
    try:
        return around.launcher.start(order, spec.folder.path, spec.folder.private)
    except OSError:
        around.storage.reserve.release()  # the space set aside may be enough
        return around.launcher.start(order, spec.folder.path, spec.folder.private)


def _wait(process: Running, timeout_s: float | None, interruption: Interruption) -> Exit:
    """Wait for the worker. Ctrl-C lets it end in order; a second Ctrl-C kills it."""
    try:
        with interruption.allowed():
            return process.wait(timeout_s)
    except Interrupted:
        pass
    try:
        with interruption.allowed():
            process.stop("interrupt")
    except Interrupted:
        process.kill()
    return process.wait(None)


@contextlib.contextmanager
def _followed(folder: Path, streams: tuple[Write, Write]) -> Iterator[None]:
    follower = Follower({folder / "stdout.log": streams[0], folder / "stderr.log": streams[1]})
    follower.start()
    try:
        yield
    finally:
        follower.finish()


def _order(plan: RunPlan, spec: TrialSpec, paths: Paths) -> dict[str, Any]:
    """Return the worker's order. The constructor's keywords are exactly those of PerfZero."""
    constructor: dict[str, Any] = {}
    if plan.class_type != "tf_benchmark":
        constructor = {
            "output_dir": str(spec.folder.path),
            "root_data_dir": plan.root_data_dir,
            "tpu": None,
        }
    return {
        "action": "run",
        "method": {
            "module": spec.method.module,
            "class_name": spec.method.class_name,
            "name": spec.method.name,
        },
        "output_dir": str(spec.folder.path),
        "private_dir": str(spec.folder.private),
        "constructor": {**constructor, **plan.constructor_args},
        "first_paths": paths.first,
        "last_paths": paths.last,
        # No windows in a profile trial: two profilers would record each other.
        "profiler_windows": []
        if spec.order.profile
        else [[w.begin_s, w.end_s] for w in plan.profiler_windows],
        "benchmark_flags": plan.benchmark_flags,
        "profile": spec.order.profile,
        "profile_scope": plan.profile_scope,
        "all_rows": spec.all_rows,
        "debug": plan.debug,
    }


def _facts(
    plan: RunPlan,
    spec: TrialSpec,
    left: Leftovers,
    outcome: Outcome,
    measured: MeasuredSections,
    notes: tuple[str, ...],
) -> TrialFacts:
    record = left.record
    return TrialFacts(
        name=spec.method.text,
        trial_id=spec.trial_id,
        execution_id=spec.execution_id,
        timestamp=record.get("timestamp", time.time()),
        outcome=outcome,
        measured=measured,
        reports=left.reports,
        unsaved_reports=tuple(record.get("unsaved_reports", ())),
        series=left.series,
        phases=record.get("phases", {}),
        framework=record.get("framework"),
        frameworks=tuple(record.get("frameworks", ())),
        allocator=trial_allocator(record.get("allocator"), plan.allocator),
        module_file=record.get("module_file"),
        benchmark_version=record.get("benchmark_version"),
        profiles=tuple(record.get("profiles", ())),
        notes=notes,
        order=spec.order,
    )


def _with_module(facts: TrialFacts, spec: TrialSpec, plan: RunPlan, paths: Paths) -> TrialFacts:
    """Add the SHA-256 of the benchmark's module. (hashlib costs a worker 6 ms a trial.)"""
    sha256, note = digest_of_module(
        facts.module_file,
        spec.method.module,
        (*paths.first, *paths.last),
        is_apart=plan.container is not None,
    )
    return replace(facts, module_sha256=sha256, notes=(*facts.notes, *filter(None, [note])))


def _write(run: RunFacts, spec: TrialSpec, facts: TrialFacts, storage: Storage) -> TrialResult:
    document = build_summary(run, facts)
    name = PROFILE_SUMMARY if spec.order.profile else SUMMARY
    text = to_json(document, is_redacted=True)  # by build_summary
    if spec.announce:
        spec.announce(text)
    path = storage.write_summary(spec.folder, text, name)
    return TrialResult(
        name=spec.method.text,
        trial_id=spec.trial_id,
        status=facts.outcome.status,
        summary=str(path),
        document=document,
    )
