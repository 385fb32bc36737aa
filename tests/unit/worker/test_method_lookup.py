"""A name that is wrong is one line, which keeps what the author's own code says of it."""

from __future__ import annotations

import sys
import types

import pytest

from perfrun.worker.method import WrongNameError, find_class, find_method
from perfrun.worker.services import _discover_one

SOURCE = """
class Bench:
    def run(self): pass

class Wrapped(Bench):
    def __getattr__(self, name):
        raise AttributeError("the wrapped object\\nhas no %s" % name)

class Broken(Bench):
    @property
    def steps(self):
        return self.absent
"""
OWN = """
def __getattr__(name):
    raise AttributeError("%s came with release 2:\\n  pip install 'bench>=2'" % name)
"""


@pytest.fixture
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module of benchmarks; with a parameter, that text is part of it."""
    made = types.ModuleType("theirs")
    exec(SOURCE + getattr(request, "param", ""), made.__dict__)
    monkeypatch.setitem(sys.modules, "theirs", made)
    return made


def test_a_wrong_class_is_one_line_with_what_is_near(module: types.ModuleType) -> None:
    with pytest.raises(WrongNameError) as raised:
        find_class(module, "Bensh")
    assert str(raised.value) == "theirs has no class 'Bensh'; did you mean Bench?"


@pytest.mark.parametrize("module", [OWN], indirect=True)
def test_what_a_modules_own_getattr_says_is_part_of_the_line(module: types.ModuleType) -> None:
    words = "(its __getattr__ says: Bensh came with release 2: pip install 'bench>=2')"
    with pytest.raises(WrongNameError) as raised:
        find_class(module, "Bensh")
    assert str(raised.value) == f"theirs has no class 'Bensh'; did you mean Bench? {words}"
    assert isinstance(raised.value.__cause__, AttributeError)  # so the traceback has it whole
    assert find_class(module, "Bench") is module.Bench
    answer = _discover_one({"module": "theirs", "class_name": "Bensh"})  # `filter:`, `list`
    assert answer["error"].endswith(words)
    assert answer["is_missing"] is True


def test_what_a_classs_own_getattr_says_is_part_of_the_line(module: types.ModuleType) -> None:
    with pytest.raises(WrongNameError) as raised:
        find_method(module.Wrapped(), "runn", "theirs")
    assert str(raised.value) == (
        "theirs.Wrapped has no method 'runn'; did you mean run? "
        "(its __getattr__ says: the wrapped object has no runn)"
    )


def test_what_a_property_raises_goes_through(module: types.ModuleType) -> None:
    with pytest.raises(AttributeError, match="'Broken' object has no attribute 'absent'"):
        find_method(module.Broken(), "steps", "theirs")


def test_a_class_of_a_module_without_one_of_its_own_is_said_plainly(
    module: types.ModuleType,
) -> None:
    answer = _discover_one({"module": module.__name__, "class_name": "Bensh"})
    assert answer["error"] == "theirs has no class Bensh"
