"""`Benchmark.measure` on steps whose times are known: sleeps, a made-up device, made garbage."""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cputime import arithmetic, cpu_ratio
from hypothesis import given, settings
from hypothesis import strategies as st

from perfrun import Benchmark
from perfrun.run.outcome import read_series
from perfrun.worker.author import PREFIX_VARIABLE
from perfrun.worker.measure import loop
from perfrun.worker.measure.measurement import derive, evaluate
from perfrun.worker.measure.series_files import Columns, Rows, parse_rows
from perfrun.worker.outcome_file import SERIES_VARIABLE
from perfrun.worker.test_log import decode_entries

ROOT = Path(__file__).resolve().parents[4]
SHORT: dict[str, Any] = {"min_time_s": 0, "max_time_s": 0.2}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trial's private folder, and its reports beside it."""
    private = tmp_path / 'it\'s "private"\n'
    private.mkdir()
    monkeypatch.setenv(SERIES_VARIABLE, str(private))
    monkeypatch.setenv(PREFIX_VARIABLE, str(tmp_path / "proto_"))
    return private


def only_series(folder: Path) -> dict[str, Any]:
    notes: list[str] = []
    (series,) = read_series(folder, notes)
    assert not notes
    return dict(series)


def metrics(entry: dict[str, Any]) -> dict[str, float]:
    return {metric["name"]: metric["value"] for metric in entry["metrics"]}


class Device:
    """Works behind the program's back, on a thread of its own, as an accelerator does."""

    def __init__(self, work_s: float) -> None:
        self._work_s = work_s
        self._queue: deque[Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._watched = threading.Event()
        self._pending = 0
        self._ended = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def launch(self) -> None:
        self.enqueue(lambda: time.sleep(self._work_s))

    def enqueue(self, work: Callable[[], object]) -> None:
        with self._changed:
            self._pending += 1
            self._queue.append(work)
            self._changed.notify_all()

    def wait_for_attention(self) -> None:
        """Work that cannot be over before somebody waits for it, however slow they are."""
        self._watched.wait()
        time.sleep(self._work_s)

    def synchronize(self) -> None:
        self._watched.set()
        with self._changed:
            self._changed.wait_for(lambda: not self._pending)
        self._watched.clear()

    def end(self) -> None:
        self._watched.set()
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._ended)
                if not self._queue:
                    return
                work = self._queue.popleft()
            work()
            with self._changed:
                self._pending -= 1
                self._changed.notify_all()


def test_a_sleep_of_known_length_reads_back(folder: Path) -> None:
    found = Benchmark().measure(lambda: time.sleep(0.02), items_per_step=3, iterations=12, warmup=1)
    assert 0.02 <= found.min_s <= found.median_s < 0.2
    assert found.first_call_s >= 0.02
    assert found.warmup_s >= 0.02
    assert (found.iterations, found.warmup_iterations, found.block_size) == (12, 1, 1)
    assert found.stopped_by == "iterations"
    assert found.throughput is not None
    assert found.throughput * found.median_s == pytest.approx(3, rel=1e-12)
    assert found.cpu_s < 0.01
    assert len(found.times_s) == 12
    assert found.p90_s is None
    assert found.p99_s is None
    assert found.facts["statistics"]["absent"]["p99"].startswith("needs 299 timed")


