"""Three rates of an ingestion whose loader and device take known times on a fake clock."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks._support.datasets import feeding
from benchmarks._support.datasets.ingesting import Ingesting
from benchmarks._support.datasets.loading import endless
from perfrun.worker.measure import loop

BATCH = 8
LOAD_S, STEP_S = 0.03, 0.015


class Clock:
    """A clock on which only sleeping takes time, whatever this machine does."""

    def __init__(self) -> None:
        self.now_ns = 10**9

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)

    def perf_counter_ns(self) -> int:
        return self.now_ns


CLOCK = Clock()


@pytest.fixture(autouse=True)
def made_up_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "time", CLOCK)
    for module in (loop, loop):
        monkeypatch.setattr(module, "_clock", CLOCK.perf_counter_ns)


class Sleeping:
    """A loader that sleeps `load_s` for a batch, but has some ready, or gives several at once."""

    def __init__(self, load_s: float, *, ready: int = 0, burst: int = 1) -> None:
        self.batch_size = BATCH
        self.prefetched = ready
        self.burst = burst
        self.is_open = False
        self.notes: dict[str, Any] = {"loader": "sleeping"}
        self._load_s = load_s
        self._given = 0

    def __next__(self) -> tuple[str, str]:
        if not self.is_open:
            self.is_open, self._given = True, 0
        self._given += 1
        if self._given > self.prefetched and self._given % self.burst == 0:
            CLOCK.sleep(self._load_s * self.burst)
        return "images", "labels"

    def close(self) -> None:
        self.is_open = False


class Fed(Ingesting):
    """An ingestion of that loader; a step sleeps, and `reports` keeps what it reports."""

    def __init__(self, loader: Sleeping, **knobs: object) -> None:
        super().__init__(**knobs)
        self.loader = loader
        self.reports: list[dict[str, Any]] = []

    def _images(self) -> Any:
        return None

    def _loader(self, images: Any, batch_size: int) -> Sleeping:
        return self.loader

    def _resident(self, batch: Any) -> Any:
        return batch

    def _step(self, batch: Any) -> None:
        assert batch == ("images", "labels")
        CLOCK.sleep(STEP_S)

    def _notes(self) -> dict[str, Any]:
        return {"device": "a sleep"}

    def report_benchmark(self, **report: Any) -> None:  # type: ignore[override]
        assert not self.loader.is_open, "it would go on loading while something else is timed"
        self.reports.append(report)

    @property
    def metrics(self) -> dict[str, float]:
        [report] = self.reports
        return {metric["name"]: metric["value"] for metric in report["metrics"]}


def assert_rate(rate: float, batch_s: float) -> None:
    assert rate == pytest.approx(BATCH / batch_s)


def test_a_loader_and_a_device_of_known_times_read_back_with_their_ratio() -> None:
    fed = Fed(Sleeping(LOAD_S), iterations=9, warmup=1)
    fed.all_three()
    found = fed.metrics
    assert_rate(found["loader_images_per_second"], LOAD_S)
    assert_rate(found["device_images_per_second"], STEP_S)
    assert_rate(found["end_to_end_images_per_second"], LOAD_S + STEP_S)
    # Nothing is loaded while the device works: 30 ms of every 45 are spent waiting.
    assert found["data_wait_share"] == pytest.approx(30 / 45)
    slower = min(found["loader_images_per_second"], found["device_images_per_second"])
    end_to_end = found["end_to_end_images_per_second"]
    assert found["ingestion_efficiency"] == pytest.approx(end_to_end / slower)
    [report] = fed.reports
    assert report["extras"]["bottleneck"] == "loader"
    assert report["iters"] == report["extras"]["end_to_end_timed_batches"] == 9
    assert report["extras"]["rounds"] == 3
    assert len(report["extras"]["loader_rounds_images_per_second"].split()) == 3
    assert report["throughput"] == end_to_end
    assert report["wall_time"] * end_to_end == pytest.approx(BATCH)


def test_batches_that_lay_ready_are_not_in_the_rate() -> None:
    fed = Fed(Sleeping(LOAD_S, ready=5), iterations=4, warmup=0)
    fed.loader_only()
    assert_rate(fed.metrics["loader_images_per_second"], LOAD_S)
    assert list(fed.metrics) == ["loader_images_per_second", "loader_first_call_s"]


def test_batches_that_come_in_bursts_have_the_rate_of_all_of_them() -> None:
    fed = Fed(Sleeping(LOAD_S, burst=3), iterations=6, warmup=0)
    fed.loader_only()
    assert_rate(fed.metrics["loader_images_per_second"], LOAD_S)
    assert fed.reports[0]["extras"]["loader_timed_batches"] == 6


class Timed:
    """The part of a measurement that a rate needs."""

    first_call_s, cpu_s, steadiness, items_per_step = 0.1, 0.0, "flat", 10

    def __init__(self, steps: int, timed_s: float) -> None:
        self.facts = {"steps": steps, "timed_s": timed_s}


def test_an_efficiency_above_one_is_noted_and_not_capped() -> None:
    parts = {
        feeding.LOADER: [Timed(10, 1.0), Timed(30, 1.0)],  # together 200 images a second
        feeding.DEVICE: [Timed(40, 1.0)],
        feeding.END_TO_END: [Timed(25, 1.0)],
    }
    report = feeding.report_arguments(parts, waited_s=0.25, extras={})
    found = {metric["name"]: metric["value"] for metric in report["metrics"]}
    assert found["loader_images_per_second"] == 200
    assert found["ingestion_efficiency"] == 1.25
    assert found["loader_over_device"] == 0.5
    assert found["data_wait_share"] == 0.25
    assert "1.25 times as fast as the loader alone" in report["extras"]["ingestion_note"]
    parts[feeding.END_TO_END] = [Timed(20, 1.0)]
    assert "ingestion_note" not in feeding.report_arguments(parts, waited_s=0, extras={})["extras"]


def test_an_order_without_end_has_each_image_once_an_epoch() -> None:
    def taken(count: int, **options: Any) -> list[int]:
        numbers = endless(5, **{"shuffle": True, "seed": 1, **options})
        return [next(numbers) for _ in range(count)]

    assert taken(12, shuffle=False) == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    first, second, third = taken(15)[:5], taken(15)[5:10], taken(15)[10:]
    assert sorted(first) == sorted(second) == sorted(third) == [0, 1, 2, 3, 4]
    assert not first == second == third
    assert taken(15) == [*first, *second, *third]
    assert taken(15, seed=2) != taken(15)
