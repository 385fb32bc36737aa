"""The words of `perfrun explain`: what the user gives counts, however it is written."""

from __future__ import annotations

import shlex
import sys

import pytest

from perfrun.explain.arms import run_again
from perfrun.explain.command import parse_explain
from perfrun.options.command_line import parse
from perfrun.options.plan import RunPlan
from perfrun.summary.reconstruction import Reconstruction

METHOD = "pkg.mod.Cases.ok"


def planned(words: str, *recorded: str) -> RunPlan:
    """The plan of a trial with these recorded flags, when these words are typed."""
    given, _ = parse_explain(["baseline", "last", *shlex.split(words)])
    assert (given.base, given.new) == ("baseline", "last")
    asked = parse([*given.common, "--allow_empty"])
    made = Reconstruction(words=recorded, benchmark_flags=("--batch=1", "--old=1"), lost=())
    return run_again(given, asked, METHOD, made)


def test_a_flag_of_the_user_counts_and_the_others_are_those_on_record() -> None:
    recorded = ("--timeout=60", "--root_data_dir=/old", "--env=A=1", "--env=B=1")
    plan = planned("--timeout=5 --env=B=2 -- --batch=2", *recorded)
    assert (plan.timeout_s, plan.root_data_dir) == (5.0, "/old")
    assert dict(plan.env) == {"A": "1", "B": "2"}
    assert plan.benchmark_flags == ("--batch=1", "--old=1", "--batch=2"), "the last one counts"


@pytest.mark.parametrize(
    "words", ["--benchmark_methods x.Y.y", "--benchmark_methods=x.Y.y,z.W.w", ""]
)
def test_the_method_is_that_of_the_result(words: str) -> None:
    plan = planned(words, f"--python={sys.executable}")
    assert [selector.text for selector in plan.selectors] == [METHOD]
    assert plan.flags["benchmark_methods"] == [METHOD]


def test_a_place_of_the_user_takes_that_of_the_record() -> None:
    recorded = ("--image=sha256:0", "--image_python=/p", "--memory=4g", "--timeout=60")
    plan = planned(f"--python={shlex.quote(sys.executable)}", *recorded)
    assert (plan.container, plan.python, plan.timeout_s) == (None, sys.executable, 60.0)
    plan = planned("--image=new:1", *recorded)
    assert plan.container is not None
    assert (plan.container.image, plan.container.python) == ("new:1", None)
    assert plan.container.memory_bytes == 4 * 2**30
    plan = planned("--image=new:1", f"--python={sys.executable}")
    assert plan.container is not None


@pytest.mark.parametrize(
    "words",
    [
        "--benchmark_methods x.Y.y base new",
        "base --benchmark_methods x.Y.y new",
        "--timeout 5 base --debug new --env A=1",
        "--benchmark_method x.Y.y base new",
    ],
)
def test_a_value_of_a_flag_is_neither_base_nor_new(words: str) -> None:
    given, _ = parse_explain(words.split())
    assert (given.base, given.new) == ("base", "new")
    parse([*given.common, "--allow_empty"])