def test_the_report_is_what_perfzeros_readers_read(folder: Path, tmp_path: Path) -> None:
    class Sleeps(Benchmark):
        def nap(self) -> None:
            self.measure(
                lambda: time.sleep(0.002),
                items_per_step=8,
                iterations=40,
                extras={"why": "test"},
                metrics=[{"name": "known", "value": 7, "min_value": 7}],
            )

    Sleeps().nap()
    (entry,) = decode_entries((tmp_path / "proto_Sleeps.nap").read_bytes())
    found = metrics(entry)
    assert entry["name"] == "Sleeps.nap"
    assert entry["iters"] == 40
    assert entry["wall_time"] == found["latency_median_s"] == found["latency_p50_s"]
    assert entry["throughput"] == found["examples_per_second"]
    assert found["examples_per_second_per_device"] == found["examples_per_second"]
    assert entry["wall_time"] * entry["throughput"] == pytest.approx(8, rel=1e-12)
    assert found["latency_min_s"] <= found["latency_median_s"] <= found["latency_max_s"]
    if "latency_median_low_s" in found:  # else neighbours were so alike that there is none
        assert found["latency_median_low_s"] <= found["latency_median_s"]
        assert found["latency_median_s"] <= found["latency_median_high_s"]
    assert {"latency_mean_s", "first_call_s", "warmup_s", "known"} <= set(found)
    extras = {extra["name"]: extra["value"] for extra in entry["extras"]}
    series = only_series(folder)
    steady = series["times_s"][series["steadiness"]["steady_from"] or 0 :]
    assert found["latency_std_s"] == pytest.approx(statistics.stdev(steady), rel=1e-6)
    rates = [8 / time_s for time_s in steady]
    assert found["examples_per_second_std"] == pytest.approx(statistics.stdev(rates), rel=1e-6)
    assert extras["why"] == "test"
    assert {"steadiness", "stopped_by", "block_size"} <= set(extras)
    series = only_series(folder)
    assert series["report"] == "Sleeps.nap"
    assert series["complete"] is True
    assert {name: m["value"] for name, m in series["metrics"].items()} == {
        name: value for name, value in found.items() if name != "known"
    }
    assert {m["unit"] for m in series["metrics"].values()} == {"s", "examples/s"}
    assert series["metrics"]["examples_per_second"]["direction"] == "higher"
    assert series["metrics"]["first_call_s"]["direction"] == "lower"


def test_a_loop_as_context_manager_reads_the_same_length(folder: Path) -> None:
    with Benchmark().measuring(name="loop", iterations=7, warmup=2) as timer:
        for _ in timer:
            time.sleep(0.02)
    found = timer.measurement
    assert found is not None
    assert (found.iterations, found.warmup_iterations) == (7, 2)
    assert 0.02 <= found.median_s < 0.2
    assert only_series(folder)["name"] == "loop"


def test_short_steps_are_timed_in_blocks_and_the_timer_is_a_thousandth_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ns = calls = 0

    def clock() -> int:
        """It takes 40 ns to read; a step takes 100."""
        nonlocal now_ns
        now_ns += 40
        return now_ns

    def step() -> None:
        nonlocal calls, now_ns
        calls += 1
        now_ns += 100

    for module in (loop, loop):
        monkeypatch.setattr(module, "_clock", clock)
    found = Benchmark().measure(step, **SHORT)
    assert found.facts["timer"]["overhead_s"] == pytest.approx(40e-9)
    assert 0.0005 < found.facts["timer"]["share"] <= 0.001
    assert 400 <= found.block_size <= 800
    assert found.facts["steps"] == found.block_size * found.iterations
    assert calls == found.facts["steps"] + found.facts["warmup"]["steps"] + 1
    assert found.median_s == pytest.approx(100e-9, rel=0.002)


def test_on_a_real_clock_the_timer_is_a_thousandth_too() -> None:
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1

    shares = []
    for _ in range(20):  # one in which the machine did nothing else
        calls = 0
        found = Benchmark().measure(step, **SHORT)
        assert found.facts["timer"]["overhead_s"] > 0
        assert found.facts["steps"] == found.block_size * found.iterations
        assert calls == found.facts["steps"] + found.facts["warmup"]["steps"] + 1
        shares.append(found.facts["timer"]["share"])
        if shares[-1] <= 0.002 and found.block_size > 50 and 1e-9 < found.median_s < 1e-5:
            return
    pytest.fail(f"the timer took {shares} of a block")


def test_the_slow_start_of_a_step_is_kept_apart() -> None:
    waits = iter([0.2, 0.1, 0.05])
    found = Benchmark().measure(lambda: time.sleep(next(waits, 0.01)), iterations=15, warmup=2)
    assert found.first_call_s >= 0.2
    assert found.warmup_s >= 0.15
    assert found.median_s < 0.1


def test_work_that_runs_behind_the_call_is_waited_for() -> None:
    device = Device(0.02)
    try:
        found = Benchmark().measure(
            device.launch, synchronize=device.synchronize, iterations=5, warmup=2, block_size=1
        )
    finally:
        device.end()
    assert found.min_s >= 0.02
    assert found.first_call_s >= 0.02
    assert found.facts["synchronised_by"] == ["synchronize="]


