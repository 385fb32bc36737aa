"""Every report is kept, also with a base class that refuses a second one, as TensorFlow's does."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import perfrun
from perfrun import Benchmark
from perfrun.worker.author import PREFIX_VARIABLE
from perfrun.worker.method_reports import ReportKeeper, tell_inspect_where_modules_are
from perfrun.worker.test_log import decode_entries, encode_entry


def tensorflow_like() -> type:
    """A base class that reports as tf.test.Benchmark does: by its stack, and once only."""

    class TensorFlowLike:
        def report_benchmark(
            self,
            iters: int | None = None,
            cpu_time: float | None = None,
            wall_time: float | None = None,
            throughput: float | None = None,
            extras: Any = None,
            name: str | None = None,
            metrics: Any = None,
        ) -> None:
            method = "?"
            frame = sys._getframe(1)
            while frame is not None:
                if isinstance(frame.f_locals.get("self"), TensorFlowLike):
                    method = frame.f_code.co_name
                frame = frame.f_back  # type: ignore[assignment]
            entry_name = f"{type(self).__name__}.{name or method}"
            path = os.environ[PREFIX_VARIABLE] + entry_name.replace("/", "__")
            if os.path.exists(path):  # noqa: PTH110
                raise OSError(f"File already exists: {path}")
            with open(path, "wb") as file:  # noqa: PTH123
                file.write(encode_entry(entry_name, wall_time=wall_time or 0.0))

    return TensorFlowLike


@pytest.fixture(params=["tensorflow-like", "perfrun"])
def base(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    """Either base class; what the keeper does to it is undone."""
    if request.param == "perfrun":
        monkeypatch.setattr(Benchmark, "report_benchmark", Benchmark.report_benchmark)
        return Benchmark
    return tensorflow_like()


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The prefix of the trial, set in the environment as the worker sets it."""
    monkeypatch.setenv(PREFIX_VARIABLE, str(tmp_path / "proto_"))
    return str(tmp_path / "proto_")


def written(folder: Path) -> dict[str, tuple[str, float]]:
    entries = {p.name: decode_entries(p.read_bytes())[0] for p in folder.iterdir()}
    return {name: (entry["name"], entry["wall_time"]) for name, entry in entries.items()}


def test_reports_of_one_method_are_numbered_in_their_order(
    base: Any, prefix: str, tmp_path: Path
) -> None:
    class Cases(base):  # type: ignore[misc]
        def method(self) -> None:
            for number in (1, 2, 3):
                self.report_benchmark(wall_time=float(number))

    keeper = ReportKeeper(prefix)
    keeper.watch(Cases)
    Cases().method()
    assert written(tmp_path) == {
        "proto_Cases.method": ("Cases.method", 1.0),
        "proto_2_Cases.method": ("Cases.method", 2.0),
        "proto_3_Cases.method": ("Cases.method", 3.0),
    }
    assert keeper.unsaved == []


