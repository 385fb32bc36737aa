"""Profile windows: started and stopped at their seconds, in order, and never left open."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest

from perfrun.worker.profiler import WindowedProfiler


class Recorder:
    """Stands where `tf.profiler.experimental` is."""

    def __init__(self, start_takes_s: float = 0.0, fails: str = "") -> None:
        self.calls: list[tuple[str, float]] = []
        self.folders: list[str] = []
        self._start_takes_s, self._fails = start_takes_s, fails
        self._begin = time.monotonic()

    def start(self, folder: str) -> None:
        self.calls.append(("start", time.monotonic() - self._begin))
        self.folders.append(folder)
        if self._fails == "start":
            raise RuntimeError("Another profiler is running.")
        if len(self.calls) == 1:
            time.sleep(self._start_takes_s)

    def stop(self) -> None:
        self.calls.append(("stop", time.monotonic() - self._begin))
        if self._fails == "stop":
            raise RuntimeError("No profiler is running.")

    @property
    def order(self) -> list[str]:
        return [name for name, _ in self.calls]


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "waited for 20 s"
        time.sleep(0.01)


def install(monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> Recorder:
    module = ModuleType("tensorflow")
    vars(module)["profiler"] = SimpleNamespace(experimental=recorder)
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    return recorder


def test_without_windows_there_is_no_thread() -> None:
    before = threading.active_count()
    profiler = WindowedProfiler([], "/nowhere")
    profiler.start()
    assert threading.active_count() == before
    profiler.stop()


def test_windows_are_recorded_at_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = install(monkeypatch, Recorder())
    profiler = WindowedProfiler([[0.1, 0.2], [0.4, 500]], "/folder")
    profiler.start()
    wait_for(lambda: len(recorder.calls) == 3)
    profiler.stop()
    assert recorder.order == ["start", "stop", "start", "stop"]
    for (_, seconds), earliest in zip(recorder.calls, (0.1, 0.2, 0.4), strict=False):
        assert seconds >= earliest
    assert recorder.folders == ["/folder", "/folder"]
    assert profiler.notes == []


def test_a_slow_start_does_not_shift_the_windows_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = install(monkeypatch, Recorder(start_takes_s=1.0))
    profiler = WindowedProfiler([[0, 0.9], [1.1, 500]], "/folder")
    profiler.start()
    wait_for(lambda: len(recorder.calls) == 3)
    profiler.stop()
    # Were each window counted from the end of the one before, this would be 2.1 at the earliest.
    assert 1.1 <= recorder.calls[2][1] < 2.0


def test_a_method_that_ends_early_closes_the_open_window(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = install(monkeypatch, Recorder())
    profiler = WindowedProfiler([[0, 365 * 24 * 3600]], "/folder")
    profiler.start()
    wait_for(lambda: recorder.calls)
    profiler.stop()
    assert recorder.order == ["start", "stop"]


def test_a_window_to_come_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = install(monkeypatch, Recorder())
    profiler = WindowedProfiler([[500, 10**15]], "/folder")
    profiler.start()
    profiler.stop()
    assert recorder.calls == []


@pytest.mark.parametrize(("fails", "said"), [("start", "not start"), ("stop", "not stop")])
def test_a_profiler_that_fails_is_a_note(
    monkeypatch: pytest.MonkeyPatch, fails: str, said: str
) -> None:
    recorder = install(monkeypatch, Recorder(fails=fails))
    profiler = WindowedProfiler([[0, 100]], "/folder")
    profiler.start()
    wait_for(lambda: recorder.calls)
    profiler.stop()
    (note,) = profiler.notes
    assert said in note


def test_an_end_beyond_what_a_clock_can_count_still_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = install(monkeypatch, Recorder())
    profiler = WindowedProfiler([[0, 10**15]], "/folder")
    profiler.start()
    wait_for(lambda: recorder.calls)
    time.sleep(0.05)
    profiler.stop()
    assert recorder.order == ["start", "stop"]


def test_without_tensorflow_it_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    profiler = WindowedProfiler([[0, 100]], "/folder")
    profiler.start()
    wait_for(lambda: profiler.notes)
    profiler.stop()
    assert "no profile" in profiler.notes[0]
