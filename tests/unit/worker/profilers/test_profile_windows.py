"""Profile windows: started and stopped at their seconds, in order, and never left open."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest

from perfrun.worker.profilers import profile_windows as module
from perfrun.worker.profilers.profile_windows import ProfileWindows


class Clock:
    """Made up: it stands still but for what is waited for on it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Ended(threading.Event):
    """Waits on that clock, and never for what is far away."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        if timeout > 100:
            return super().wait()
        self._clock.now += timeout
        return self.is_set()


class Recorder:
    """Stands where `tf.profiler.experimental` is."""

    def __init__(self, fails: str = "", clock: Clock | None = None) -> None:
        self.calls: list[tuple[str, float]] = []
        self.folders: list[str] = []
        self._fails, self._clock = fails, clock
        self._now = clock.monotonic if clock else time.monotonic
        self._begin = self._now()

    def start(self, folder: str) -> None:
        self.calls.append(("start", self._now() - self._begin))
        self.folders.append(folder)
        if self._fails == "start":
            raise RuntimeError("Another profiler is running.")
        if self._clock and len(self.calls) == 1:
            self._clock.now += 1.0  # as the first start of a profiler may take

    def stop(self) -> None:
        self.calls.append(("stop", self._now() - self._begin))
        if self._fails == "stop":
            raise RuntimeError("No profiler is running.")

    @property
    def order(self) -> list[str]:
        return [name for name, _ in self.calls]


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited for 60 s"
        time.sleep(0.01)


def install(monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> Recorder:
    module = ModuleType("tensorflow")
    vars(module)["profiler"] = SimpleNamespace(experimental=recorder)
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    return recorder


def test_without_windows_there_is_no_thread() -> None:
    before = set(threading.enumerate())  # some may be just about to end
    profiler = ProfileWindows([], "/nowhere")
    profiler.start()
    assert set(threading.enumerate()) <= before
    profiler.stop()


def test_windows_are_recorded_at_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = install(monkeypatch, Recorder())
    profiler = ProfileWindows([[0.1, 0.2], [0.4, 500]], "/folder")
    profiler.start()
    wait_for(lambda: len(recorder.calls) == 3)
    profiler.stop()
    assert recorder.order == ["start", "stop", "start", "stop"]
    for (_, seconds), earliest in zip(recorder.calls, (0.1, 0.2, 0.4), strict=False):
        assert seconds >= earliest
    assert recorder.folders == ["/folder", "/folder"]
    assert profiler.notes == []


def test_a_slow_start_does_not_shift_the_windows_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    recorder = install(monkeypatch, Recorder(clock=clock))
    monkeypatch.setattr(module, "time", clock)
    profiler = ProfileWindows([[0, 0.9], [1.25, 500]], "/folder")
    profiler._stopped = Ended(clock)
    profiler.start()
    wait_for(lambda: len(recorder.calls) == 3)
    profiler.stop()
    # Were each window counted from the end of the one before, the third would be 2.25.
    assert recorder.calls[:3] == [("start", 0.0), ("stop", 1.0), ("start", 1.25)]


def test_a_method_that_ends_early_closes_the_open_window(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = install(monkeypatch, Recorder())
    profiler = ProfileWindows([[0, 365 * 24 * 3600]], "/folder")
    profiler.start()
    wait_for(lambda: recorder.calls)
    profiler.stop()
    assert recorder.order == ["start", "stop"]


def test_a_window_from_the_start_is_there_however_short_the_method(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = install(monkeypatch, Recorder())
    profiler = ProfileWindows([[0, 1], [2, 3]], "/folder")
    profiler._stopped.set()  # the method is over before the thread is given the processor
    profiler.start()
    profiler.stop()
    assert recorder.order == ["start", "stop"]


def torch_stands_by(monkeypatch: pytest.MonkeyPatch, recorder: Switches) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setattr(module, "_recorder", lambda *_: recorder)


class Switches:
    """Stands where `TorchRecorder` is, which records the thread that starts it."""

    tool, version, scope = "torch.profiler", "2", "PyTorch"

    def __init__(self) -> None:
        self.calls: list[tuple[str, threading.Thread]] = []

    def start(self) -> None:
        self.calls.append(("start", threading.current_thread()))

    def stop(self, keep: bool) -> None:
        self.calls.append(("keep" if keep else "drop", threading.current_thread()))


def test_pytorchs_window_from_the_start_is_there_before_the_method_and_however_short_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = Switches()
    torch_stands_by(monkeypatch, recorder)
    profiler = ProfileWindows([[0, 1], [2, 3]], "/folder", "torch")
    profiler._stopped.set()  # the method is over before the thread is given the processor
    profiler.start()
    assert [name for name, _ in recorder.calls[:3]] == ["start", "drop", "start"]  # warmed up first
    profiler.stop()
    assert [name for name, _ in recorder.calls[3:]] == ["keep"]
    assert {thread for _, thread in recorder.calls} == {threading.current_thread()}
    assert profiler.is_used
    assert profiler.notes == []


def test_a_pytorch_that_the_method_itself_imports_and_is_over_too_soon_is_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = Switches()
    profiler = ProfileWindows([[0, 1]], "/folder", "torch")
    torch = sys.modules.pop("torch", None)
    assert torch is None
    go = threading.Event()
    record = profiler._record
    profiler._thread = threading.Thread(target=lambda: go.wait() and record(), daemon=True)
    profiler._framework = None
    profiler.start()
    torch_stands_by(monkeypatch, recorder)
    profiler._stopped.set()
    go.set()
    profiler.stop()  # the main thread waits here: nothing is begun in it
    assert recorder.calls == []
    assert not profiler.is_used
    (note,) = profiler.notes
    assert "the method was over before PyTorch's profiler began" in note


def test_a_window_to_come_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = install(monkeypatch, Recorder())
    profiler = ProfileWindows([[500, 10**15]], "/folder")
    profiler.start()
    profiler.stop()
    assert recorder.calls == []


@pytest.mark.parametrize(("fails", "said"), [("start", "not start"), ("stop", "not stop")])
def test_a_profiler_that_fails_is_a_note(
    monkeypatch: pytest.MonkeyPatch, fails: str, said: str
) -> None:
    recorder = install(monkeypatch, Recorder(fails=fails))
    profiler = ProfileWindows([[0, 100]], "/folder")
    profiler.start()
    wait_for(lambda: recorder.calls)
    profiler.stop()
    (note,) = profiler.notes
    assert said in note


def test_an_end_beyond_what_a_clock_can_count_still_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = install(monkeypatch, Recorder())
    profiler = ProfileWindows([[0, 10**15]], "/folder")
    profiler.start()
    wait_for(lambda: recorder.calls)
    time.sleep(0.05)
    profiler.stop()
    assert recorder.order == ["start", "stop"]


def test_without_tensorflow_it_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    profiler = ProfileWindows([[0, 100]], "/folder")
    profiler.start()
    wait_for(lambda: profiler.notes)
    profiler.stop()
    assert "no profile" in profiler.notes[0]
