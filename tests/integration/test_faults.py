"""Whatever a benchmark does: a typed outcome, a whole summary, nothing left running, and the
methods before and after it pass.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fault_table import TABLE, Row
from worlds import Finished, World, finish, strict, wait_until

from perfrun.probes.oom import OomKills

PERFZERO_KEYS = [
    "execution_id",
    "execution_timestamp",
    "benchmark_result",
    "benchmark_info",
    "setup_info",
    "ml_framework_info",
    "system_info",
    "process_info",
    "perfrun",
]
CLASS = """
class Faults(Benchmark):
    def first(self):
        self.report_benchmark(wall_time=1.0)

    def last(self):
        self.report_benchmark(wall_time=3.0)
"""
CASES = "pkg.cases.Faults"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What became of the method in the middle."""

    done: Finished
    summary: dict[str, Any]
    folder: Path
    world: World

    @property
    def outcome(self) -> dict[str, Any]:
        outcome: dict[str, Any] = self.summary["perfrun"]["outcome"]
        return outcome

    @property
    def notes(self) -> str:
        return "\n".join(self.summary["perfrun"]["notes"])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def run_fault(
    world: World,
    body: str = "pass",
    *words: str,
    method: str = f"{CASES}.fault",
    more: str = "",
    **env: str,
) -> Fault:
    """Run `first`, the fault and `last`, and check what must hold after every fault.

    Again, elsewhere, when whom the kernel killed for memory was a guess: another test's, perhaps.
    """
    for number in range(4):
        done, methods = run_three(world, body, *words, method=method, more=more, **env)
        fault = checked(world, done, methods)
        if fault.outcome["status"] != "oom_killed" or "/dev/kmsg" not in fault.notes:
            break
        world = replace(world, folder=world.folder / f"again {number}")
        world.folder.mkdir()
    return fault


def run_three(
    world: World,
    body: str,
    *words: str,
    method: str = f"{CASES}.fault",
    more: str = "",
    **env: str,
) -> tuple[Finished, list[str]]:
    """Run `first`, the fault and `last`; return also their names."""
    write_three(world, body, more)
    methods = three(method)
    return world.run("--format=json", *words, methods=",".join(methods), **env), methods


def write_three(world: World, body: str, more: str) -> None:
    """Write the class of `first`, the fault and `last`."""
    fault = "    def fault(self):\n" + textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    world.write(f"{CLASS}\n{fault}\n\n{more}")


def three(method: str) -> list[str]:
    """Return the names of `first`, the fault and `last`."""
    return [f"{CASES}.first", method, f"{CASES}.last"]


def checked(world: World, done: Finished, methods: list[str]) -> Fault:
    """Check what must hold after every fault."""
    for mishap in ("internal error", "Exception in thread", "Exception ignored in: <thread"):
        assert mishap not in done.stderr, done.stderr
    first, middle, last = done.summaries()
    assert [d["perfrun"]["outcome"]["status"] for d in (first, last)] == ["passed", "passed"]
    assert [d["benchmark_result"]["wall_time"] for d in (first, last)] == [1.0, 3.0]
    assert [d["benchmark_result"]["name"] for d in (first, middle, last)] == methods
    for document in (first, middle, last):
        assert list(document) == PERFZERO_KEYS
    assert done.statuses[1] == middle["perfrun"]["outcome"]["status"]
    passed = done.statuses[1] == "passed"
    assert done.code == (0 if passed else 1)
    assert middle["benchmark_info"]["has_exception"] is not passed
    assert middle["benchmark_result"]["succeeded"] is passed
    assert world.left_running() == []
    assert [path.name for path in world.workspace.glob("output/.*")] == []  # the reserve is gone
    return Fault(
        done=done,
        summary=middle,
        folder=Path(done.results[1]["summary"]).parent,
        world=world,
    )


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
def test_a_fault_gets_its_typed_outcome(row: Row, world: World) -> None:
    fault = run_fault(world, row.body, "--quiet")
    outcome = fault.outcome
    assert (outcome["status"], outcome["phase"]) == (row.status, row.phase)
    assert re.fullmatch(row.reason, outcome["reason"])
    assert (outcome["exit_code"], outcome["signal"]) == (row.exit_code, row.signal)
    assert fault.summary["benchmark_result"]["wall_time"] == -1
    assert len(fault.world.summary_files()) == 3
    assert list(fault.world.temporary.iterdir()) == []


