"""Versions of a package: their order, and what a folder of wheels has."""

from __future__ import annotations

import json
import random
import shlex
import site
import sys
from pathlib import Path

import pytest
from packaging.version import InvalidVersion, Version

from perfrun.changes.bisect import parse_bisect
from perfrun.changes.package_versions import (
    _site_folders,
    parse_versions,
    version_key,
    versions_in,
)
from perfrun.errors import UsageError
from perfrun.workspace.programs import variables

METHOD = "--method=pkg.mod.Class.method"


def drawn_version(drawn: random.Random) -> str:
    parts = [
        drawn.choice(["", "", "1!", "v"]),
        drawn.choice(["1", "1.0", "1.0.0", "1.10", "2", "0.9"]),
        drawn.choice(["", "", "a1", ".b2", "-rc", "c3", ".alpha", "pre4", "_preview_1", "RC2"]),
        drawn.choice(["", "", "-1", ".post2", "post", ".rev3", "-r4"]),
        drawn.choice(["", "", ".dev20260101", "dev", "-dev3"]),
        drawn.choice(["", "", "+cu128", "+cpu", "+1.abc", "+1.2", "+ABC.1"]),
    ]
    return "".join(parts)


def test_versions_are_ordered_as_the_packaging_library_does() -> None:
    drawn = random.Random(16)
    versions = [drawn_version(drawn) for _ in range(400)]
    for one, other in zip(versions, reversed(versions), strict=True):
        key, another = version_key(one), version_key(other)
        assert key is not None, one
        assert another is not None, other
        assert (key < another) == (Version(one) < Version(other)), (one, other)
        assert (key == another) == (Version(one) == Version(other)), (one, other)


@pytest.mark.parametrize(
    "text", ["", "x", "1.", "1..2", "1.0+", "1.0+a_", "1 0", "1.0;x", "==1", "--help", "1.0a1a2"]
)
def test_what_is_no_version_is_none(text: str) -> None:
    with pytest.raises(InvalidVersion):
        Version(text)
    assert version_key(text) is None


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        ("torch", "'torch' is no version"),
        ("torch==2.1,x", "'x' is no version"),
        ("torch==2.1,-rfile", "'-rfile' is no version"),
        ("--index-url==2.1,2.2", "is no version"),
        ("torch==2.1,numpy==2.2", "torch and numpy: one package is searched"),
        ("torch==2.1", "two or more"),
        ("torch==2.2,2.1", "2.1 is not newer than 2.2"),
        ("torch==2.1,2.1.0", "2.1.0 is not newer than 2.1"),
    ],
)
def test_versions_that_cannot_be_are_refused(text: str, telling: str) -> None:
    with pytest.raises(UsageError, match=telling):
        parse_bisect([METHOD, f"--versions={text}"])


def test_versions_are_not_for_images() -> None:
    with pytest.raises(UsageError, match="without --image"):
        parse_bisect([METHOD, "--versions=torch==2.1,2.2", "--image=x:1"])
    assert parse_versions("torch==2.1,2.2,torch==2.3.dev1")[2] == ("torch", "2.3.dev1")


def test_the_package_of_several_versions_is_searched(tmp_path: Path) -> None:
    files = (
        "torch_x-2.10.0-cp311-cp311-linux_x86_64.whl",
        "torch_x-2.9.0-1-cp311-cp311-manylinux_2_28_x86_64.manylinux2014_x86_64.whl",
        "torch.X-2.9.0.dev20260101+cu128-cp311-cp311-linux_x86_64.whl",
        "torch_x-2.10.0-cp312-cp312-linux_x86_64.whl",
        "numpy-2.3.0-py3-none-any.whl",
        "torch_x-2.11.0.tar.gz",
        "torch_x-new-py3-none-any.whl",
    )
    for name in files:
        (tmp_path / name).touch()
    versions = ["2.9.0.dev20260101+cu128", "2.9.0", "2.10.0"]
    assert versions_in(tmp_path) == [("torch-x", version) for version in versions]
    (tmp_path / "numpy-2.4.0-py3-none-any.whl").touch()
    with pytest.raises(UsageError, match="it has: numpy, torch-x; --versions"):
        versions_in(tmp_path)
    with pytest.raises(UsageError, match="No such file"):
        versions_in(tmp_path / "none")


def test_an_interpreter_may_say_something_first(tmp_path: Path) -> None:
    """As a wrapper that loads environment modules does."""
    wrapper = tmp_path / "python"
    wrapper.write_text(
        f'#!/bin/sh\necho "Loading gcc/12"\nexec {shlex.quote(sys.executable)} "$@"\n'
    )
    wrapper.chmod(0o755)
    assert _site_folders(str(wrapper), variables())[0] in site.getsitepackages()
    for said in ("", "Loading gcc/12", json.dumps({"a": 1}), "[1]", "[" * 100_000):
        wrapper.write_text(f"#!/bin/sh\necho '{said}'\n")
        with pytest.raises(UsageError, match="does not say where its packages are"):
            _site_folders(str(wrapper), variables())
