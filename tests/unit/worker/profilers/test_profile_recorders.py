"""The profilers of a profile trial, one by one: what they do when things are not as they should."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfrun.worker.measure.stopping import Limits
from perfrun.worker.profilers import profile_recorder, profile_trial, tensorflow
from perfrun.worker.profilers.allocations import CudaHistory, SnapshotRecorder
from perfrun.worker.profilers.profile_recorder import ProfileRecorder, UnavailableError, imported
from perfrun.worker.profilers.profile_trial import ProfileTrial
from perfrun.worker.profilers.profile_windows import MainThreadCall
from perfrun.worker.profilers.sampling import SpyRecorder, ThreadRecorder, largest


class Fake(ProfileRecorder):
    """Records nothing, and notes when it is told to."""

    tool, version, scope = "fake", "1", "nothing"
    traces_every_operation = True

    def __init__(self, folder: str, fails: str = "") -> None:
        super().__init__(folder)
        self.calls: list[str] = []
        self._fails = fails

    def _do(self, what: str) -> None:
        self.calls.append(what)
        if what.split()[0] == self._fails:
            raise RuntimeError("another profiler is on")

    def start(self) -> None:
        self._do("start")

    def pause(self) -> None:
        self._do("pause")

    def resume(self) -> None:
        self._do("resume")

    def stop(self, keep: bool) -> None:
        self._do("stop keep" if keep else "stop forget")

    def top(self) -> list[dict[str, Any]]:
        self._do("top")
        return [{"name": "f"}]


def faked(
    monkeypatch: pytest.MonkeyPatch, folder: Path, fails: str = "", scope: str = "timed"
) -> tuple[ProfileTrial, Fake]:
    made: list[Fake] = []

    def make(_kind: str, place: str) -> Fake:
        made.append(Fake(place, fails))
        return made[0]

    monkeypatch.setattr(profile_trial, "make_recorder", make)
    return ProfileTrial("torch", str(folder), scope), made[0]


def measures(profile: ProfileTrial, series: str, intervals: int = 1) -> None:
    """Tell the profile what a measurement of so many timed intervals tells it."""
    profile.measurement_begins()
    profile.interval_ends()  # of the warm-up
    for _ in range(intervals):
        profile.interval_begins(series)
        profile.interval_ends()
    profile.timed_part_ends(20 * intervals)


def test_a_method_that_does_not_measure_is_recorded_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profile, recorder = faked(monkeypatch, tmp_path)
    with profile:
        assert profile_recorder.observer() is profile
    assert profile_recorder.observer() is None
    facts = profile.facts()
    assert recorder.calls == ["start", "stop keep", "top"]
    [window] = facts["windows"]
    assert (window["part"], window["steps"], facts["error"]) == ("method", None, None)
    assert window["begin_s"] <= window["end_s"]


def test_of_a_method_that_measures_only_the_timed_steps_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profile, recorder = faked(monkeypatch, tmp_path)
    with profile:
        measures(profile, "one")
        measures(profile, "two", intervals=2)
    first = ["start", "pause", "stop keep"]
    second = ["start", "pause", "resume", "pause", "stop keep"]
    assert recorder.calls == ["start", "stop forget", *first, *second]
    assert [w["series"] for w in profile.facts()["windows"]] == ["one", "two"]
    assert [w["steps"] for w in profile.facts()["windows"]] == [20, 40]


@pytest.mark.parametrize("scope", ["method", "process"])
def test_a_wider_scope_is_one_window_whatever_the_method_measures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scope: str
) -> None:
    profile, recorder = faked(monkeypatch, tmp_path, scope=scope)
    profile.process_begins()
    with profile:
        measures(profile, "one")
    facts = profile.facts()
    assert recorder.calls == ["start", "stop keep", "top"]
    assert [window["part"] for window in facts["windows"]] == [scope]
    assert (facts["windows"][0]["begin_s"] < 0) == (scope == "process")


def test_a_trace_has_few_steps_whatever_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profile, _ = faked(monkeypatch, tmp_path)
    for asked, steps in ((None, 20), (5, 5), (1000, 20)):
        limits = profile.limits(Limits(iterations=asked, warmup=7, block_size=100))
        assert (limits.iterations, limits.block_size, limits.warmup) == (steps, 1, 7)


def test_the_ninth_measurement_of_a_method_is_not_traced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profile, recorder = faked(monkeypatch, tmp_path)
    with profile:
        for number in range(9):
            measures(profile, str(number))
    assert recorder.calls.count("stop keep") == 8
    notes = profile.facts()["notes"]
    assert notes == ["the first 8 measurements were recorded, and not the other 1"]


@pytest.mark.parametrize("fails", ["start", "stop", "top"])
def test_a_profiler_that_fails_is_said_and_never_raised(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: str
) -> None:
    profile, _ = faked(monkeypatch, tmp_path, fails)
    with profile:
        pass
    assert "another profiler is on" in profile.facts()["error"]


def test_a_library_that_is_not_there_is_one_line() -> None:
    with pytest.raises(UnavailableError) as error:
        imported("no_such_module_at_all", "Nothing")
    assert str(error.value).startswith("Nothing cannot be imported in this environment")


def spin(seconds: float) -> None:
    """Seconds of CPU time: while the machine stands still, nobody can look at a stack."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_the_sampler_takes_what_cannot_be_written_in_a_folded_line(tmp_path: Path) -> None:
    recorder, done = ThreadRecorder(str(tmp_path)), threading.Event()

    def spin_on() -> None:
        while not done.is_set():
            spin(0.001)

    other = threading.Thread(target=spin_on, name="thread; with ; signs")
    other.start()
    recorder.start()
    spin(0.4)
    recorder.stop(keep=True)
    done.set()
    other.join()
    lines = (tmp_path / "stacks.folded").read_text("utf-8").splitlines()
    assert all(line.rpartition(" ")[2].isdigit() for line in lines)
    # Besides threads that the tests' own machinery has.
    assert {"MainThread", "thread: with : signs"} <= {line.split(";")[0] for line in lines}
    assert recorder.top()[0]["name"] == "spin"
    recorder.start()
    recorder.stop(keep=False)
    assert recorder.top() == []


