"""Real workers started, watched, stopped and cleaned up after."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from fileserver import silent_file_server

from perfrun.errors import Interrupted
from perfrun.launchers import guard, local
from perfrun.launchers import launcher as ending
from perfrun.launchers.guard import OwnChildren, Parent
from perfrun.launchers.local import LocalLauncher, LocalProcess, LocalService
from perfrun.options.plan import RunPlan
from perfrun.probes.accelerators import DevicesUsage
from perfrun.run import outcome as collect
from perfrun.run import trial
from perfrun.run.environment import Method, Paths, Service, describe
from perfrun.run.interruption import Interruption
from perfrun.run.trial import TrialSpec
from perfrun.summary.document import Status
from perfrun.summary.memory import memory_section
from perfrun.summary.result_folder import ResultFolder
from perfrun.worker import procfs
from perfrun.worker.outcome_file import ASIDE, OUTCOME

MIB = 2**20
CASES = """
import ctypes, os, signal, subprocess, sys, threading, time
from perfrun import Benchmark

def runs(pid):
    try:
        return " Z " not in open("/proc/%d/stat" % pid).read()
    except FileNotFoundError:
        return False

def sleeps(connection):
    connection.send(os.getpid()); time.sleep(600)

class Cases(Benchmark):
    def ok(self):
        print("out"); print("err", file=sys.stderr)
        self.report_benchmark(wall_time=1.0)
    def fails(self):
        raise ValueError("no")
    def reads(self):
        assert sys.stdin.read() == ""
    def ends_at_once(self):
        os._exit(7)
    def crashes(self):
        os.kill(os.getpid(), signal.SIGSEGV)
    def hangs(self):
        print("hanging"); time.sleep(600)
    def hangs_stubbornly(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("hanging"); time.sleep(600)
    def ends_when_asked(self):
        def handler(*_): raise SystemExit(0)
        signal.signal(signal.SIGTERM, handler)
        print("hanging"); time.sleep(600)
    def lingers(self):
        threading.Thread(target=time.sleep, args=(600,)).start()
    def leaves_children(self):
        one = subprocess.Popen(["sleep", "601"])
        two = subprocess.Popen(["sleep", "602"], start_new_session=True)
        start = "import subprocess as s; print(s.Popen(['sleep', '%s'], stdout=-3, stderr=-3).pid)"
        orphans = [
            subprocess.run([sys.executable, "-c", start % seconds], stdout=-1, text=True).stdout
            for seconds in ("603", "0")  # the last one ends before anyone looks
        ]
        while runs(int(orphans[-1])): time.sleep(0.01)
        print(one.pid, two.pid, *map(int, orphans))
    def shares_memory_and_exits(self):
        from multiprocessing import resource_tracker, shared_memory
        block = shared_memory.SharedMemory(create=True, size=4096)
        # Until it runs its own program it is a copy of this one, by its command line.
        said = f"/proc/{resource_tracker._resource_tracker._pid}/cmdline"
        while b"resource_tracker" not in open(said, "rb").read(): time.sleep(0.01)
        print(block.name, flush=True)
        os._exit(0)
    def forks_and_exits(self):
        from multiprocessing import shared_memory
        block = shared_memory.SharedMemory(create=True, size=4096)
        pid = os.fork()
        if not pid: time.sleep(600)
        print(pid, block.name, flush=True)
        os._exit(0)
    def starts_a_fork_server_and_exits(self):
        import multiprocessing
        context = multiprocessing.get_context("forkserver")
        here, there = context.Pipe()
        context.Process(target=sleeps, args=(there,)).start()
        print(here.recv(), flush=True)
        os._exit(0)
    def allocates(self):
        block = bytearray(b"x") * (400 << 20)
        os._exit(0)
    def is_traced_and_exits(self):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(0x59616D61, ctypes.c_ulong(-1).value, 0, 0, 0)  # PR_SET_PTRACER, any
        here, there = os.pipe()
        if not os.fork():
            os.setsid()  # or it would be killed with the group
            done = libc.ptrace(0x4206, os.getppid(), None, None)  # PTRACE_SEIZE
            os.write(there, b"y" if done == 0 else b"n")
            time.sleep(600)
        print(os.read(here, 1).decode(), flush=True)
        os._exit(5)
    def reads_a_file(self):
        print("hanging")
        open(open(os.path.join(self.output_dir, "..", "file")).read())
    def computes(self):
        end = time.process_time() + 0.3
        while time.process_time() < end: pass
"""


@pytest.fixture(autouse=True)
def _as_under_the_runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Orphans of workers come to this process, as they come to the harness; long graces."""
    monkeypatch.setattr(ending, "TERM_GRACE_S", 60.0)
    earlier = guard._guards.pop(os.getpid(), None)
    if earlier:  # of another test in this process, whose child would be taken for a stray
        earlier.close()
    if not procfs.adopt_orphans():
        pytest.skip("this system has no subreapers")
    yield
    procfs._prctl(36, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / 'out put\n"quoted"'
    (path / "perfrun").mkdir(parents=True)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "cases.py").write_text(CASES)
    return path


def ordered(folder: Path, method: str) -> Mapping[str, Any]:
    spec = TrialSpec(
        method=Method(text="t", module="cases", class_name="Cases", name=method),
        trial_id=1,
        folder=ResultFolder(folder),
    )
    paths = Paths(first=(str(folder.parent / "code"),))
    return trial._order(RunPlan(selectors=()), spec, paths)


def start(
    folder: Path, method: str, python: str = sys.executable, *, is_wrapped: bool | None = None
) -> LocalProcess:
    order = ordered(folder, method)
    return LocalProcess(python, order, folder, folder / "perfrun", is_wrapped=is_wrapped)


def make_wrapper(path: Path, *lines: str) -> str:
    """An interpreter that is a script which starts the real one."""
    path.write_text("\n".join(["#!/bin/sh", *lines, f'{shlex.quote(sys.executable)} "$@"', ""]))
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def wrapper(tmp_path: Path) -> str:
    return make_wrapper(tmp_path / "wrap 'per\"")


def wait_for_line(folder: Path, text: str = "hanging") -> None:
    """Wait until the benchmark has printed that."""
    wait_until(lambda: text in (folder / "stdout.log").read_text())


def wait_until(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited for 60 s"
        time.sleep(0.02)


def record(folder: Path) -> dict[str, object]:
    for name in (OUTCOME, ASIDE):
        if (folder / "perfrun" / name).exists():
            value: dict[str, object] = json.loads((folder / "perfrun" / name).read_bytes())
            return value
    return {}


def test_a_worker_that_ends_by_itself(folder: Path) -> None:
    end = start(folder, "ok").wait(60)
    assert (end.exit_code, end.signal_number, end.stopped_for) == (0, None, None)
    assert end.strays == ()
    assert 0 < end.elapsed_s < 30
    assert record(folder)["complete"] is True
    assert (folder / "stdout.log").read_text() == "out\n"
    assert (folder / "stderr.log").read_text() == "err\n"
    assert (folder / "proto_Cases.ok").exists()


@pytest.mark.parametrize(
    ("method", "exit_code", "signal_number"),
    [
        ("fails", 1, None),
        ("reads", 0, None),
        ("ends_at_once", 7, None),
        ("crashes", None, signal.SIGSEGV),
    ],
)
def test_exit_codes_and_signals_are_told_apart(
    folder: Path, method: str, exit_code: int | None, signal_number: int | None
) -> None:
    end = start(folder, method).wait(60)
    assert (end.exit_code, end.signal_number) == (exit_code, signal_number)
    assert end.stopped_for is None


def test_a_crash_leaves_a_dump_of_where_it_was(folder: Path) -> None:
    start(folder, "crashes").wait(60)
    assert "in crashes" in (folder / "perfrun" / "stack.txt").read_text()


def test_a_deadline_ends_the_worker(folder: Path) -> None:
    end = start(folder, "hangs").wait(0.3)
    assert end.stopped_for == "deadline"
    assert end.signal_number in (signal.SIGTERM, signal.SIGKILL)
    assert 0.3 <= end.elapsed_s < 20


def test_a_worker_that_is_stopped_says_where_it_was(folder: Path) -> None:
    process = start(folder, "hangs")
    wait_for_line(folder)
    process.stop("deadline")
    end = process.wait(None)
    assert (end.signal_number, end.stopped_for) == (signal.SIGTERM, "deadline")
    assert "in hangs" in (folder / "perfrun" / "stack.txt").read_text()
    assert record(folder)["phase"] == "method"
    assert record(folder)["complete"] is False


def test_a_worker_that_ignores_sigterm_is_killed_after_a_dump(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "TERM_GRACE_S", 0.5)
    process = start(folder, "hangs_stubbornly")
    wait_for_line(folder)
    begin = time.monotonic()
    process.stop("deadline")
    assert time.monotonic() - begin >= 0.5
    end = process.wait(None)
    assert (end.signal_number, end.stopped_for) == (signal.SIGKILL, "deadline")
    assert "in hangs_stubbornly" in (folder / "perfrun" / "stack.txt").read_text()


def test_a_worker_that_ends_in_good_order_when_asked_was_stopped_all_the_same(folder: Path) -> None:
    process = start(folder, "ends_when_asked")
    wait_for_line(folder)
    process.stop("interrupt")
    end = process.wait(None)
    assert (end.exit_code, end.stopped_for) == (0, "interrupt")


@pytest.mark.parametrize("by", ["exit grace", "deadline"])
def test_a_worker_that_does_not_end_after_its_last_word_is_only_slow(
    folder: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(ending, "TERM_GRACE_S", 0.5)
    process = start(folder, "lingers")
    wait_until((folder / "perfrun" / OUTCOME).exists)
    if by == "exit grace":
        monkeypatch.setattr(ending, "EXIT_GRACE_S", 0.1)
    end = process.wait(None if by == "exit grace" else 0.1)
    assert end.stopped_for == "exit"
    assert record(folder)["complete"] is True


def test_children_left_behind_are_named_and_killed_wherever_they_are(folder: Path) -> None:
    end = start(folder, "leaves_children").wait(60)
    assert end.exit_code == 0
    commands = sorted(stray.partition(" (")[0] for stray in end.strays)
    assert commands == ["sleep 601", "sleep 602", "sleep 603"]
    pids = [int(pid) for pid in (folder / "stdout.log").read_text().split()]
    assert len(pids) == 4
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_pythons_own_helper_ends_by_itself_and_frees_shared_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However late it is: on a busy machine half a second may not be enough for it.
    monkeypatch.setattr(local, "CHILD_GRACE_S", 0.0)
    monkeypatch.setattr(local, "HELPER_GRACE_S", 60.0)
    end = start(folder, "shares_memory_and_exits").wait(60)
    assert end.strays == ()
    name = (folder / "stdout.log").read_text().strip()
    assert name
    assert not (Path("/dev/shm") / name).exists()


@pytest.mark.parametrize("method", ["forks_and_exits", "starts_a_fork_server_and_exits"])
def test_what_keeps_pythons_own_helpers_alive_is_killed_and_named_and_they_are_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(local, "HELPER_GRACE_S", 60.0)
    end = start(folder, method).wait(60)
    pid, *shared = (folder / "stdout.log").read_text().split()
    assert [stray.rpartition(" (")[2] for stray in end.strays] == [f"pid {pid})"]
    assert not psutil.pid_exists(int(pid))
    assert not [name for name in shared if (Path("/dev/shm") / name).exists()]


def test_a_zombie_whose_parent_lives_is_not_waited_for_as_a_helper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[tuple[int, float]] = []
    real = psutil.wait_procs

    def wait_procs(processes: list[psutil.Process], timeout: float) -> object:
        waited.append((len(processes), timeout))
        return real(processes, timeout)

    monkeypatch.setattr(local, "CHILD_GRACE_S", 0.0)
    monkeypatch.setattr(psutil, "wait_procs", wait_procs)
    source = "import os, time; print(os.fork() or os._exit(0), flush=True); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-S", "-c", source], stdout=-1)
    assert parent.stdout is not None
    zombie = psutil.Process(int(parent.stdout.readline()))
    wait_until(lambda: zombie.status() == psutil.STATUS_ZOMBIE)
    strays: dict[int, str] = {}
    local._kill_strays(parent.pid, strays, frozenset(), OwnChildren())
    parent.returncode = -9
    parent.stdout.close()
    assert (0, local.HELPER_GRACE_S) in waited
    assert list(strays) == [parent.pid]
    assert not psutil.pid_exists(zombie.pid)


def test_an_interrupt_while_what_was_left_behind_is_ended_takes_no_result_away(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = local._kill_strays, []

    def interrupted_once(
        group: int, strays: dict[int, str], besides: frozenset[int], parent: Parent
    ) -> None:
        calls.append(group)
        if len(calls) == 1:
            raise Interrupted("stopped by SIGINT")
        real(group, strays, besides, parent)

    monkeypatch.setattr(local, "_kill_strays", interrupted_once)
    process = start(folder, "leaves_children")
    end = trial._wait(process, 60, Interruption())
    assert calls == [process.pid] * 2
    assert (end.exit_code, end.signal_number, end.stopped_for) == (0, None, None)
    assert end.max_rss_bytes > MIB
    assert len(end.strays) == 3
    process.kill()
    assert process.wait(None) == end


def test_killing_at_once_reaches_children_too(folder: Path) -> None:
    process = start(folder, "hangs")
    wait_for_line(folder)
    process.kill()
    end = process.wait(None)
    assert (end.signal_number, end.stopped_for) == (signal.SIGKILL, "interrupt")
    assert not psutil.pid_exists(process.pid)


def test_a_worker_that_another_process_traces_is_reaped_once_that_is_gone(folder: Path) -> None:
    end = start(folder, "is_traced_and_exits").wait(60)
    if (folder / "stdout.log").read_text() == "n\n":
        pytest.skip("this system does not let a process trace its parent")
    assert (end.exit_code, end.stopped_for, end.unended) == (5, None, None)
    assert end.max_rss_bytes > MIB
    assert len(end.strays) == 1


def test_a_worker_that_sigkill_does_not_end_is_left_behind_and_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in where nothing can be mounted: signals to the worker get lost."""
    monkeypatch.setattr(ending, "TERM_GRACE_S", 0.1)
    monkeypatch.setattr(ending, "DUMP_POLLS", 1)
    monkeypatch.setattr(ending, "KILL_GRACE_S", 0.1)
    process = start(folder, "hangs")
    wait_for_line(folder)
    with monkeypatch.context() as lost:
        lost.setattr(local, "_signal_group", lambda *_: None)
        lost.setattr(local, "_signal", lambda *_: None)
        end = process.wait(0.0)
    os.kill(process.pid, signal.SIGKILL)
    os.waitpid(process.pid, 0)
    assert (end.exit_code, end.signal_number, end.stopped_for) == (None, None, "deadline")
    assert end.unended is not None
    assert end.unended.startswith(f"process {process.pid} could not be ended: it is in state ")
    assert end.user_cpu_s + end.system_cpu_s > 0
    assert end.max_rss_bytes > MIB
    assert end.strays == ()


@pytest.mark.root
def test_a_worker_that_waits_in_the_kernel_for_ever_does_not_stop_the_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "TERM_GRACE_S", 0.2)
    monkeypatch.setattr(ending, "DUMP_POLLS", 2)
    monkeypatch.setattr(ending, "KILL_GRACE_S", 0.5)
    (tmp_path / "mount").mkdir()
    (tmp_path / "file").write_text(str(tmp_path / "mount" / "x"))
    (tmp_path / "next" / "perfrun").mkdir(parents=True)
    with silent_file_server(tmp_path / "mount") as is_asked:
        process = start(folder, "reads_a_file")
        is_asked.wait()
        end = process.wait(0.0)
        status, _ = procfs.state_and_flags(process.pid)
        after = start(tmp_path / "next", "leaves_children").wait(60)
        again = process.wait(None)
    _, code = os.waitpid(process.pid, 0)
    assert status == "D"
    assert code == signal.SIGKILL
    assert end.stopped_for == "deadline"
    assert end.unended == (
        f"process {process.pid} could not be ended: it is in state D (it waits for a device or "
        "a file server) 0.5 s after SIGKILL"
    )
    assert again == end
    left = collect.read_leftovers(folder, folder / "perfrun")
    outcome = collect.judge_outcome(left, end, oom_kills=0, timeout_s=1.0)
    assert outcome.status is Status.TIMED_OUT
    assert outcome.reason == f"not finished after 1 s, during method; {end.unended}"
    # What was measured until then is kept, and the next trial is as any other.
    assert left.record["phases"]["import"]["wall_s"] > 0
    assert end.user_cpu_s + end.system_cpu_s > 0
    assert end.max_rss_bytes > MIB
    assert end.resources is not None
    assert end.resources["minor_faults"] > 0
    assert (after.exit_code, after.unended, len(after.strays)) == (0, None, 3)


@pytest.mark.root
def test_a_throw_away_worker_that_waits_in_the_kernel_for_ever_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "KILL_GRACE_S", 0.2)
    (tmp_path / "mount").mkdir()
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nread line < {tmp_path}/mount/x\n")
    python.chmod(0o755)
    with silent_file_server(tmp_path / "mount") as is_asked:
        service = LocalService(str(python), {}, tmp_path, tmp_path / "log")
        is_asked.wait()
        assert service.wait(0.1) is None
        service.end()
    assert service.wait(60) == -signal.SIGKILL


@pytest.mark.root
def test_a_child_that_waits_in_the_kernel_for_ever_is_named_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = psutil.wait_procs
    monkeypatch.setattr(
        psutil, "wait_procs", lambda processes, timeout: real(processes, min(timeout, 0.5))
    )
    (tmp_path / "mount").mkdir()
    (tmp_path / "next" / "perfrun").mkdir(parents=True)
    with silent_file_server(tmp_path / "mount") as is_asked:
        process = subprocess.Popen(["cat", str(tmp_path / "mount" / "x")], stderr=-3)
        is_asked.wait()
        end = start(folder, "ok").wait(60)
        after = start(tmp_path / "next", "ok").wait(60)
    [stray] = end.strays
    assert stray.startswith("cat ")
    assert f"(pid {process.pid}, which could not be ended: it is in state D" in stray
    assert after.strays == ()
    assert process.wait(60) == -signal.SIGKILL


def test_the_kernels_accounting_is_the_workers(folder: Path) -> None:
    end = start(folder, "allocates").wait(60)
    own_peak = procfs.memory_marks()["peak_rss_bytes"] or 0
    # The mark survives exec: below the peak of whoever starts it, it says nothing of the worker.
    assert 400 * MIB < end.max_rss_bytes < max(450 * MIB, 1.1 * own_peak)
    end = start(folder, "computes").wait(60)
    assert 0.25 < end.user_cpu_s + end.system_cpu_s < 5
    assert end.elapsed_s > 0.25


def test_without_a_pidfd_all_of_it_works_by_looking(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(pid: int) -> int:
        raise OSError("Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing, raising=False)
    assert start(folder, "ends_at_once").wait(60).exit_code == 7
    assert start(folder, "hangs").wait(0.2).stopped_for == "deadline"


def test_an_interpreter_that_is_gone_is_an_error_at_the_start(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        start(folder, "ok", python="/no/such/python")


def run_entry(order: Mapping[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    """The worker's program as it is started, by one that is not named as its parent."""
    path = folder / "perfrun" / "order.json"
    path.write_text(json.dumps(order))
    words = [sys.executable, str(local.ENTRY), str(path)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def test_a_worker_whose_harness_has_ended_does_not_run_and_says_why(folder: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    os.mkfifo(folder / "perfrun" / "lifeline")  # what is left of a harness that was killed at once
    order = {**ordered(folder, "ok"), "parent_pid": gone.pid}
    done = run_entry({**order, "lifeline": str(folder / "perfrun")}, folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "perfrun: the worker does not start: perfrun has ended before it began\n"
    assert record(folder) == {}


def test_a_worker_that_could_outlive_its_harness_does_not_run_and_says_why(
    folder: Path, wrapper: str
) -> None:
    end = start(folder, "ok", wrapper, is_wrapped=False).wait(60)
    left = collect.read_leftovers(folder, folder / "perfrun")
    outcome = collect.judge_outcome(left, end, oom_kills=0, timeout_s=None)
    assert outcome.status is Status.FAILED
    assert outcome.reason is not None
    assert outcome.reason.startswith("the worker did not start (exit status 1): perfrun: ")
    assert "must start it with `exec`" in outcome.reason
    order = {**ordered(folder, "ok"), "parent_pid": 1, "lifeline": str(folder)}
    done = run_entry(order, folder)
    assert done.returncode == 1
    assert "perfrun's end cannot be watched: " in done.stderr


def test_the_figures_of_a_worker_below_a_wrapper_are_its_own(folder: Path, tmp_path: Path) -> None:
    work = "import time; block = bytearray(b'x') * (200 << 20)"
    busy = f"{work}\nwhile time.process_time() < 1.5: pass"
    wrapper = make_wrapper(tmp_path / "wrapper", f'{shlex.quote(sys.executable)} -S -c "{busy}"')
    process = start(folder, "computes", wrapper, is_wrapped=True)
    assert psutil.Process(process.pid).parent().pid == process._leader  # type: ignore[union-attr]
    end = process.wait(60)
    assert (end.exit_code, end.signal_number, end.stopped_for) == (0, None, None)
    assert record(folder)["pid"] == process.pid
    assert record(folder)["complete"] is True
    assert end.strays == ()
    assert 0.25 < end.user_cpu_s + end.system_cpu_s < 1.5  # the wrapper's was more before
    assert end.resources is not None
    assert end.resources["user_s"] == end.user_cpu_s
    for said in ({}, record(folder)):  # of a worker that is killed before it can say, nothing
        memory = memory_section(said, end, None, DevicesUsage(), own_peak_rss_bytes=0)
        assert (memory.process_rss.bytes is None) == (not said)
    assert MIB < (memory.process_rss.bytes or 0) < 100 * MIB
    names = {path.name for path in (folder / "perfrun").iterdir()}
    assert names.isdisjoint({"lifeline", "worker.pid"})


def test_a_launcher_learns_whether_its_interpreter_is_a_wrapper(
    folder: Path, wrapper: str, tmp_path: Path
) -> None:
    becomes = tmp_path / "becomes"
    becomes.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    becomes.chmod(0o755)
    for python, is_wrapped in ((wrapper, True), (str(becomes), False), (sys.executable, False)):
        launcher = LocalLauncher(python)
        with Service(launcher, {"action": "describe"}, Paths()) as service:
            assert describe(service).python["executable"] == sys.executable
            assert service.answer()
        assert launcher._is_wrapped is is_wrapped
        process = launcher.start(ordered(folder, "ok"), folder, folder / "perfrun")
        assert process.wait(60).exit_code == 0
        assert record(folder)["pid"] == process.pid


@pytest.mark.parametrize(
    ("method", "exit_code", "signal_number"),
    [("ends_at_once", 7, None), ("crashes", None, signal.SIGSEGV), ("fails", 1, None)],
)
def test_a_wrapper_passes_on_how_the_worker_ended(
    folder: Path, wrapper: str, method: str, exit_code: int | None, signal_number: int | None
) -> None:
    end = start(folder, method, wrapper, is_wrapped=True).wait(60)
    assert (end.exit_code, end.signal_number) == (exit_code, signal_number)


def test_a_worker_below_a_wrapper_is_stopped_in_good_order(folder: Path, wrapper: str) -> None:
    process = start(folder, "hangs", wrapper, is_wrapped=True)
    wait_for_line(folder)
    process.stop("deadline")
    end = process.wait(None)
    assert (end.signal_number, end.stopped_for) == (signal.SIGTERM, "deadline")
    assert "in hangs" in (folder / "perfrun" / "stack.txt").read_text()
    assert record(folder)["phase"] == "method"
    assert end.strays == ()


def test_a_worker_below_a_wrapper_that_ignores_sigterm_is_killed_with_it(
    folder: Path, wrapper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "TERM_GRACE_S", 0.5)
    process = start(folder, "hangs_stubbornly", wrapper, is_wrapped=True)
    wait_for_line(folder)
    process.stop("deadline")
    end = process.wait(None)
    assert (end.signal_number, end.stopped_for) == (signal.SIGKILL, "deadline")
    assert "in hangs_stubbornly" in (folder / "perfrun" / "stack.txt").read_text()
    assert not psutil.pid_exists(process.pid)


def test_a_wrapper_that_starts_no_worker_is_a_trial_that_did_not_start(
    folder: Path, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no module named such >&2\nexit 3\n")
    python.chmod(0o755)
    process = start(folder, "ok", str(python), is_wrapped=True)
    assert process.wait(60).exit_code == 3


HARNESS = """
import json, sys
from pathlib import Path
from perfrun.launchers.local import LocalProcess
from perfrun.worker.procfs import adopt_orphans
adopt_orphans()
python, order, folder = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
known = json.loads(sys.argv[4])
process = LocalProcess(python, order, folder, folder / "perfrun", is_wrapped=known)
print(process._leader, flush=True)
process.wait(None)
"""


@pytest.mark.parametrize("is_wrapped", [True, None])
def test_a_harness_that_is_killed_leaves_neither_wrapper_nor_worker(
    folder: Path, wrapper: str, is_wrapped: bool | None
) -> None:
    words = [wrapper, json.dumps(ordered(folder, "hangs")), str(folder), json.dumps(is_wrapped)]
    with subprocess.Popen(
        [sys.executable, "-c", HARNESS, *words],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    ) as harness:
        assert harness.stdout is not None
        leader = psutil.Process(int(harness.stdout.readline()))
        wait_for_line(folder)
        [worker] = leader.children()
        assert record(folder)["pid"] == worker.pid
        harness.kill()
    for process in (leader, worker):  # orphans now, and ours: the fixture makes us a subreaper
        process.wait(60)
