"""The error of a model's name, and the list of all names: the same for every framework."""

from __future__ import annotations

import subprocess
import sys

import pytest
from shipped_run import ROOT

from benchmarks._support.models.naming import print_names, unknown_model
from perfrun import SetupError

MODULE = "benchmarks.anything.catalogue"
NAMES = [f"net{number}" for number in range(500)] + ["gpt2", "lib:resnet50"]


def test_a_name_like_no_other_is_a_short_line_with_some_names_and_where_all_are() -> None:
    said = str(unknown_model("zzz", NAMES, "PyTorch", MODULE))
    assert said == (
        "there is no model zzz for PyTorch; there are gpt2, lib:resnet50, net0, net1, net10 and "
        f"more: python -m {MODULE} prints all"
    )


def test_a_misspelt_name_has_its_neighbours_in_their_own_spelling() -> None:
    said = str(unknown_model("resnet5O", ["ResNet50", "vgg16"], "TensorFlow", MODULE))
    assert said == "there is no model resnet5O for TensorFlow; did you mean ResNet50?"


def missing() -> list[str]:
    raise SetupError("these models need the package b")


LIBRARIES = {"plain": lambda: ["x", "y"], "a": lambda: ["a:z"], "b": missing}


def test_names_are_printed_by_library_and_a_missing_one_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert print_names(LIBRARIES, MODULE, []) == 0
    said = capsys.readouterr()
    assert said.out.split() == ["x", "y", "a:z"]
    assert said.err == "b: these models need the package b\n"
    assert print_names(LIBRARIES, MODULE, ["a"]) == 0
    assert capsys.readouterr().out == "a:z\n"
    assert print_names(LIBRARIES, MODULE, ["b"]) == 1
    with pytest.raises(SystemExit):
        print_names(LIBRARIES, MODULE, ["c"])
    assert "there is no library c; there are plain, a, b" in capsys.readouterr().err


def test_the_models_package_imports_no_framework() -> None:
    code = (
        "import importlib, pkgutil, sys\n"
        "import benchmarks._support.models as models, benchmarks._support.datasets as datasets\n"
        "for package in (models, datasets):\n"
        "    for module in pkgutil.iter_modules(package.__path__):\n"
        "        importlib.import_module(f'{package.__name__}.{module.name}')\n"
        "assert 'benchmarks._support.models.methods' in sys.modules\n"
        "print([name for name in ('torch', 'tensorflow', 'sklearn') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