def test_time_counts_once_for_a_function_that_calls_itself() -> None:
    frame, other = ("f", "a.py:1"), ("g", "a.py:9")
    [first, second] = largest([((frame, frame, other), 2.0), ((frame,), 1.0), ((), 5.0)])
    assert (first["name"], first["self_s"], first["total_s"]) == ("g", 2.0, 2.0)
    assert (second["name"], second["self_s"], second["total_s"]) == ("f", 1.0, 3.0)


def spied(folder: Path, *stacks: tuple[str, ...]) -> str:
    """Write what py-spy writes of stacks of `function file`, ten milliseconds each."""
    frames = sorted({frame for stack in stacks for frame in stack})
    parts = [frame.split(" ", 1) for frame in frames]
    shown = [{"name": name, "file": file, "line": 7} for name, file in parts]
    samples = [[frames.index(frame) for frame in stack] for stack in stacks]
    profile = {"samples": samples, "weights": [0.01] * len(stacks)}
    path = folder / "speedscope.json"
    path.write_text(json.dumps({"shared": {"frames": shown}, "profiles": [profile]}))
    return str(path)


def test_of_py_spys_stacks_those_of_the_steps_count(tmp_path: Path) -> None:
    loop = str(Path(profile_trial.__file__).parents[1] / "measure" / "loop.py")
    step = (f"Measuring.run {loop}", f"run_block {loop}", "C.step /m/cases.py")
    between = (f"Measuring.run {loop}", f"Measuring._record {loop}", "median /m/other.py")
    recorder = SpyRecorder(str(tmp_path), "/bin/true")
    recorder._files.append(spied(tmp_path, step, between, step))
    recorder.times_steps_only = True
    [row] = recorder.top()
    assert (row["name"], row["self_s"]) == ("C.step", 0.02)
    recorder.times_steps_only = False
    assert [row["name"] for row in recorder.top()] == ["C.step", "median"]