def test_a_method_that_has_cleared_its_environment_still_reports(
    base: Any, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cases(base):  # type: ignore[misc]
        def method(self) -> None:
            self.report_benchmark(wall_time=1.0)

    ReportKeeper(prefix).watch(Cases)
    monkeypatch.delenv(PREFIX_VARIABLE)
    Cases().method()
    assert written(tmp_path) == {"proto_Cases.method": ("Cases.method", 1.0)}


def test_a_class_that_wraps_the_report_is_counted_once(
    base: Any, prefix: str, tmp_path: Path
) -> None:
    class Middle(base):  # type: ignore[misc]
        def report_benchmark(self, **given: Any) -> None:
            super().report_benchmark(**given)

    class Cases(Middle):
        def method(self) -> None:
            self.report_benchmark(wall_time=1.0)
            self.report_benchmark(wall_time=2.0, name="other")

    ReportKeeper(prefix).watch(Cases)
    Cases().method()
    assert written(tmp_path) == {
        "proto_Cases.method": ("Cases.method", 1.0),
        "proto_2_Cases.other": ("Cases.other", 2.0),
    }


def test_a_class_that_turns_one_report_into_two_has_both_kept(
    base: Any, prefix: str, tmp_path: Path
) -> None:
    class Twice(base):  # type: ignore[misc]
        def report_benchmark(self, **given: Any) -> None:
            super().report_benchmark(**given)
            super().report_benchmark(**{**given, "wall_time": 2 * given["wall_time"]})

    class Cases(Twice):
        def method(self) -> None:
            self.report_benchmark(wall_time=1.0)

    ReportKeeper(prefix).watch(Cases)
    Cases().method()
    assert sorted(written(tmp_path).values()) == [("Cases.method", 1.0), ("Cases.method", 2.0)]
    assert "proto_2_Cases.method" in written(tmp_path)


def test_positional_arguments_arrive(base: Any, prefix: str, tmp_path: Path) -> None:
    class Cases(base):  # type: ignore[misc]
        def method(self) -> None:
            self.report_benchmark(5, 0.1, 7.5)

    ReportKeeper(prefix).watch(Cases)
    Cases().method()
    assert written(tmp_path) == {"proto_Cases.method": ("Cases.method", 7.5)}


def test_a_class_that_cannot_report_is_left_alone(prefix: str) -> None:
    class Plain:
        def method(self) -> int:
            return 1

    before = dict(vars(Plain))
    ReportKeeper(prefix).watch(Plain)
    assert dict(vars(Plain)) == before


def test_numbers_that_the_disk_refused_are_kept(
    base: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(PREFIX_VARIABLE, str(tmp_path / "missing" / "proto_"))

    class Cases(base):  # type: ignore[misc]
        def method(self) -> None:
            self.report_benchmark(
                10,
                wall_time=math.inf,
                extras={"note": object, 3: None},
                metrics=({"name": "m", "value": 1},),
            )

    keeper = ReportKeeper(str(tmp_path / "missing" / "proto_"))
    keeper.watch(Cases)
    with pytest.raises(OSError, match="missing"):
        Cases().method()
    assert keeper.unsaved == [
        {
            "iters": 10,
            "wall_time": math.inf,
            "extras": {"note": "<class 'object'>", "3": None},
            "metrics": [{"name": "m", "value": 1}],
        }
    ]
    json.dumps(keeper.unsaved)


def test_a_wrong_call_is_the_benchmarks_error_and_no_lost_report(base: Any, prefix: str) -> None:
    keeper = ReportKeeper(prefix)
    keeper.watch(base)
    with pytest.raises(TypeError):
        base().report_benchmark(nonsense=1)
    assert keeper.unsaved == []


LOOKING = """
import inspect, sys
from perfrun.worker.method_reports import tell_inspect_where_modules_are

looked = []
absolute = inspect.getabsfile

def counted(module, *rest):
    looked.append(module)
    return absolute(module, *rest)

def named():
    return [frame.function for frame in inspect.stack()]

inspect.getabsfile = counted
if sys.argv[1] == "told":
    tell_inspect_where_modules_are()
assert named() == ["named", "<module>"]
assert inspect.getmodule(named) is sys.modules["__main__"]
print(len(looked))
"""


def test_inspect_need_not_look_for_the_modules_of_a_stack(tmp_path: Path) -> None:
    script = tmp_path / "looking.py"
    script.write_text(LOOKING)
    looked = {}
    for how in ("untold", "told"):
        done = subprocess.run(
            [sys.executable, str(script), how],
            env={**os.environ, "PYTHONPATH": str(Path(perfrun.__file__).parents[1])},
            capture_output=True,
            text=True,
            check=True,
        )
        looked[how] = int(done.stdout)
    assert looked["untold"] > 20  # every loaded module
    assert looked["told"] == 0


def test_lazy_modules_are_not_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"asked for {name}")

    monkeypatch.setitem(sys.modules, "a_lazy_module", Lazy("a_lazy_module"))
    tell_inspect_where_modules_are()
