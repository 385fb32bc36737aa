"""perfrun's cheap dataclasses do what the standard library's do."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from perfrun import dataclass as ours


@ours.dataclass(frozen=True, kw_only=True)
class Inner:
    """A value in a value."""

    number: int
    names: tuple[str, ...] = ()


@ours.dataclass(frozen=True, kw_only=True)
class Outer:
    """A value."""

    text: str
    inner: Inner = Inner(number=1)
    table: Mapping[str, Any] = ours.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StandardOuter:
    """The same with the standard decorator."""

    text: str
    inner: Inner = Inner(number=1)  # noqa: RUF009 - it is frozen
    table: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@ours.dataclass(frozen=True, kw_only=True)
class Extended(Outer):
    """Has one field more."""

    more: int = 0


@ours.dataclass(frozen=True)
class Pair:
    """May be made by position."""

    left: int
    right: int = 2


@ours.dataclass
class Counter:
    """May be changed."""

    count: int = 0
    seen: list[int] = ours.field(default_factory=list)


def test_values_and_defaults_are_attributes() -> None:
    made = Outer(text="a")
    assert (made.text, made.inner, made.table) == ("a", Inner(number=1, names=()), {})
    assert Outer(text="a").table is not made.table


def test_equal_fields_are_equal_values_with_equal_hashes_and_other_classes_are_not() -> None:
    assert Inner(number=1) == Inner(number=1) != Inner(number=2)
    assert hash(Inner(number=1)) == hash(Inner(number=1))
    assert Outer(text="a") != StandardOuter(text="a")
    assert Outer(text="a") != Extended(text="a")


def test_the_text_names_the_class_and_its_fields_as_the_standard_one_does() -> None:
    text = repr(StandardOuter(text="a")).removeprefix("Standard")
    assert repr(Outer(text="a")) == text


def test_a_frozen_value_refuses_to_be_changed_with_the_standard_error() -> None:
    made = Inner(number=1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="'number'"):
        made.number = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="'number'"):
        del made.number  # type: ignore[misc]


@pytest.mark.parametrize(
    ("cls", "values", "given"),
    [
        (Outer, (), {}),
        (Outer, ("a",), {}),
        (Outer, (), {"text": "a", "txet": "b"}),
        (Pair, (1, 2, 3), {}),
        (Pair, (1,), {"left": 1}),
        (Pair, (), {"right": 1}),
    ],
)
def test_wrong_arguments_are_a_type_error(cls: Any, values: Any, given: Any) -> None:
    with pytest.raises(TypeError, match=cls.__name__):
        cls(*values, **given)


def test_a_subclass_has_the_fields_of_its_base_first() -> None:
    assert repr(Extended(text="a", more=3)).endswith("table={}, more=3)")


def test_values_by_position_where_the_class_allows_them() -> None:
    assert Pair(1) == Pair(1, 2) == Pair(left=1, right=2)
    match Pair(3, 4):
        case Pair(left, right):
            assert (left, right) == (3, 4)


def test_one_that_is_not_frozen_can_be_changed_and_has_no_hash() -> None:
    counter = Counter()
    counter.count += 1
    counter.seen.append(1)
    assert counter == Counter(count=1, seen=[1]) != Counter()
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)


def test_replace_and_asdict_are_the_standard_ones() -> None:
    made = Outer(text="a", table={"k": [Inner(number=2, names=("x",))]})
    standard = StandardOuter(text="a", table=made.table)
    for functions in (ours, dataclasses):
        assert functions.replace(made, text="b") == Outer(text="b", table=made.table)
        assert functions.asdict(made) == dataclasses.asdict(standard)
        assert functions.asdict(standard) == dataclasses.asdict(standard)
    assert functions.replace(standard, text="b").text == "b"


def test_the_standard_library_takes_it_for_a_dataclass() -> None:
    assert dataclasses.is_dataclass(Outer)
    assert [item.name for item in dataclasses.fields(Outer)] == ["text", "inner", "table"]
    assert [item.name for item in dataclasses.fields(Extended)][-1] == "more"


def test_it_can_be_pickled_and_unpickled() -> None:
    made = Outer(text="a", table={"k": 1})
    assert pickle.loads(pickle.dumps(made)) == made


def test_defining_one_does_not_import_the_standard_module() -> None:
    code = (
        "import sys\n"
        "from perfrun.dataclass import asdict, dataclass, replace\n"
        "@dataclass(frozen=True)\n"
        "class A:\n"
        "    x: int\n"
        "asdict(replace(A(1), x=2))\n"
        "sys.exit('dataclasses' in sys.modules or 'inspect' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