def test_where_py_spy_may_not_look_the_sampler_does(tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo py-spy 0.4.0 && exit\n'
        "echo Error: Permission Denied >&2; exit 1\n"
    )
    program.chmod(0o755)
    recorder = SpyRecorder(str(tmp_path), str(program))
    assert (recorder.tool, recorder.version) == ("py-spy", "0.4.0")
    recorder.start()
    spin(0.2)
    recorder.stop(keep=True)
    assert recorder.tool == "perfrun's sampler"
    assert recorder.notes == ["py-spy could not be used: Error: Permission Denied"]
    assert recorder.top()[0]["name"] == "spin"
    assert (tmp_path / "stacks.folded").read_text("utf-8")


def test_tracemalloc_says_what_its_looks_have_missed(tmp_path: Path) -> None:
    recorder = SnapshotRecorder(str(tmp_path))
    recorder.start()
    recorder._ended.set()  # nobody looks any more
    assert recorder._thread
    recorder._thread.join()
    block = bytearray(30_000_000)
    del block
    recorder.stop(keep=True)
    [note] = recorder.notes
    assert "for a moment there were 28.6 MiB" in note


def test_pytorchs_cuda_allocations_are_recorded_between_start_and_stop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[tuple[str, Any]] = []
    memory = SimpleNamespace(
        _record_memory_history=lambda **options: calls.append(("record", options)),
        _dump_snapshot=lambda path: calls.append(("dump", path)),
    )
    cuda = SimpleNamespace(is_available=lambda: True, memory=memory)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    history = CudaHistory(str(tmp_path))
    history.start()
    history.stop(keep=True)
    assert calls == [
        ("record", {"max_entries": 100_000}),
        ("dump", str(tmp_path / "cuda_memory.pickle")),
        ("record", {"enabled": None}),
    ]


def test_a_call_is_made_in_the_main_thread_while_that_is_at_work() -> None:
    threads: list[threading.Thread] = []
    ended = threading.Event()
    made: list[bool] = []

    def ask() -> None:
        call = MainThreadCall(lambda: threads.append(threading.current_thread()))
        made.append(call.run(ended))

    asking = threading.Thread(target=ask)
    asking.start()
    end = time.monotonic() + 30
    while asking.is_alive() and time.monotonic() < end:
        spin(0.001)
    assert made == [True]
    assert threads == [threading.main_thread()]


def test_a_call_whose_turn_never_came_is_not_made_later() -> None:
    called: list[int] = []
    call = MainThreadCall(lambda: called.append(1))
    assert call._cancel()
    call._call(None)  # as the interpreter may do, long after
    assert called == []
    made = MainThreadCall(lambda: called.append(2))
    made._call(None)
    assert not made._cancel(), "what was done cannot be called off"
    assert called == [2]


def plane(name: str, *events: tuple[str, int, int]) -> tensorflow.Plane:
    """A recording of one plane with one line; events are name, begin and duration in ps."""
    return tensorflow.Plane(
        name, [tensorflow.Line("thread", 7, 5_000, [tensorflow.Event(*e) for e in events])]
    )


EVENTS = (("outer", 0, 100), ("inner", 10, 30), ("inner", 50, 20), ("outer", 200, 10))


def test_what_ran_inside_an_event_is_not_its_own_time() -> None:
    planes = [plane("/host:CPU", *EVENTS)]
    assert tensorflow.self_times(planes) == {"outer": (2, 60), "inner": (2, 50)}


def test_devices_count_where_there_are_some() -> None:
    devices = [plane("/device:GPU:0", ("inner", 0, 9)), plane("/device:CPU:1")]
    assert tensorflow.self_times([plane("/host:CPU", *EVENTS), *devices]) == {"inner": (1, 9)}


