"""`perfrun shard PLAN INDEX`: run one shard of a submission here. Engines call it.

Its exit status is for engines: 0 the shard has a result; 1 it has one, and the benchmark failed;
2 the plan or the command line is wrong, on every machine; 69 this machine could not measure it, as
another may; 74 nobody took the result that `--keep` kept; 75 another process works on the shard;
130 it was interrupted, as by a preemption; 3 is an internal error. A process that was killed has
none of them, and its attempt no end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from perfrun.errors import Interrupted, PerfrunError, UsageError, WorkspaceError
from perfrun.fleet.dispatch import shuffled
from perfrun.fleet.index_ranges import parse_index_ranges
from perfrun.fleet.keeping import (
    NOT_TAKEN,
    mark_taken,
    wait_for_acknowledgement,
    wait_until_taken,
)
from perfrun.fleet.transfer import Limits, parse_limits, receive_plan, send_results, unpack_plan
from perfrun.locks import FileLock
from perfrun.options.command_line import parse
from perfrun.options.containment import COMPANIONS
from perfrun.options.parsers import CommandParser, parse_duration, parse_whole
from perfrun.options.plan import RunPlan
from perfrun.reports.terminal import Terminal
from perfrun.run.digest import sha256_of
from perfrun.run.environment import FlagsRefused
from perfrun.run.interruption import Interruption
from perfrun.run.runner import run
from perfrun.shards.places import WITH_RESULT, Attempt, Ended, How, ShardPlace
from perfrun.shards.plan import Plan, Shard
from perfrun.shards.plan_file import read_plan
from perfrun.shown import as_is, line
from perfrun.summary.estimates import RunResult
from perfrun.summary.record import BadSummary, read_content
from perfrun.summary.result_folder import safe_name
from perfrun.summary.series_identity import section, text

RAN, BENCHMARK_FAILED = 0, 1
MACHINE_FAILED = 69  # EX_UNAVAILABLE
BUSY = 75  # EX_TEMPFAIL
_JOBS = ("SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID", "JOB_COMPLETION_INDEX")
_LONGEST_REASON = 1000
_LOOKS, _LOOK_S = 120, 0.5  # at the lock of a machine

_ABOUT = "Run one shard of a submission here; the engines of `perfrun submit` call it."
_EPILOG = """\
PLAN is the folder of a submission, WORKSPACE/submissions/ID. Nothing is run again that has a
result.

Exit status: 0 it has a result, 1 it has one and the benchmark failed, 2 the plan is wrong,
69 this machine could not measure it, 74 nobody took what --keep kept, 75 another process works on
it, 130 interrupted.
"""


def shard_parser() -> CommandParser:
    """Return the parser of `perfrun shard`."""
    made = CommandParser("perfrun shard", _ABOUT, _EPILOG)
    made.add_argument("plan", metavar="PLAN", help="the folder of a submission")
    made.add_argument("index", metavar="INDEX", nargs="?", help="the number of the shard, from 0")
    made.add_argument(
        "--among",
        metavar="RANGES",
        help="INDEX counts these shards, as 0-39,45, in the order of a cluster's Job",
    )
    made.switch("--in_image", "this process runs in the image that the shard's environment names")
    made.switch("--until_stdin_closes", "end when standard input is closed: its other end died")
    alone = "one shard at a time on this machine, of those with the same folder"
    made.flag("--alone", "DIR", alone)
    made.switch("--receive", "put the submission that comes on standard input into PLAN")
    made.switch("--send", "write the results of the shard to standard output, as tar")
    made.switch("--acknowledged", "with --send: wait for the line `taken`, and let --keep end")
    made.flag("--largest_file", "SIZE", "with --send: leave larger files out (4g)")
    made.flag("--largest_results", "SIZE", "with --send: the most in all (32g)")
    made.flag("--unpack", "DIR", "first put the submission that the files in DIR hold into PLAN")
    made.flag("--keep", "TIME", "keep the result so long, until it has been taken")
    made.switch("--taken", "let the process end that keeps the result of the shard")
    made.flag("--walltime", "TIME", "interrupt the shard after so long")
    return made


def shard_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun shard`; return the exit status."""
    given = shard_parser().parse_args(list(argv))
    if given.receive:
        receive_plan(Path(os.path.abspath(given.plan)), sys.stdin.buffer)  # noqa: PTH100
        return 0
    screen = Terminal(sys.stdout, sys.stderr, quiet=False)
    try:
        if given.unpack:
            unpack_plan(Path(os.path.abspath(given.plan)), Path(given.unpack))  # noqa: PTH100
        return _with_plan(given, read_plan(Path(given.plan)), screen)
    except WorkspaceError as error:
        why = error.line
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        why = f"{error.filename or 'the disk'}: {error.strerror or error}"
    # Of the disk or the locks of this machine: the same may work on another one.
    screen.problem(line(why, _LONGEST_REASON))
    return MACHINE_FAILED