def test_an_exception_leaves_its_traceback_in_the_summary_and_in_the_logs(world: World) -> None:
    fault = run_fault(world, "self._deeper()", more="    def _deeper(self): raise OSError(5, 'x')")
    trace = fault.outcome["exception"]["traceback"]
    assert fault.outcome["exception"]["type"] == "OSError"
    assert "in fault" in trace
    assert "in _deeper" in trace
    assert "in _deeper" in (fault.folder / "stderr.log").read_text()
    assert "in _deeper" in (fault.folder / "perfzero.log").read_text()
    assert "in _deeper" in fault.done.stderr  # live, without --quiet


def test_what_the_user_has_to_put_right_is_one_line_without_its_traceback(world: World) -> None:
    body = "from perfrun import SetupError\nraise SetupError('depth is 3; it must be even')"
    fault = run_fault(world, body)
    assert "in fault" in fault.outcome["exception"]["traceback"]
    log = (fault.folder / "stderr.log").read_text()
    assert len(log.splitlines()) == 1
    assert log.endswith("ERROR: depth is 3; it must be even\n")
    assert "Traceback" not in fault.done.stderr


def test_a_package_that_is_not_installed_is_named_in_one_line(world: World) -> None:
    world.write("import no_such_package\nfrom perfrun import Benchmark", module="bare")
    fault = run_fault(world, method="pkg.bare.Bare.train")
    assert fault.outcome["reason"] == "ModuleNotFoundError: No module named 'no_such_package'"
    assert (fault.outcome["phase"], fault.outcome["status"]) == ("import", "failed")
    said = "No module named 'no_such_package': install it in the environment under test"
    assert said in fault.done.stderr
    assert "Traceback" not in fault.done.stderr


def test_a_module_that_is_missing_within_a_package_keeps_its_traceback(world: World) -> None:
    world.write("import pkg.absent\nfrom perfrun import Benchmark", module="broken")
    fault = run_fault(world, method="pkg.broken.Broken.train")
    assert "import pkg.absent" in fault.done.stderr


def test_a_report_made_before_an_exception_is_kept(world: World) -> None:
    fault = run_fault(
        world,
        """
        self.report_benchmark(wall_time=2.5, metrics=[{"name": "speed", "value": 7}])
        raise RuntimeError("too late")
        """,
    )
    assert fault.outcome["status"] == "failed"
    [report] = fault.summary["perfrun"]["reports"]
    assert (report["wall_time"], report["metrics"][0]["value"]) == (2.5, 7.0)
    result = fault.summary["benchmark_result"]
    assert (result["wall_time"], result["extras"], result["metrics"]) == (-1, [], [])


def test_a_crash_leaves_a_stack_that_names_the_function(world: World) -> None:
    fault = run_fault(
        world, "self.null()", more="    def null(self):\n        import ctypes; ctypes.string_at(0)"
    )
    assert "Segmentation fault" in fault.outcome["stack"]
    assert "in null" in fault.outcome["stack"]


def test_a_crash_of_a_thread_is_the_trials(world: World) -> None:
    fault = run_fault(
        world,
        """
        import ctypes
        thread = threading.Thread(target=ctypes.string_at, args=(0,))
        thread.start()
        thread.join()
        """,
    )
    assert (fault.outcome["status"], fault.outcome["signal"]) == ("crashed", "SIGSEGV")


# A no-op trial takes a tenth of a second on an idle machine. Where one takes longer than the first
# of these, which is a busy machine's doing, all is done again with the second.
TIMEOUTS_S = (6, 90)


@dataclass(frozen=True, kw_only=True)
class Hang:
    """A method that does not end, and what is to become of it."""

    body: str = "pass"
    method: str = f"{CASES}.fault"
    more: str = ""
    status: str = "timed_out"
    phase: str = "method"
    has_deadline: bool = True

    def start(self, world: World, timeout_s: int) -> subprocess.Popen[bytes]:
        """Run it between `first` and `last`, with a deadline that these keep."""
        write_three(world, self.body, self.more)
        (world.folder / "code/pkg/slow.py").write_text("import time\ntime.sleep(600)")
        words = [f"--timeout={timeout_s}"] if self.has_deadline else []
        return world.start("--format=json", *words, methods=",".join(three(self.method)))


