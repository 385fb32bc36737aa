"""Which methods of a class count as benchmarks."""

from __future__ import annotations

import abc
import functools
import sys
import types
import unittest
from typing import Any, ClassVar

import pytest

from perfrun import Benchmark
from perfrun.worker.services import class_methods, module_methods


class Meta(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("discovery made an object")


def made_classes() -> tuple[type, type]:  # noqa: C901 - many methods, no branches
    """Two classes; inside a function, so that pytest does not take them for its own."""

    class Mixed(unittest.TestCase, metaclass=Meta):
        """A base of which some things are methods to run and some are not."""

        attribute = 3
        nested = type("nested", (), {})

        def train(self) -> None:
            """Train a model.

            For long.
            """

        def train_twice(self, steps: int = 2, *rest: int, **more: int) -> None: ...

        def helper(self, argument: int) -> None: ...

        def keyword_only(self, *, argument: int) -> None: ...

        def _private(self) -> None: ...

        @property
        def value(self) -> int:
            raise AssertionError("discovery read a property")

        @staticmethod
        def static() -> None: ...

        @staticmethod
        def static_helper(argument: int) -> None: ...

        @classmethod
        def of_class(cls) -> None: ...

        @functools.lru_cache  # noqa: B019
        def cached(self) -> None: ...

        def setUp(self) -> None: ...

    class Derived(Mixed):
        """Inherits, and overrides what the framework's base also has."""

        def evaluate(self) -> None: ...

        def run(self, result: Any = None) -> None: ...

    return Mixed, Derived


@pytest.fixture
def mixed() -> type:
    return made_classes()[0]


def names(found: list[dict[str, str]]) -> list[str]:
    return [item["method"] for item in found]


def test_methods_without_required_arguments_are_found_in_alphabetical_order(mixed: type) -> None:
    assert names(class_methods(mixed)) == ["cached", "of_class", "static", "train", "train_twice"]


def test_inherited_methods_count_and_the_frameworks_own_do_not() -> None:
    found = names(class_methods(made_classes()[1]))
    assert "train" in found
    assert "run" in found  # overridden here, so it is the author's
    assert not {"debug", "assertEqual", "setUp", "id"} & set(found)


def test_the_api_of_perfrun_itself_is_not_a_benchmark() -> None:
    class Mine(Benchmark):
        def go(self) -> None: ...

    assert names(class_methods(Mine)) == ["go"]


def test_each_method_comes_with_its_class_and_the_first_line_of_its_docs(mixed: type) -> None:
    by_name = {item["method"]: item for item in class_methods(mixed)}
    assert by_name["train"] == {"class": "Mixed", "method": "train", "doc": "Train a model."}
    assert by_name["train_twice"]["doc"] == ""


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("train", ["train", "train_twice"]),  # matched from the start, like PerfZero's re.match
        ("train$", ["train"]),
        (".*twice", ["train_twice"]),
        ("twice", []),
        ("_.*|train$", ["train"]),
        (".*", ["cached", "of_class", "static", "train", "train_twice"]),
    ],
)
def test_a_pattern_selects_as_perfzeros(mixed: type, pattern: str, expected: list[str]) -> None:
    assert names(class_methods(mixed, pattern)) == expected


def test_names_with_dots_made_by_a_metaclass_are_found() -> None:
    made = type("Made", (), {"bench.small": lambda self: None, "bench.large": lambda self: None})
    assert names(class_methods(made, "bench")) == ["bench.large", "bench.small"]


def test_a_module_lists_only_benchmark_classes_that_it_defines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = types.ModuleType("made_module")
    monkeypatch.setitem(sys.modules, "made_module", module)
    source = """
from perfrun import Benchmark
class Model:
    def train(self): "Not a benchmark."
class Base(Benchmark):
    def warm(self): "Warm up."
class Real(Base):
    def cold(self): "Cold start."
"""
    exec(source, vars(module))
    found = [(item["class"], item["method"]) for item in module_methods(module)]
    assert found == [("Base", "warm"), ("Real", "cold"), ("Real", "warm")]


def test_a_class_that_is_only_a_base_is_not_listed() -> None:
    class Abstract(Benchmark, abc.ABC):
        @abc.abstractmethod
        def step(self) -> None: ...

    class Unfinished(Benchmark):
        size: ClassVar[int]
        seconds: float  # of an object: says nothing about the class

        def go(self) -> None: ...

    class Marked(Unfinished, abc.ABC):
        size = 2

    class Finished(Marked):
        size = 3

    module = types.ModuleType("mine")
    for cls in (Abstract, Unfinished, Marked, Finished):
        cls.__module__ = "mine"
        setattr(module, cls.__name__, cls)
    assert [(item["class"], item["method"]) for item in module_methods(module)] == [
        ("Finished", "go")
    ]