def test_without_the_wait_only_launches_would_be_timed() -> None:
    # The mistake that waiting prevents: the test above must be able to fail.
    device = Device(0.02)
    try:
        found = Benchmark().measure(device.launch, iterations=5, warmup=2, block_size=1)
    finally:
        device.end()
    assert found.min_s < 0.01


def test_work_queued_before_is_not_counted() -> None:
    device = Device(0.1)
    queued_was_done_s: list[float] = []
    launches_s: list[float] = []

    def step() -> None:
        launches_s.append(time.perf_counter())
        device.launch()

    try:
        device.launch()
        device.launch()
        device.enqueue(lambda: queued_was_done_s.append(time.perf_counter()))
        found = Benchmark().measure(
            step, synchronize=device.synchronize, iterations=2, warmup=0, block_size=1
        )
    finally:
        device.end()
    # The first call was over before the second: it began when nothing was queued any more.
    assert found.first_call_s <= launches_s[1] - queued_was_done_s[0]


class Framework:
    """A stand-in for PyTorch with a device of its own: what the real one does without a GPU."""

    __version__ = "2.13"

    def __init__(self, device: Device) -> None:
        self.accelerator = self
        self.cuda = self
        self._device = device

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return False

    def current_accelerator(self) -> Any:
        return type("device", (), {"type": "mps"})

    def synchronize(self) -> None:
        self._device.synchronize()


def test_a_device_is_waited_for_without_being_asked_for_and_when_loaded_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = Device(0.02)

    def step() -> None:
        if "torch" not in sys.modules:  # a framework that the first step imports
            monkeypatch.setitem(sys.modules, "torch", Framework(device))
        device.launch()

    try:
        found = Benchmark().measure(step, iterations=5, warmup=1, block_size=1)
        assert found.first_call_s >= 0.02
        assert found.min_s >= 0.02
        assert found.facts["synchronised_by"] == ["torch.accelerator.synchronize"]
        told = Benchmark().measure(
            lambda: device.enqueue(device.wait_for_attention),
            synchronize=False,
            iterations=5,
            warmup=1,
            block_size=1,
        )
    finally:
        device.end()
    assert told.min_s < 0.02
    assert any("the times are too short" in note for note in told.notes)


class Cuda(Framework):
    """The same with CUDA's calls: two devices, memory on both, and events on the device's queue."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.synchronized: set[int] = set()
        self.backends = self.cudnn = self
        self.benchmark = True

    def is_initialized(self) -> bool:
        return True

    def current_accelerator(self) -> Any:
        return type("device", (), {"type": "cuda"})

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 3

    def memory_reserved(self, index: int) -> int:
        return (2**20, 2**20, 0)[index]

    def get_device_name(self, _index: int) -> str:
        return "Example 1"

    def synchronize(self, index: int = 0) -> None:
        self.synchronized.add(index)
        self._device.synchronize()

    def Event(self, enable_timing: bool) -> Any:
        device = self._device

        class Event:
            at_s = 0.0

            def record(self) -> None:
                device.enqueue(lambda: setattr(self, "at_s", time.perf_counter()))

            def elapsed_time(self, later: Any) -> float:
                return float(later.at_s - self.at_s) * 1e3

        assert enable_timing
        return Event()


def test_cuda_events_give_the_devices_own_time_which_is_not_longer_than_the_clocks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(0.02)
    torch = Cuda(device)
    monkeypatch.setitem(sys.modules, "torch", torch)
    try:
        found = Benchmark().measure(
            device.launch, iterations=6, warmup=1, block_size=1, report=False, items_per_step=4
        )
    finally:
        device.end()
    assert found.device_time_s is not None
    assert 0.02 <= found.device_time_s <= found.median_s
    assert torch.synchronized == {0, 1}  # not the one that nobody uses
    assert found.facts["devices"] == 2
    assert found.facts["device"] == "cuda (Example 1)"
    assert found.facts["cudnn_autotune"] is True
    assert found.throughput is not None
    assert found.throughput_per_device == found.throughput / 2
    assert found.facts["metrics"]["device_time_median_s"]["unit"] == "s"
    rows = parse_rows((folder / "series_1.rows").read_bytes())
    pairs = zip(rows.device_ns[1:], rows.wall_ns[1:], strict=True)
    assert all(0 < device_ns <= wall_ns for device_ns, wall_ns in pairs)


def make_cycles() -> None:
    for _ in range(3000):
        cycle: list[Any] = []
        cycle.append(cycle)


def test_garbage_collections_in_the_timed_part_are_counted() -> None:
    found = Benchmark().measure(make_cycles, iterations=20, warmup=5, block_size=1).facts["gc"]
    assert found["mode"] == "on"
    assert sum(found["collections"]) >= 20
    assert found["time_s"] > 0
    assert 0 < found["share"] <= 1


@pytest.mark.parametrize("mode", ["off", "between"])
def test_the_collector_can_be_kept_out_of_the_intervals_and_is_put_back(mode: str) -> None:
    before = sum(generation["collections"] for generation in gc.get_stats())
    options = {"iterations": 20, "warmup": 2, "block_size": 1}
    found = Benchmark().measure(make_cycles, gc=mode, **options).facts["gc"]
    assert set(found["collections"]) == {0}
    assert gc.isenabled()
    ran = sum(generation["collections"] for generation in gc.get_stats()) - before
    assert (ran >= 15) == (mode == "between")  # one or two follow when it is back
    assert not [callback for callback in gc.callbacks if "Garbage" in repr(callback)]


def test_a_step_that_raises_leaves_its_series_and_an_untouched_collector(folder: Path) -> None:
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        if calls == 9:
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        Benchmark().measure(step, block_size=1, warmup=2, max_time_s=600, gc="off")
    assert gc.isenabled()
    series = only_series(folder)
    assert series["report"] is None
    assert (series["complete"], series["stopped_by"], series["iterations"]) == (
        False,
        "exception",
        5,
    )
    assert Benchmark().measure(lambda: None, iterations=3).iterations == 3  # and can go on


KILLED = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from perfrun import Benchmark
calls = 0
def step():
    global calls
    calls += 1
    if calls > int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.001)
Benchmark().measure(step, block_size=1, warmup=4, name="killed", iterations=10_000)
"""


