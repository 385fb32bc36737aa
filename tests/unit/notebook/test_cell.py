"""A cell as the file of a benchmark: what is setup, what is timed, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from perfrun.errors import UsageError
from perfrun.notebook.cell import source_of


class Recorder:
    """Takes the place of `perfrun.Benchmark`: calls the step twice and keeps its values."""

    def measure(self, step: Any, **options: Any) -> None:
        self.values = [step(), step()]
        self.options = options


def values_of(code: str, *setup: str) -> list[Any]:
    text = source_of(code, setup, "cell").replace("from perfrun import Benchmark\n", "")
    names: dict[str, Any] = {"Benchmark": Recorder}
    exec(text, names)
    made = names["Cell"]()
    made.cell()
    values: list[Any] = made.values
    return values


def test_the_value_of_the_last_expression_is_returned() -> None:
    assert values_of("1 + 1") == [2, 2]
    assert values_of("x = 1") == [None, None]
    assert values_of("async def f(): ...\nclass A: y = 3\nA.y") == [3, 3]


def test_what_stands_above_the_mark_runs_once_and_names_of_both_parts_are_one() -> None:
    code = "import json\nn = 0\n# perfrun: measure\nn += 1\nm = json.dumps(n)\nm"
    assert values_of(code) == ["1", "2"]
    assert values_of("n += 1\nk, n = n, n\nn", "n = 5") == [6, 7]
    assert values_of("for n in range(3): pass\nn", "n = 5", "n = 6") == [2, 2]


def test_texts_of_several_lines_stay_as_they_are() -> None:
    assert values_of('x = """a\n  b\n# perfrun: other"""\nx') == ["a\n  b\n# perfrun: other"] * 2


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", "nothing to measure"),
        ("# perfrun: measure", "nothing to measure"),
        ("return 3", "the cell, line 1: 'return' outside function"),
        ("x = 1\nbreak", "the cell, line 2: 'break' outside loop"),
        ("x = (\n# perfrun: measure\nx", "the setup, line 1: '[(]' was never closed"),
        ("x = 1\n# perfrun: measure\n%time x", "the cell, line 3: .* without magics"),
        ("await x", "the cell"),
        ("from os import *", "import [*] only allowed at module level"),
        ("x\0", "null byte"),
    ],
)
def test_code_that_is_no_function_body_is_one_line(code: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        source_of(code, [], "cell")
    assert "\n" not in caught.value.line


@pytest.mark.parametrize("name", ["measure", "class", "1a", "a.b", "_x", "__init__", "step"])
def test_a_name_that_no_method_can_have_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"--name={name}: "):
        source_of("1", [], name)