HANG_AT_EXIT = """
self.report_benchmark(wall_time=2.0)
threading.Thread(target=time.sleep, args=(600,)).start()
"""
HANGS = {
    "at the deadline": Hang(
        body="self.waits_for_ever()",
        more="    def waits_for_ever(self): threading.Event().wait()",
    ),
    "ignoring SIGTERM": Hang(
        body="self.is_stubborn()",
        more="""
    def is_stubborn(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "600"])
        subprocess.Popen(["sleep", "601"], start_new_session=True)
        while True:
            time.sleep(600)
""",
    ),
    "while importing": Hang(method="pkg.slow.Any.method", phase="import"),
    "after its outcome": Hang(body=HANG_AT_EXIT, status="passed"),
    "after its outcome, without a deadline": Hang(
        body=HANG_AT_EXIT, status="passed", has_deadline=False
    ),
}
Begun = tuple[World, subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def begun() -> Iterator[dict[str, Begun]]:
    """The runs of HANGS, once they are started; those that no test asks for are interrupted."""
    runs: dict[str, Begun] = {}
    yield runs
    for _, process in runs.values():
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        if process.stdout and not process.stdout.closed:
            finish(process)


@pytest.fixture
def hangs(begun: dict[str, Begun], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Begun]:
    """All of HANGS, started at the same time: they do next to nothing but wait."""
    if not begun:
        for name, hang in HANGS.items():
            world = World(tmp_path_factory.mktemp("hang"))
            begun[name] = world, hang.start(world, TIMEOUTS_S[0])
    return begun


def ended_hang(hangs: dict[str, Begun], name: str) -> tuple[Fault, int]:
    """Return what became of one of HANGS, and its deadline."""
    hang, (world, process) = HANGS[name], hangs[name]
    for timeout_s in TIMEOUTS_S:
        if timeout_s != TIMEOUTS_S[0]:
            process = hang.start(world, timeout_s)
        done = finish(process, 480.0)
        outcome = done.summaries()[1]["perfrun"]["outcome"]
        others_end = done.statuses[::2] == ["passed", "passed"]
        if others_end and (outcome["status"], outcome["phase"]) == (hang.status, hang.phase):
            break
    return checked(world, done, three(hang.method)), timeout_s


def test_a_hang_is_ended_at_the_deadline_and_its_stack_names_the_function(
    hangs: dict[str, Begun],
) -> None:
    fault, timeout_s = ended_hang(hangs, "at the deadline")
    assert fault.outcome["status"] == "timed_out"
    assert fault.outcome["reason"] == f"not finished after {timeout_s} s, during method"
    assert "in waits_for_ever" in fault.outcome["stack"]
    assert fault.summary["perfrun"]["usage"]["elapsed_s"] >= timeout_s


def test_a_hang_that_ignores_sigterm_is_dumped_and_killed_with_its_children(
    hangs: dict[str, Begun],
) -> None:
    fault, _ = ended_hang(hangs, "ignoring SIGTERM")
    assert (fault.outcome["status"], fault.outcome["signal"]) == ("timed_out", "SIGKILL")
    assert "in is_stubborn" in fault.outcome["stack"]


def test_a_hang_while_importing_is_said_to_be_one(hangs: dict[str, Begun]) -> None:
    fault, timeout_s = ended_hang(hangs, "while importing")
    assert fault.outcome["reason"] == f"not finished after {timeout_s} s, during import"


STRAYS = {
    "in the same session": 'subprocess.Popen(["sleep", "600"])',
    "in a session of its own": 'subprocess.Popen(["sleep", "600"], start_new_session=True)',
    "twice forked": """
        begun, write = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "600"])
            os._exit(0)
        os.wait()
        os.close(write)
        os.read(begun, 1)  # its end is closed by what it executes
    """,
    "with children of its own, all ignoring SIGTERM": """
        script = "trap '' TERM; sleep 600 & echo begun; sleep 600"
        child = subprocess.Popen(["sh", "-c", script], stdout=-1, start_new_session=True)
        child.stdout.readline()
    """,
}


@pytest.mark.parametrize("body", STRAYS.values(), ids=STRAYS.keys())
def test_a_child_that_outlives_its_parent_is_killed_and_named(body: str, world: World) -> None:
    fault = run_fault(world, textwrap.dedent(body) + "\nself.report_benchmark(wall_time=2.0)")
    assert fault.outcome["status"] == "passed"
    assert any("sleep 600" in stray for stray in fault.outcome["stray_processes"])
    assert "killed: " in fault.notes


def test_the_children_of_a_killed_method_die_too(world: World) -> None:
    fault = run_fault(
        world,
        """
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert fault.outcome["status"] == "crashed"
    assert len(fault.outcome["stray_processes"]) == 1


def test_a_forked_child_that_fails_does_not_speak_for_the_method(world: World) -> None:
    fault = run_fault(
        world,
        """
        if os.fork() == 0:
            raise RuntimeError("in the child")
        os.wait()
        self.report_benchmark(wall_time=2.0)
        """,
    )
    assert fault.outcome["status"] == "passed"
    assert fault.summary["benchmark_result"]["wall_time"] == 2.0
    assert fault.notes == ""


LINES = 200_000


def test_200_000_printed_lines_are_all_kept_and_all_shown(world: World) -> None:
    fault = run_fault(
        world,
        f"""
        for number in range({LINES}):
            print("line", number)
        self.report_benchmark(wall_time=2.0)
        """,
    )
    printed = [f"line {number}" for number in range(LINES)]
    assert (fault.folder / "stdout.log").read_text().splitlines() == printed
    shown = [line for line in fault.done.stderr.splitlines() if line.startswith("line ")]
    assert shown == printed


def test_quiet_shows_nothing_of_what_a_benchmark_prints(world: World) -> None:
    fault = run_fault(world, "print('heard'); self.report_benchmark()", "--quiet")
    assert (fault.folder / "stdout.log").read_text() == "heard\n"
    assert "heard" not in fault.done.stderr + fault.done.stdout


def test_output_that_is_not_utf_8_is_kept_byte_for_byte(world: World) -> None:
    fault = run_fault(
        world,
        r"""
        sys.stdout.buffer.write(b"\xff\xfe caf\xe9\n")
        os.write(2, b"\x80\n")
        print("\udcff \N{SNOWMAN}")
        raise ValueError("\udcff \0 \N{SNOWMAN}")
        """,
        PYTHONUTF8="0",
        LC_ALL="C",
    )
    assert (fault.folder / "stdout.log").read_bytes().startswith(b"\xff\xfe caf\xe9\n")
    assert (fault.folder / "stderr.log").read_bytes().startswith(b"\x80\n")
    assert fault.outcome["status"] == "failed"
    assert fault.outcome["reason"].startswith("ValueError: ")
    assert "\N{REPLACEMENT CHARACTER}" in fault.outcome["stderr_tail"]


def test_a_message_of_a_megabyte_does_not_break_the_summary(world: World) -> None:
    fault = run_fault(world, r"raise ValueError('\N{SNOWMAN}' * 1_000_000)", "--quiet")
    assert fault.outcome["status"] == "failed"
    assert len(fault.outcome["reason"]) <= 300
    assert len(fault.outcome["exception"]["message"]) < 100_000


IMPORTS = {
    # Of names that are certainly wrong no trial is made: test_wrong_names.py.
    "a method that is missing": ("pkg.cases.Maker.none", "WrongNameError: .*has no method 'none'"),
    "a method that is misspelt": ("pkg.cases.Maker.frist", "WrongNameError: .*; did you mean fir"),
    "a module that lacks another": ("pkg.lacking.Any.method", "ModuleNotFoundError: .*nowhere"),
    "a constructor that raises": ("pkg.cases.Picky.method", "KeyError: 'not like this'"),
    "a class that takes no arguments": ("pkg.cases.Closed.method", "TypeError: .*output_dir.*"),
    "a module that is not Python": ("pkg.broken.Any.method", "SyntaxError: .*"),
}
CLASSES = """
class Picky:
    def __init__(self, **kwargs):
        raise KeyError("not like this")

    def method(self):
        pass

class Closed:
    def __init__(self):
        pass

    def method(self):
        pass

class Maker:
    def __init__(self, **kwargs):
        setattr(self, "first", None)

    def first(self):
        pass
"""


@pytest.mark.parametrize(("method", "reason"), IMPORTS.values(), ids=IMPORTS.keys())
def test_what_cannot_be_imported_or_constructed_fails_alone(
    method: str, reason: str, world: World
) -> None:
    world.write("def (:", module="broken")
    world.write("import nowhere", module="lacking")
    fault = run_fault(world, method=method, more=CLASSES)
    assert fault.outcome["status"] == "failed"
    assert re.match(reason, fault.outcome["reason"])
    assert fault.outcome["exception"]["traceback"]
    by_the_user = (
        "WrongNameError",
        "ModuleNotFoundError",
        "TypeError",
    )  # the name that was given is wrong
    assert ("Traceback" in fault.done.stderr) is not reason.startswith(by_the_user)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("os._exit(0)", "the process ended with status 0 during import"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV during import"),
        ("sys.exit(4)", "the benchmark called sys.exit(4)"),
    ],
)
def test_a_module_that_ends_the_process_while_imported_is_said_to_do_so(
    source: str, reason: str, world: World
) -> None:
    world.write(source, module="deadly")
    fault = run_fault(world, method="pkg.deadly.Any.method")
    assert fault.outcome["reason"] == reason
    assert fault.outcome["phase"] == "import"


def test_a_constructor_that_crashes_is_said_to_do_so(world: World) -> None:
    fault = run_fault(
        world,
        method="pkg.cases.Crash.method",
        more="class Crash:\n    def __init__(self, **kw): os.kill(os.getpid(), signal.SIGKILL)\n"
        "    def method(self): pass",
    )
    assert fault.outcome["reason"] == "SIGKILL during construct"


@pytest.fixture
def wrapper(tmp_path: Path) -> Path:
    """An interpreter that cannot be started once, after the file `gone` has been made."""
    path = tmp_path / "python wrapper"
    gone = tmp_path / "gone"
    path.write_text(
        f"#!/bin/sh\nif rm '{gone}' 2>/dev/null; then exec /no/such/python \"$@\"; fi\n"
        f"exec '{sys.executable}' \"$@\"\n"
    )
    path.chmod(0o755)
    return path


def test_a_worker_that_does_not_start_fails_alone(wrapper: Path, world: World) -> None:
    more = "class Breaks(Faults):\n    def first(self):\n        super().first()\n"
    more += f"        open({str(wrapper.parent / 'gone')!r}, 'w').close()"
    world.write(f"{CLASS}\n{more}")
    methods = "pkg.cases.Breaks.first,pkg.cases.Faults.first,pkg.cases.Faults.last"
    done = world.run(f"--python={wrapper}", "--format=json", methods=methods)
    assert (done.code, done.statuses) == (1, ["passed", "failed", "passed"])
    outcome = done.summaries()[1]["perfrun"]["outcome"]
    assert outcome["phase"] == "start"
    assert outcome["reason"].startswith("the worker did not start (exit status 127)")
    assert "/no/such/python" in outcome["reason"]


def test_an_interpreter_that_vanishes_costs_no_summary_nor_the_end_of_the_run(
    wrapper: Path, world: World
) -> None:
    remove = f"    def fault(self):\n        os.unlink({str(wrapper)!r})\n"
    world.write(CLASS + remove + "        self.report_benchmark(wall_time=2.0)")
    methods = f"{CASES}.first,{CASES}.fault,{CASES}.last"
    done = world.run(f"--python={wrapper}", "--format=json", methods=methods)
    assert (done.code, done.statuses) == (1, ["passed", "passed", "failed"])
    outcome = done.summaries()[2]["perfrun"]["outcome"]
    assert outcome["phase"] == "start"
    assert outcome["reason"].startswith("the worker could not be started: ")
    assert str(wrapper) in outcome["reason"]
    assert "Traceback" not in done.stderr


def test_a_benchmark_that_removes_its_own_folder_still_has_an_outcome(world: World) -> None:
    fault = run_fault(
        world,
        """
        import shutil
        self.report_benchmark(wall_time=2.0)
        shutil.rmtree(self.output_dir)
        """,
    )
    assert fault.outcome["status"] == "passed"
    assert "removed its output folder" in fault.notes
    assert len(fault.world.summary_files()) == 3  # in its place, where readers look for it


@pytest.mark.parametrize("close", ["os.close(1); os.close(2)", "os.closerange(0, 1024)"])
def test_a_benchmark_that_closes_its_descriptors_passes(close: str, world: World) -> None:
    fault = run_fault(
        world,
        f"""
        {close}
        # Files that now get the numbers just closed, and must not be written into by others.
        mine = [open(os.path.join(self.output_dir, f"mine{{n}}"), "w") for n in range(12)]
        self.report_benchmark(wall_time=2.0)
        """,
    )
    assert fault.outcome["status"] == "passed"
    assert fault.summary["benchmark_result"]["wall_time"] == 2.0
    mine = {path.read_bytes() for path in fault.folder.glob("mine*")}
    assert all(b"complete" not in text for text in mine)


def test_a_benchmark_may_leave_its_folder_when_the_workspace_is_relative(world: World) -> None:
    fault = run_fault(
        world,
        """
        os.chdir("/")
        assert os.path.isabs(self.output_dir)
        open(os.path.join(self.output_dir, "kept"), "w").close()
        self.report_benchmark(wall_time=2.0)
        """,
        "--workspace=relative place",
    )
    assert fault.outcome["status"] == "passed"
    assert (fault.folder / "kept").exists()
    assert fault.folder.parent.parent == world.folder / "relative place"


def test_a_report_file_that_is_garbage_is_noted_and_the_others_are_read(world: World) -> None:
    fault = run_fault(
        world,
        r"""
        self.report_benchmark(wall_time=2.0)
        with open(os.path.join(self.output_dir, "proto_Faults.garbage"), "wb") as file:
            file.write(b"\x0a\xff\xff garbage")
        os.mkdir(os.path.join(self.output_dir, "proto_folder"))
        """,
    )
    assert fault.outcome["status"] == "passed"
    assert fault.summary["benchmark_result"]["wall_time"] == 2.0
    assert "proto_Faults.garbage cannot be read" in fault.notes


def test_a_worker_that_hangs_after_its_outcome_has_passed_and_is_killed(
    hangs: dict[str, Begun],
) -> None:
    fault, _ = ended_hang(hangs, "after its outcome")
    assert fault.outcome["status"] == "passed"
    assert "did not end after its method had; killed" in fault.notes


@pytest.mark.slow
def test_a_worker_that_hangs_after_its_outcome_does_not_wait_for_the_deadline(
    hangs: dict[str, Begun],
) -> None:
    fault, _ = ended_hang(hangs, "after its outcome, without a deadline")
    assert fault.outcome["status"] == "passed"
    assert "did not end after its method had; killed" in fault.notes


# Disks and memory


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[None]:
    """Unmount what the test, or a benchmark of it, has mounted below the test's folder."""
    yield
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        place = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), line.split()[1])
        if Path(place).is_relative_to(tmp_path):
            subprocess.run(["umount", "--lazy", place], check=True)


