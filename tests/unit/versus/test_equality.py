"""A comparison of arms with unequal types, TF32, layouts, threads or allocators is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from perfrun.errors import UsageError
from perfrun.summary.record import SummaryRecord, record_of
from perfrun.versus.equality import refuse_unequal
from perfrun.versus.options import VersusPlan, parse_versus
from tests.summaries import summary

EQUAL = {"dtype": "float32", "threads": 2, "channels_last": "true", "input_shape": "3x8x8"}


def reading(allocator: dict[str, str] | None = None, **extras: Any) -> SummaryRecord:
    made = summary()
    if allocator is not None:
        made["perfrun"]["allocator"] = allocator
    made["benchmark_result"]["extras"] = [
        {"name": name, "value": value} for name, value in {**EQUAL, **extras}.items()
    ]
    return record_of(made, Path("/results/x"))


def asked(tmp_path: Path, *words: str, frameworks: str = "torch,jax") -> VersusPlan:
    found = parse_versus(
        [
            f"--frameworks={frameworks}",
            f"--python={sys.executable}",
            f"--workspace={tmp_path}",
            *words,
        ]
    )
    assert isinstance(found, VersusPlan)
    return found


@pytest.mark.parametrize(
    ("what", "first", "second", "said"),
    [
        ("dtype", {}, {"dtype": "bfloat16"}, "dtype (torch float32, jax bfloat16)"),
        ("threads", {"threads": 1}, {}, "threads (torch 1, jax 2)"),
        (
            "layout",
            {"channels_last": "false"},
            {},
            "layout (torch channels first, jax channels last)",
        ),
        (
            "tf32",
            {"cudnn_allow_tf32": "true", "matmul_allow_tf32": "false"},
            {"matmul_allow_tf32": "false"},
            "tf32 (torch on, jax off)",
        ),
        (
            "allocator",
            {"allocator": {"asked": "retain", "name": "glibc"}},
            {"allocator": {"asked": "default", "name": "glibc"}},
            "allocator (torch retain, jax default)",
        ),
        (  # one that an image preloads
            "allocator",
            {"allocator": {"asked": "default", "name": "musl"}},
            {"allocator": {"asked": "default", "name": "tcmalloc"}},
            "allocator (torch default, jax tcmalloc)",
        ),
    ],
)
def test_what_is_not_equal_is_one_line_with_both_values_unless_it_is_allowed(
    tmp_path: Path, what: str, first: dict[str, Any], second: dict[str, Any], said: str
) -> None:
    readings = {"torch": reading(**first), "jax": reading(**second)}
    with pytest.raises(UsageError) as error:
        refuse_unequal(asked(tmp_path), readings)
    assert said in str(error.value)
    assert str(error.value).endswith(f"or allow it: --allow_unequal={what}")
    assert "\n" not in str(error.value)
    refuse_unequal(asked(tmp_path, f"--allow_unequal={what}"), readings)
    refuse_unequal(asked(tmp_path, "--allow_unequal=all"), readings)
    others = {"dtype": "threads"}.get(what, "dtype")
    with pytest.raises(UsageError):
        refuse_unequal(asked(tmp_path, f"--allow_unequal={others}"), readings)


def test_equal_arms_and_those_that_do_not_report_are_compared(tmp_path: Path) -> None:
    refuse_unequal(asked(tmp_path), {"torch": reading(), "jax": reading()})
    refuse_unequal(asked(tmp_path), {"torch": reading(), "jax": reading(threads=None)})
    refuse_unequal(asked(tmp_path), {"torch": reading()})  # the other one failed


def test_the_allocator_of_an_older_summary_is_not_compared(tmp_path: Path) -> None:
    retained = reading(allocator={"asked": "retain", "name": "glibc"})
    refuse_unequal(asked(tmp_path), {"torch": reading(), "jax": retained})


def test_only_images_have_a_layout(tmp_path: Path) -> None:
    first, second = ({"channels_last": each, "input_shape": "784"} for each in ("true", "false"))
    refuse_unequal(asked(tmp_path), {"torch": reading(**first), "jax": reading(**second)})


def test_a_mode_that_names_a_type_is_meant_to_differ(tmp_path: Path) -> None:
    readings = {"torch": reading(), "torch:bfloat16": reading(dtype="bfloat16")}
    refuse_unequal(asked(tmp_path, frameworks="torch,torch:bfloat16"), readings)