@pytest.mark.parametrize(("calls", "timed"), [(65, 60), (3, 0), (0, 0)])
def test_a_killed_process_leaves_every_time_it_had_taken(
    folder: Path, calls: int, timed: int
) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(ROOT), str(calls)], check=False)
    assert done.returncode == -9
    series = only_series(folder)
    assert (series["name"], series["complete"], series["stopped_by"]) == ("killed", False, None)
    assert series["report"] is None
    assert series["iterations"] == len(series["times_s"]) == timed
    assert (series["first_call_s"] is None) == (calls == 0)
    if timed:
        assert series["warmup"]["iterations"] == 4
        assert series["statistics"]["median_s"] >= 0.001
        assert series["metrics"]["latency_median_s"]["value"] >= 0.001
        assert series["block_size"] == 1
    else:
        assert series["statistics"] is None
        assert series["metrics"] == {}


@pytest.mark.parametrize("as_loop", [False, True])
def test_what_prepares_an_interval_is_called_before_each_and_not_timed(as_loop: bool) -> None:
    heaps: list[list[int]] = []
    benchmark, items = Benchmark(), 5

    def prepare() -> None:
        time.sleep(0.02)
        heaps.append([1] * items)

    def step() -> None:
        heaps[-1].pop()  # IndexError if a list served two intervals

    options = {"prepare": prepare, "block_size": items, "iterations": 7, "warmup": items}
    if as_loop:
        with benchmark.measuring(report=False, **options) as timer:
            for _ in timer:
                step()
        measured = timer.measurement
    else:
        measured = benchmark.measure(step, report=False, **options)
    assert measured is not None
    assert measured.iterations == 7
    assert measured.min_s * items < 0.02  # no interval would be shorter if it were timed
    assert all(len(heap) in (0, items - 1) for heap in heaps)  # of the first call, one is used
    with pytest.raises(TypeError):
        benchmark.measure(step, prepare=7)


def test_measurements_cannot_be_nested(folder: Path) -> None:
    def nested() -> None:
        Benchmark().measure(lambda: None)

    with pytest.raises(RuntimeError, match="inner cannot be measured while outer is"):
        Benchmark().measure(lambda: Benchmark().measure(lambda: None, name="inner"), name="outer")
    with pytest.raises(RuntimeError, match="neither nested nor run from several threads"):
        Benchmark().measure(nested)