READ_ONLY = {
    "before the report": "{make}\nself.report_benchmark(wall_time=2.0, extras={{'n': 5}})",
    "after the report": "self.report_benchmark(wall_time=2.0, extras={{'n': 5}})\n{make}",
}


def check_read_only(fault: Fault, when: str) -> None:
    """The measured numbers are in the summary, wherever that had to go."""
    perfrun = fault.summary["perfrun"]
    if when == "before the report":
        assert fault.outcome["status"] == "failed"
        [unsaved] = perfrun["unsaved_reports"]
        assert (unsaved["wall_time"], unsaved["extras"]) == (2.0, {"n": 5})
    else:
        assert fault.outcome["status"] == "passed"
        assert fault.summary["benchmark_result"]["wall_time"] == 2.0
    assert fault.folder.is_relative_to(fault.world.temporary)
    assert "cannot be written" in fault.done.stderr


@pytest.mark.parametrize("when", READ_ONLY)
@pytest.mark.usefixtures("mounts")
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_an_output_folder_mounted_read_only_costs_no_number(when: str, world: World) -> None:
    make = textwrap.dedent(
        """
        out = self.output_dir
        subprocess.run(["mount", "--bind", out, out], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", out], check=True)
        """
    )
    check_read_only(run_fault(world, READ_ONLY[when].format(make=make)), when)


