"""scripts/container/record_image.py: the commit of a checkout, read without git."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from gitrepos import git, make_repository

SOURCE = Path(__file__).resolve().parents[3] / "scripts" / "container" / "record_image.py"


@pytest.fixture(scope="module")
def record_image() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record_image", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_branch_and_commit_are_as_git_says(record_image: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "a checkout"
    first, second = make_repository(folder, [{"a": "1"}, {"a": "2"}])
    git(folder, "checkout", "-q", "-b", "topic/one")
    expected = {"url": "", "branch": "topic/one", "hash": second}
    assert record_image.read_commit(folder / ".git") == expected
    git(folder, "pack-refs", "--all")
    assert record_image.read_commit(folder / ".git") == expected
    git(folder, "checkout", "-q", "--detach", first)
    expected = {"url": "", "branch": "", "hash": first}
    assert record_image.read_commit(folder / ".git") == expected


def test_what_is_no_repository_or_has_no_commit_says_nothing(
    record_image: ModuleType, tmp_path: Path
) -> None:
    assert record_image.read_commit(tmp_path / "none") == {}
    (tmp_path / "file").write_text("gitdir: elsewhere")
    assert record_image.read_commit(tmp_path / "file") == {}
    git(tmp_path, "init", "-q", ".")
    assert record_image.read_commit(tmp_path / ".git") == {}


def test_what_the_build_was_told_counts(record_image: ModuleType) -> None:
    facts = record_image.parse_facts(["harness_hash=abc", "harness_branch=", "device=cpu", "x="])
    assert facts == {"device": "cpu", "x": None, "harness_info": {"branch": "", "hash": "abc"}}