def _with_plan(given: Namespace, plan: Plan, screen: Terminal) -> int:
    """Do what the command line says with a shard of the plan; return the exit status."""
    index = parse_whole(given.index, "INDEX", least=0)
    if given.among and index is not None:
        index = _among(plan, given.among, index)
    if index is None or index >= len(plan.shards):
        had = f"INDEX={index}: " if index is not None else "INDEX is missing: "
        raise UsageError(f"{had}{plan.path} has the shards 0 to {len(plan.shards) - 1}")
    if given.send:
        limits = parse_limits(given.largest_file, given.largest_results)
        return _send(ShardPlace(plan, index), limits, is_kept=given.acknowledged)
    if given.taken:
        mark_taken(ShardPlace(plan, index))
        return 0
    keep_s = parse_duration(given.keep, "--keep")
    walltime_s = parse_duration(given.walltime, "--walltime")
    if given.until_stdin_closes:
        _end_with_stdin()
    shard = plan.shards[index]
    if given.in_image:
        shard = replace(shard, words=words_in_image(shard.words))
    with _alone(given.alone) as is_alone:
        if not is_alone:
            screen.problem(f"shard {index}: another shard runs on this machine")
            return BUSY
        with _ended_after(walltime_s, index, screen):
            status = run_shard(plan, shard, screen)
    if keep_s is None or status not in (RAN, BENCHMARK_FAILED):
        return status
    screen.note(f"shard {index} waits until its result is taken")
    missed = wait_until_taken(ShardPlace(plan, index), keep_s)
    if missed == NOT_TAKEN:
        screen.problem(f"shard {index}: nobody took its result in time, and it is gone")
    return missed or status