def test_a_second_thread_waits_for_nobody_and_is_refused() -> None:
    raised: list[BaseException] = []

    def other() -> None:
        try:
            Benchmark().measure(lambda: None, name="other")
        except RuntimeError as error:
            raised.append(error)

    def step() -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    Benchmark().measure(step, name="first", iterations=1, warmup=0)
    assert [str(error).partition(":")[0] for error in raised] == [
        "other cannot be measured while first is"
    ] * 2


def test_several_measurements_have_names_of_their_own(folder: Path, tmp_path: Path) -> None:
    class Several(Benchmark):
        def method(self) -> None:
            for _ in range(2):
                self.measure(lambda: None, iterations=2)
            for _ in range(2):
                self.measure(lambda: None, iterations=2, name="named")

    Several().method()
    names = ["method", "method_2", "named", "named_2"]
    assert [series["name"] for series in read_series(folder, [])] == names
    assert sorted(path.name for path in tmp_path.glob("proto_*")) == [
        f"proto_Several.{name}" for name in names
    ]


def test_without_a_harness_it_measures_in_memory_and_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PREFIX_VARIABLE, raising=False)
    monkeypatch.delenv(SERIES_VARIABLE, raising=False)
    found = Benchmark().measure(lambda: None, iterations=20, name="here")
    assert len(found.times_s) == 20
    assert capsys.readouterr().out.startswith("Benchmark.here ")
    assert str(found).startswith("here: ")


def test_a_report_can_be_left_to_the_benchmark(folder: Path, tmp_path: Path) -> None:
    found = Benchmark().measure(lambda: None, iterations=2, report=False)
    assert not list(tmp_path.glob("proto_*"))
    assert only_series(folder)["report"] is None
    mine = found.report_arguments({"note": 1}, [{"name": "x", "value": 2}])
    assert mine["extras"]["note"] == 1
    assert mine["metrics"][-1] == {"name": "x", "value": 2}


