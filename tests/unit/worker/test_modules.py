"""Which modules of a folder are imported to look for benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

from perfrun.worker.modules import modules_in

ROOT = Path(__file__).parents[3]


def put(folder: Path, **modules: str) -> None:
    for name, text in modules.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_a_class_is_followed_to_a_base_that_is_a_benchmark_however_it_is_imported(
    tmp_path: Path,
) -> None:
    put(
        tmp_path,
        shared="from perfrun import Benchmark\nclass Base(Benchmark): ...\n",
        suite__direct="from shared import (\n    Other,\n    Base as B,\n)\nclass A(B): ...\n",
        suite__whole="import shared as s\nclass B(s.Base): ...\n",
        suite__relative="from .direct import A\nclass C(A): ...\n",
        suite__sibling="from . import direct\nclass D(direct.A): ...\n",
        suite__all="from suite.direct import *\nclass E(\n    A,\n): ...\n",
        suite__deep__under="from ..direct import A\nclass F(A): ...\n",
    )
    names = ["all", "deep.under", "direct", "relative", "sibling", "whole"]
    assert modules_in(str(tmp_path / "suite"), ["suite"]) == [f"suite.{name}" for name in names]


def test_a_module_that_only_uses_a_benchmark_is_left_alone(tmp_path: Path) -> None:
    put(
        tmp_path,
        base="from perfrun import Benchmark\nclass Base(Benchmark): ...\n",
        uses="from base import Base\nclass Other(dict): ...\nBase().go()\n",
        script="import base\nbase.Base().go()\n",
        elsewhere="from unknown import Base\nclass Mine(Base): ...\n",
    )
    assert modules_in(str(tmp_path), []) == ["base"]


def test_modules_that_import_each_other_come_to_an_end(tmp_path: Path) -> None:
    put(
        tmp_path,
        one="from two import Two\nclass One(Two): ...\n",
        two="from one import One\nclass Two(One): ...\n",
    )
    assert modules_in(str(tmp_path), []) == []


def test_the_shipped_classes_are_all_there() -> None:
    found = modules_in(str(ROOT / "benchmarks"), ["benchmarks"])
    for name in ("torch.iris", "torch.operators", "torch.resnet", "sklearn.digits"):
        assert f"benchmarks.{name}" in found
    assert "benchmarks.torch.catalogue" not in found
    assert not [name for name in found if re.match(r"benchmarks\.\w+\._support", name)]