@contextlib.contextmanager
def _ended_after(most_s: float | None, index: int, screen: Terminal) -> Iterator[None]:
    """Have this process interrupted, as by SIGTERM, when something takes longer."""
    if most_s is None:
        yield
        return

    def end() -> None:
        screen.problem(f"shard {index}: took longer than --walltime")
        os.kill(os.getpid(), signal.SIGTERM)

    timer = threading.Timer(most_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _among(plan: Plan, ranges: str, number: int) -> int:
    """Return a shard of some by its number in the order in which an engine runs them."""
    among = parse_index_ranges(ranges, "--among")
    if number >= len(among):
        raise UsageError(f"INDEX={number}: --among names {len(among)} shards")
    if among[-1] >= len(plan.shards):
        raise UsageError(f"--among={ranges}: {plan.path} has {len(plan.shards)} shards")
    return shuffled(plan, among)[number]


def _send(place: ShardPlace, limits: Limits, *, is_kept: bool) -> int:
    attempt = place.counted() or next(iter(reversed(place.attempts())), None)
    if attempt is None or attempt.ended is None:
        raise UsageError(f"{place.folder}: no attempt has ended")
    try:
        send_results(attempt, as_is(sys.stdout).buffer, limits)
        sys.stdout.flush()
    except OSError as error:
        raise WorkspaceError(f"{attempt.folder}: cannot be sent: {error}") from None
    if is_kept and not wait_for_acknowledgement(place):
        raise WorkspaceError(f"{attempt.folder}: was sent, and nobody says that it came")
    return 0


@contextlib.contextmanager
def _alone(folder: str | None) -> Iterator[bool]:
    """Hold this machine's lock in a folder, which machines may share; False when it is taken.

    A process whose other end has died ends its trial first. For so long the lock is waited for.
    """
    if not folder:
        yield True
        return
    with FileLock(Path(folder) / f".{safe_name(socket.gethostname())}.lock") as lock:
        for _ in range(_LOOKS):
            if lock.try_own():
                yield True
                return
            time.sleep(_LOOK_S)
        yield False


def run_shard(plan: Plan, shard: Shard, screen: Terminal) -> int:
    """Run a shard into an attempt of its own, unless it has a result; return the exit status."""
    place = ShardPlace(plan, shard.index)
    place.make()
    with place.held() as free:
        if free:
            place.settle()
        if (known := place.counted()) is not None:
            screen.note(f"shard {shard.index} has its result already: attempt {known.number}")
            return _status(known.ended)
        if not free:
            screen.problem(f"shard {shard.index}: another process works on it")
            return BUSY
        job = next((os.environ[key] for key in _JOBS if os.environ.get(key)), "")
        # Slurm's name of the node, which need not be the host's.
        attempt = place.claim(job, os.environ.get("SLURMD_NODENAME", ""))
        with Interruption().installed() as interruption:
            if any(word.startswith("--git_repos=") for word in shard.words):
                place.share_cache(attempt)
            ended = _attempt(plan, shard, attempt, screen, interruption)
            is_first = place.end(attempt, ended)
        place.tidy(attempt)
        if ended.how in WITH_RESULT and not is_first:
            known = place.counted()
            screen.note(f"shard {shard.index}: another attempt was first; its result counts")
            return _status(known.ended if known else ended)
        if ended.reason:
            screen.problem(f"shard {shard.index}: {ended.reason}")
        return _status(ended)


def words_in_image(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a shard that runs inside its image: without the flags of a container."""
    at = words.index("--") if "--" in words else len(words)
    if not any(word.startswith("--image=") for word in words[:at]):
        return tuple(words)
    python = "--image_python="
    dropped = tuple(f"--{name}=" for name in ("image", *COMPANIONS))
    own = [f"--python={word[len(python) :]}" for word in words[:at] if word.startswith(python)]
    own += [word for word in words[:at] if not word.startswith(dropped)]
    return (*own, *words[at:])


def run_plan_of(plan: Plan, shard: Shard, workspace: Path) -> RunPlan:
    """Return the run of a shard in a workspace. Raises UsageError for a shard with wrong words."""
    own, dashes, rest = list(shard.words), [], []
    if "--" in own:
        at = own.index("--")
        own, dashes, rest = own[:at], ["--"], own[at + 1 :]
    asked = parse([*own, f"--workspace={workspace}", *dashes, *rest])
    code = tuple(
        str(plan.folder / item) if item.startswith("code/") else item for item in asked.python_path
    )
    return replace(asked, python_path=code)


def _attempt(
    plan: Plan, shard: Shard, attempt: Attempt, screen: Terminal, interruption: Interruption
) -> Ended:
    """Run the trials of a shard, and say how that ended. Never raises for what a shard can do."""
    try:
        result = run(run_plan_of(plan, shard, attempt.folder), screen, interruption)
    except Interrupted as error:
        return _ended(How.INTERRUPTED, str(error))
    except FlagsRefused as error:  # on every machine: a sweep of what the benchmark does not know
        return _ended(How.FAILED, str(error))
    except PerfrunError as error:
        return _ended(_how_without_trials(interruption), str(error))
    except OSError as error:  # of the disk of this machine
        return _ended(How.MACHINE, f"{error.filename or 'the disk'}: {error.strerror or error}")
    return _judged(result, attempt, interruption)


def _how_without_trials(interruption: Interruption) -> How:
    # A signal may be the cause of the error: child processes get it, too.
    return How.INTERRUPTED if interruption.signalled else How.MACHINE


def _judged(result: RunResult, attempt: Attempt, interruption: Interruption) -> Ended:
    if result.interrupted or interruption.signalled:
        return _ended(How.INTERRUPTED, "stopped by a signal")
    trials, reason = [], ""
    for trial in result.trials:
        path = Path(trial.summary)
        if path.parent.parent != attempt.folder / "output":
            return _ended(How.MACHINE, f"a summary could only be written to {path}")
        try:
            trials.append((path.parent.name, sha256_of(read_content(path))))
        except (OSError, BadSummary) as error:
            return _ended(How.MACHINE, f"{path}: cannot be read again: {error}")
        if not trial.status.ran and not reason:
            why = text(section(section(trial.document, "perfrun"), "outcome").get("reason"))
            said = f" ({why})" if why else ""
            reason = f"{trial.name}, trial {trial.trial_id}: {trial.status.value}{said}"
    if not trials:
        return _ended(How.MACHINE, "no trial was run")
    return _ended(How.FAILED if reason else How.RAN, reason, tuple(trials))


def _ended(how: How, reason: str = "", trials: tuple[tuple[str, str], ...] = ()) -> Ended:
    return Ended(how=how, ended=time.time(), reason=line(reason, _LONGEST_REASON), trials=trials)


def _status(ended: Ended | None) -> int:
    """Return the exit status of an attempt that has ended."""
    if ended is None:
        return MACHINE_FAILED
    return {
        How.RAN: RAN,
        How.FAILED: BENCHMARK_FAILED,
        How.MACHINE: MACHINE_FAILED,
        How.INTERRUPTED: Interrupted.exit_code,
    }[ended.how]


def _end_with_stdin() -> None:
    """Have this process end, as by SIGTERM, when the other end of its standard input closes."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