def test_leaving_the_loop_early_is_said_and_an_empty_one_is_an_error(folder: Path) -> None:
    with Benchmark().measuring(block_size=1, warmup=1, max_time_s=600) as timer:
        for number, _ in enumerate(timer):
            if number == 6:
                break
    assert timer.measurement is not None
    assert (timer.measurement.stopped_by, timer.measurement.facts["complete"]) == ("left", False)
    with pytest.raises(RuntimeError, match="nothing was timed"), Benchmark().measuring():
        pass
    with pytest.raises(RuntimeError, match="write `with"):
        next(iter(Benchmark().measuring()))


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"items_per_step": 0}, ValueError, "items_per_step is 0"),
        ({"items_per_step": "8"}, TypeError, "items_per_step is '8'"),
        ({"devices": 0}, ValueError, "devices is 0"),
        ({"gc": "never"}, ValueError, "gc is 'never'; it must be one of on, off, between"),
        ({"synchronize": True}, TypeError, "synchronize must be a function"),
        ({"iterations": 0}, ValueError, "iterations is 0"),
        ({"iteration": 5}, TypeError, "iteration"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_runs(
    options: dict[str, Any], kind: type[Exception], said: str
) -> None:
    calls: list[None] = []
    with pytest.raises(kind, match=said):
        Benchmark().measure(lambda: calls.append(None), **options)
    assert not calls


def test_throughput_is_shared_by_the_devices() -> None:
    found = Benchmark().measure(
        lambda: time.sleep(0.001), items_per_step=10, devices=4, iterations=5, report=False
    )
    assert found.throughput is not None
    assert found.throughput_per_device == pytest.approx(found.throughput / 4)


def test_a_disk_that_takes_nothing_does_not_stop_a_measurement(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(SERIES_VARIABLE, str(tmp_path / "absent"))
    found = Benchmark().measure(lambda: None, iterations=5, report=False)
    assert found.iterations == 5
    assert "not all raw times are on disk" in found.notes[-1]


def test_rows_grow_and_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "x.rows"
    rows = Rows(str(path))
    for number in range(5000):
        rows.append(number, number + 1, -1, 2)
    in_memory = rows.read()
    assert parse_rows(path.read_bytes()) == in_memory  # before it is closed, as after a kill
    rows.close()
    assert parse_rows(path.read_bytes()) == in_memory
    assert [column[4999] for column in in_memory] == [4999, 5000, -1, 2]
    assert len(in_memory.steps) == 5000
    assert path.stat().st_size == 5000 * 32


def test_rows_go_on_in_memory_when_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = Rows(str(tmp_path / "x.rows"))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    for number in range(3000):
        rows.append(number, 0, -1, 1)
    assert list(rows.read().wall_ns) == list(range(3000))
    assert rows.trouble is not None
    assert len(parse_rows((tmp_path / "x.rows").read_bytes()).steps) == 1024


def test_a_disk_that_is_full_from_the_start_costs_the_file_and_no_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setenv(SERIES_VARIABLE, str(tmp_path))
    found = Benchmark().measure(lambda: None, iterations=5, report=False)
    assert found.iterations == 5
    assert "not all raw times are on disk: [Errno 28] No space left" in found.notes[-1]
    assert (tmp_path / "series_1.rows").stat().st_size == 0


row = st.builds(
    lambda wall, cpu, share, steps: (wall, cpu, -1 if share is None else int(wall * share), steps),
    st.integers(1, 10**10),
    st.integers(0, 10**10),
    st.one_of(st.none(), st.floats(0, 1)),
    st.integers(1, 1000),
)


@given(st.lists(row, min_size=1, max_size=200), st.floats(0.1, 1e6), st.integers(1, 64))
@settings(max_examples=100)
def test_latency_times_throughput_is_the_items_and_the_device_is_never_slower_than_the_clock(
    rows: list[tuple[int, ...]], items: float, devices: int
) -> None:
    columns = Columns(*zip(*rows, strict=True))
    facts = derive({"items_per_step": items, "item": "x", "devices": devices, **evaluate(columns)})
    median_s = facts["statistics"]["median_s"]
    assert facts["throughput_per_s"] * median_s == pytest.approx(items, rel=1e-9)
    assert facts["throughput_per_device_per_s"] * devices == pytest.approx(
        facts["throughput_per_s"], rel=1e-9
    )
    assert len(facts["times_s"]) == facts["iterations"] == len(rows)
    assert facts["steps"] == sum(columns.steps)
    if min(columns.device_ns) >= 0:
        assert facts["device_time_s"] <= median_s * (1 + 1e-9)
    json.dumps(facts, allow_nan=False)


def test_ten_thousand_rows_are_evaluated_soon() -> None:
    many = 10_000
    rows = Columns([10**6 + n % 97 for n in range(many)], [10**6] * many, [-1] * many, [1] * many)
    assert cpu_ratio(lambda: evaluate(rows), arithmetic, rounds=3) < 100


def test_importing_the_author_api_does_not_import_the_loop() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from perfrun import Benchmark;"
        "print([m for m in sys.modules if m.startswith('perfrun')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)], capture_output=True, text=True, check=True
    )
    assert "measur" not in done.stdout
    assert "stopping" not in done.stdout


async def _coroutine() -> None: ...


def _generator() -> Any:
    yield


async def _asynchronous_generator() -> Any:
    yield


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (5, "must be a function"),
        (_coroutine, "a coroutine"),
        (_generator, "a generator"),
        (_asynchronous_generator, "an asynchronous generator"),
    ],
)
def test_a_step_that_runs_nothing_when_it_is_called_is_refused(step: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Benchmark().measure(step)
    assert Benchmark().measure(bool, iterations=1, warmup=0).iterations == 1


def test_a_block_that_would_never_end_is_refused() -> None:
    with pytest.raises(ValueError, match="block_size is 1000000000000; at most"):
        Benchmark().measure(int, block_size=10**12)


def test_what_has_to_settle_is_done_once_after_the_first_call() -> None:
    calls: list[str] = []
    found = Benchmark().measure(
        lambda: calls.append("step"),
        after_first_call=lambda: calls.append("settled"),
        iterations=3,
        warmup=2,
        block_size=1,
        report=False,
    )
    assert calls == ["step", "settled", *["step"] * 5]
    assert (found.iterations, found.warmup_iterations) == (3, 2)
    with pytest.raises(TypeError, match="after_first_call must be a function"):
        Benchmark().measure(lambda: None, after_first_call=3)