def without_capabilities() -> tuple[str, ...]:
    """A command prefix under which even root needs permission to write."""
    if os.geteuid() != 0:
        return ()
    if not shutil.which("setpriv"):
        pytest.skip("root can write anywhere, and there is no setpriv")
    return ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


@pytest.mark.parametrize("when", READ_ONLY)
def test_an_output_folder_made_unwritable_costs_no_number(when: str, tmp_path: Path) -> None:
    world = World(tmp_path, prefix=without_capabilities())
    make = (
        "for folder in (self.output_dir, os.path.join(self.output_dir, 'perfrun')):\n"
        "    os.chmod(folder, 0o555)"
    )
    fault = run_fault(world, READ_ONLY[when].format(make=make))
    for folder in world.workspace.glob("output/*/"):
        folder.chmod(0o755)  # so that pytest can remove it
    check_read_only(fault, when)


@pytest.mark.parametrize("left_over", [0, 20_000, 60_000])
@pytest.mark.usefixtures("mounts")
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_full_disk_costs_no_summary_and_no_other_method(left_over: int, world: World) -> None:
    world.workspace.mkdir()
    size = ["-o", "size=16m"]
    subprocess.run(["mount", "-t", "tmpfs", *size, "tmpfs", str(world.workspace)], check=True)
    fault = run_fault(
        world,
        f"""
        path = os.path.join(self.output_dir, "big")
        with open(path, "wb", buffering=0) as file:
            for size in (1 << 20, 1 << 16, 4096, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    pass
        os.truncate(path, os.path.getsize(path) - {left_over})
        self.report_benchmark(wall_time=2.0, extras={{"n": 5}})
        """,
    )
    perfrun = fault.summary["perfrun"]
    full = f"the disk of {world.workspace / 'output'} is full ("
    assert fault.done.stderr.count(full) == 1, fault.done.stderr  # before `last`
    if fault.outcome["status"] == "failed":
        assert "No space left" in fault.outcome["reason"]
        assert "; the disk of its folder is full (" in fault.outcome["reason"]
        assert perfrun["unsaved_reports"][0]["extras"] == {"n": 5}
    else:
        assert left_over
        assert perfrun["reports"][0]["wall_time"] == 2.0
    assert len(fault.world.summary_files()) == 3
    with (fault.folder / "perfzero_summary.json").open() as file:
        strict(file.read())


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A cgroup that may hold 150 MiB, version 1 or 2, with the file to join it."""
    name = f"perfrun-test-{os.getpid()}"
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    root, limit = (v1, "memory.limit_in_bytes") if v1.is_dir() else (v2, "memory.max")
    group = root / name
    try:
        group.mkdir()
        (group / limit).write_text(str(150 << 20))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"no memory cgroup can be made: {error}")
    for swap, value in (("memory.swappiness", "0"), ("memory.swap.max", "0")):
        if (group / swap).exists():
            (group / swap).write_text(value)
    yield group / "cgroup.procs"
    wait_until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="cgroups need root")
def test_a_method_that_the_kernel_kills_for_memory_is_oom_killed(
    small_memory: Path, world: World
) -> None:
    fault = run_fault(
        world,
        f"""
        with open({str(small_memory)!r}, "w") as file:
            file.write(str(os.getpid()))
        held = [bytearray(os.urandom(1 << 20)) for _ in range(1000)]
        self.report_benchmark(wall_time=len(held))
        """,
    )
    assert (fault.outcome["status"], fault.outcome["signal"]) == ("oom_killed", "SIGKILL")
    assert fault.outcome["reason"] == "killed by the kernel for want of memory during method"
    assert fault.summary["process_info"]["max_rss"] > 100 << 20


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="cgroups need root")
def test_who_is_killed_for_memory_beside_a_method_that_is_killed_is_told_apart(
    small_memory: Path, world: World
) -> None:
    with OomKills() as killed:
        fault = run_fault(
            world,
            f"""
            hold = "[bytearray(os.urandom(1 << 20)) for _ in range(1000)]"
            join = "open({str(small_memory)!r}, 'w').write(str(os.getpid()))"
            child = subprocess.run([sys.executable, "-c", f"import os; {{join}}; {{hold}}"])
            assert child.returncode == -signal.SIGKILL
            os.kill(os.getpid(), signal.SIGKILL)
            """,
        )
        kills, is_certain = killed.of(os.getpid())
    if is_certain:
        assert kills == 0
        assert fault.outcome["status"] == "crashed"
        assert fault.outcome["reason"] == "SIGKILL during method"
    else:
        assert kills >= 1
        assert fault.outcome["status"] == "oom_killed"
        assert "/dev/kmsg" in fault.notes
