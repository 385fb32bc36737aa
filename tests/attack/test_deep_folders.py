"""A benchmark, or a data set, makes folders deeper in each other than functions call themselves."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gitrepos import make_repository
from nested import nest
from trial_documents import perfrun_summary, write_summary

from perfrun.compare.selection import read_folder
from perfrun.errors import UsageError, WorkspaceError
from perfrun.options.plan import parse_data, parse_repos
from perfrun.untrusted import remove_tree
from perfrun.worker.profilers.profile_recorder import ProfileRecorder, profile_facts
from perfrun.worker.profilers.tensorflow import _recordings
from perfrun.workspace.checkouts import checked_out
from perfrun.workspace.downloads import provide_data

MOST_CALLS = 400  # in each other, here: a thousand folders take seconds to make
LEVELS = 450
LONG = "d" * 250  # so many times it is longer than a path may be


@pytest.fixture(autouse=True)
def removed(tmp_path: Path) -> Iterator[None]:
    """Folders that are as deep as these cannot be removed by pytest itself."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(MOST_CALLS)
    yield
    sys.setrecursionlimit(before)
    remove_tree(tmp_path)


def test_a_data_set_is_copied_however_deep_it_is(tmp_path: Path) -> None:
    source, root = tmp_path / "set", tmp_path / "data"
    source.mkdir()
    root.mkdir()
    nest(source, LEVELS, "d")

    def provide(name: str) -> bool:
        items = parse_data(f"file://{source};{name}", "--data_downloads")
        found = provide_data(items, root=root, records=tmp_path / "records", notify=print)
        return found[0].downloaded

    (root / "first.partial").mkdir()
    nest(root / "first.partial", LEVELS)  # what a killed copy has left
    assert provide("first")
    assert (root / "first" / "/".join("d" * LEVELS) / "file").exists()
    remove_tree(source / "d")
    nest(source, 17, LONG)
    with pytest.raises(WorkspaceError, match="File name too long"):
        provide("second")


def test_a_checkout_and_its_cache_may_have_deep_folders_in_place_of_branches(
    tmp_path: Path,
) -> None:
    first, second = make_repository(tmp_path / "source", [{"a.py": "1"}, {"a.py": "2"}])
    workspace = tmp_path / "work"

    def folder_at(commit: str) -> Path:
        repos = parse_repos(f"file://{tmp_path / 'source'};main;{commit}")
        with checked_out(repos, workspace=workspace, use_cached=False) as [checkout]:
            return checkout.path

    folder = folder_at(first)
    (cache,) = (workspace / "git-cache").glob("*.git")
    for refs in (folder / ".git" / "refs", cache / "refs"):
        nest(refs, LEVELS, "d")
        (refs / "d" / "left.lock").touch()
        os.utime(refs / "d" / "left.lock", (0, 0))
    assert folder_at(second) == folder
    assert not (folder / ".git" / "refs" / "d" / "left.lock").exists()
    assert not (cache / "refs" / "d" / "left.lock").exists()
    assert (folder / "a.py").read_text() == "2"


def test_results_are_found_beside_deep_folders(tmp_path: Path) -> None:
    nest(tmp_path, LEVELS, "d")
    with pytest.raises(UsageError, match="there is no"):
        read_folder(tmp_path, print)
    write_summary(tmp_path / "a" / "b" / "c", perfrun_summary())
    assert len(read_folder(tmp_path, print)) == 1


def test_a_profile_is_told_of_though_its_benchmark_made_deep_folders(tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    folder.mkdir()
    nest(folder, LEVELS, "d")
    nest(folder, 17, LONG)
    (folder / "nowhere").symlink_to("absent")
    (folder / "d" / "one.xplane.pb").write_bytes(b"12")
    facts = profile_facts("tensorflow", ProfileRecorder(str(folder)), str(folder), [])
    deepest = f"profile/{'/'.join('d' * LEVELS)}/file"
    assert [one["path"] for one in facts["files"]] == [deepest, "profile/d/one.xplane.pb"]
    assert _recordings(str(folder)) == [str(folder / "d" / "one.xplane.pb")]