def test_a_recording_becomes_a_trace_for_perfetto(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planes = [plane("/host:CPU", *EVENTS)]
    trace = tensorflow.Trace()
    trace.add(planes)
    trace.write(str(tmp_path / "trace.json.gz"))
    with gzip.open(tmp_path / "trace.json.gz", "rt", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    assert [e["args"]["name"] for e in events if e["ph"] == "M"] == ["/host:CPU", "thread"]
    shown = [e for e in events if e["ph"] == "X"]
    assert (shown[1]["name"], shown[1]["ts"], shown[1]["dur"]) == ("inner", 5.00001, 3e-5)
    monkeypatch.setattr(tensorflow, "MOST_EVENTS", 4)
    short = tensorflow.Trace()
    short.add(planes)
    assert (len(short.events), short.left_out) == (4, 2)


WRITTEN = """
import json, sys
from tensorflow.tsl.profiler.protobuf import xplane_pb2
sys.path.insert(0, sys.argv[1])
from perfrun.worker.profilers import tensorflow
space = xplane_pb2.XSpace()
plane = space.planes.add(name="/host:CPU")
plane.event_metadata[1].name = "outer"
plane.event_metadata[2].name = "_Z5inner"
plane.event_metadata[2].display_name = "inner"
line = plane.lines.add(id=7, name="thread", timestamp_ns=5_000)
for number, begin, duration in ((1, 0, 100), (2, 10, 30), (2, 50, 20), (3, 200, 10)):
    line.events.add(metadata_id=number, offset_ps=begin, duration_ps=duration)
data = space.SerializeToString()
said = {"planes": tensorflow.decode_planes(data), "refused": 0}
for cut in (data[:-9], b"\\x0a\\x05ab", b"\\x0b"):
    try:
        tensorflow.decode_planes(cut)
    except Exception:
        said["refused"] += 1
print(json.dumps(said))
"""


@pytest.mark.tensorflow
def test_tensorflows_protobuf_reads_a_recording_and_refuses_one_that_is_cut_short(
    tensorflow_python: str,
) -> None:
    root = Path(tensorflow.__file__).resolve().parents[3]
    argv = [tensorflow_python, "-c", WRITTEN, str(root)]
    said = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    events = [["outer", 0, 100], ["inner", 10, 30], ["inner", 50, 20], ["?", 200, 10]]
    assert said["planes"] == [["/host:CPU", [["thread", 7, 5_000, events]]]]
    assert said["refused"] == 3


def test_without_tensorflows_protobuf_the_text_says_what_is_missing() -> None:
    with pytest.raises(UnavailableError, match="TensorFlow's recordings"):
        tensorflow.decode_planes(b"")


MEMRAY = """
import json, sys, tempfile
sys.path.insert(0, sys.argv[1])
from perfrun.worker.profilers.allocations import allocation_recorder

def make():
    return [bytearray(1000) for _ in range(2000)]

def step():
    return len(make())

def begin(recorder, depth):
    recorder.start() if depth == 0 else begin(recorder, depth - 1)

found = []
for by_line in (False, True):
    recorder = allocation_recorder(tempfile.mkdtemp(), by_line)
    recorder.start()
    step()
    recorder.stop(keep=False)
    for _ in range(2):
        begin(recorder, 5)
        step()
        recorder.stop(keep=True)
    found.append([recorder.tool, recorder.top()])
print(json.dumps(found))
"""


@pytest.mark.torch
def test_memray_keeps_the_stacks_however_deep_it_was_started(
    torch_python: str, tmp_path: Path
) -> None:
    """It loses the frames of the thread that starts it: those that return afterwards."""
    program = tmp_path / "program.py"
    program.write_text(MEMRAY)
    root = Path(profile_trial.__file__).resolve().parents[3]
    done = subprocess.run(
        [torch_python, str(program), str(root)], check=True, capture_output=True, text=True
    )
    (tool, places), (_, lines) = json.loads(done.stdout.splitlines()[-1])
    if tool != "memray":
        pytest.skip("the environment has no memray")
    source = "return [bytearray(1000) for _ in range(2000)]"
    where = f"{program}:{1 + MEMRAY.splitlines().index('    ' + source)}"
    assert places[0]["name"] in ("<listcomp>", "make")
    for most in (places[0], lines[0]):
        assert most["where"] == where
        # The largest of the two windows, and not their sum.
        assert most["bytes"] == pytest.approx(2_020_000, rel=0.03)
    assert lines[0]["name"] == source
