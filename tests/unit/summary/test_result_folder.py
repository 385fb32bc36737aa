"""Results are kept when the disk is full or fails.

The tests may run as root, whom permissions do not stop: a file stands where a folder should be.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfrun.summary import result_folder
from perfrun.summary.result_folder import (
    RESERVED_BYTES,
    ResultFolder,
    Storage,
    safe_name,
    write_whole,
)

HOSTILE = ["a b", "'q\"", "new\nline", "-dash", "größe", "a;b&c", "*", "x" * 200]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's folder for temporary files, where rescued results go."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def storage(tmp_path: Path, said: list[str]) -> Storage:
    made = Storage(tmp_path / "work space" / "output", "run1", said.append)
    made.open()
    return made


def output(tmp_path: Path) -> Path:
    return tmp_path / "work space" / "output"


def reserve_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob(".reserve-*"))


def block(folder: Path) -> None:
    """Put a file in the place of a folder, so that nothing can be made in it."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    folder.write_text("in the way")


def test_space_is_set_aside_and_given_back(storage: Storage, tmp_path: Path) -> None:
    folder = output(tmp_path)
    assert reserve_size(folder) == RESERVED_BYTES
    (reserve,) = folder.glob(".reserve-*")
    assert reserve.stat().st_blocks * 512 >= RESERVED_BYTES  # really taken: no sparse file
    storage.close()
    assert not list(folder.iterdir())


def test_two_runs_in_one_workspace_have_a_reserve_each(storage: Storage, tmp_path: Path) -> None:
    other = Storage(output(tmp_path), "run2", print)
    other.open()
    assert reserve_size(output(tmp_path)) == 2 * RESERVED_BYTES
    other.close()
    assert reserve_size(output(tmp_path)) == RESERVED_BYTES
    storage.close()


def test_the_reserve_of_a_run_that_was_killed_is_removed_by_the_next_run(
    storage: Storage, tmp_path: Path
) -> None:
    folder = output(tmp_path)
    (folder / ".reserve-old").write_bytes(b"\0" * RESERVED_BYTES)  # of a perfrun without locks
    program = (
        "import sys, time; from pathlib import Path\n"
        "from perfrun.summary.result_folder import Storage\n"
        "Storage(Path(sys.argv[1]), 'run3', print).open(); print('open', flush=True)\n"
        "time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    words = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        assert sorted(p.name for p in folder.iterdir()) == [".reserve-run1", ".reserve-run3"]
        other = Storage(folder, "run2", print)
        other.open()
        assert (folder / ".reserve-run3").exists()  # its owner lives
        other.close()
        owner.kill()
    other.open()
    assert sorted(p.name for p in folder.iterdir()) == [".reserve-run1", ".reserve-run2"]
    other.close()


def test_a_resumed_run_has_the_reserve_that_it_was_killed_with_made_anew(
    storage: Storage, tmp_path: Path
) -> None:
    (output(tmp_path) / ".reserve-run2").write_bytes(b"cut off")
    resumed = Storage(output(tmp_path), "run2", print)
    resumed.open()
    assert reserve_size(output(tmp_path)) == 2 * RESERVED_BYTES
    again = Storage(output(tmp_path), "run2", print)  # by mistake: the run goes on already
    again.open()
    again.close()
    assert reserve_size(output(tmp_path)) == 2 * RESERVED_BYTES
    resumed.close()
    assert reserve_size(output(tmp_path)) == RESERVED_BYTES


def test_a_reserve_that_somebody_removed_is_taken_anew(storage: Storage, tmp_path: Path) -> None:
    (output(tmp_path) / ".reserve-run1").unlink()
    storage.new_folder("id")
    assert reserve_size(output(tmp_path)) == RESERVED_BYTES
    storage.close()
    assert reserve_size(output(tmp_path)) == 0


def test_an_output_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        Storage(tmp_path / "file" / "output", "run", print).open()


def test_a_folder_that_is_taken_is_never_used_again(storage: Storage, tmp_path: Path) -> None:
    first = storage.new_folder("id")
    (first.path / "kept").write_text("1")
    names = [storage.new_folder("id").path.name for _ in range(3)]
    assert names == ["id-2", "id-3", "id-4"]
    assert (first.path / "kept").read_text() == "1"
    assert first.private.is_dir()
    assert first.private.parent == first.path
    assert first.path.parent == output(tmp_path)


def test_a_file_of_that_name_is_not_overwritten(storage: Storage, tmp_path: Path) -> None:
    (output(tmp_path) / "id").write_text("mine")
    assert storage.new_folder("id").path.name == "id-2"
    assert (output(tmp_path) / "id").read_text() == "mine"


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_summary_goes_into_a_folder_of_any_name(storage: Storage, name: str) -> None:
    folder = storage.new_folder(name)
    path = storage.write_summary(folder, '{"a": 1}')
    assert path == folder.path / "perfzero_summary.json"
    assert path.read_text() == '{"a": 1}'
    names = sorted(item.name for item in folder.path.iterdir())
    assert names == ["perfrun", "perfzero_summary.json"]


def test_when_the_workspace_fails_trials_go_to_the_temporary_folder(
    storage: Storage, tmp_path: Path, temporary: Path, said: list[str]
) -> None:
    block(output(tmp_path))
    folder = storage.new_folder("id")
    assert folder.path.is_relative_to(temporary)
    assert folder.private.is_dir()
    assert str(folder.path) in said[0]
    assert str(output(tmp_path)) in said[0]


def test_the_summary_of_a_rescued_trial_stays_with_it(
    storage: Storage, tmp_path: Path, temporary: Path, said: list[str]
) -> None:
    block(output(tmp_path))
    folder = storage.new_folder("id")
    path = storage.write_summary(folder, "{}")
    assert path == folder.path / "perfzero_summary.json"
    assert path.read_text() == "{}"
    assert len(said) == 1  # said once, when the folder was made


def test_a_trial_folder_that_fails_at_the_end_costs_no_summary(
    storage: Storage, tmp_path: Path, temporary: Path, said: list[str]
) -> None:
    folder = storage.new_folder("id")
    block(folder.path)
    path = storage.write_summary(folder, "{}")
    assert path.is_relative_to(temporary)
    assert path.read_text() == "{}"
    assert str(path) in said[0]
    assert reserve_size(output(tmp_path)) == 0  # given back to make room


def test_rescued_summaries_of_several_trials_do_not_meet(
    storage: Storage, tmp_path: Path, temporary: Path
) -> None:
    folders = [storage.new_folder("id") for _ in range(2)]
    for folder in folders:
        block(folder.path)
    paths = [storage.write_summary(folder, str(n)) for n, folder in enumerate(folders)]
    assert [path.read_text() for path in paths] == ["0", "1"]


def test_a_folder_that_the_benchmark_removed_is_made_again(storage: Storage) -> None:
    folder = storage.new_folder("id")
    folder.private.rmdir()
    folder.path.rmdir()
    assert storage.write_summary(folder, "{}") == folder.path / "perfzero_summary.json"


def test_when_no_place_is_left_the_summary_is_said_and_the_run_goes_on(
    storage: Storage, said: list[str], temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ResultFolder(storage.new_folder("id").path)
    block(folder.path)
    block(temporary)
    text = json.dumps({"measured": ["figure"] * 10_000}, indent=2)  # longer than any line
    path = storage.write_summary(folder, text)
    assert not path.exists()
    assert str(folder.path) in said[-1]
    assert capsys.readouterr().err == text + "\n"


def test_a_disk_that_fills_between_trials_is_said_once_until_there_is_room_again(
    storage: Storage, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = {"bytes": 1 << 30}

    def statvfs(folder: Path) -> SimpleNamespace:
        assert folder == output(tmp_path)
        return SimpleNamespace(f_bavail=free["bytes"], f_frsize=1)

    monkeypatch.setattr(os, "statvfs", statvfs)
    storage.new_folder("before")
    assert not said
    free["bytes"] = 12_345
    for trial in "ab":
        folder = storage.new_folder(trial)
        assert folder.path.parent == output(
            tmp_path
        )  # there is room enough for a folder and a summary
        assert reserve_size(output(tmp_path)) == 0  # it is what was set aside
    [line] = said
    assert line.startswith(f"the disk of {output(tmp_path)} is full (12 KiB free): ")
    assert "--workspace=FOLDER" in line
    free["bytes"] = 1 << 30
    storage.new_folder("room")
    assert reserve_size(output(tmp_path)) == RESERVED_BYTES
    free["bytes"] = 0
    storage.new_folder("full again")
    assert len(said) == 2


def test_a_disk_without_room_for_the_reserve_is_full(
    storage: Storage, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), str(path))

    storage.reserve.release()
    monkeypatch.setattr(result_folder, "_fill", refuse)
    assert storage.new_folder("id").path == output(tmp_path) / "id"
    [line] = said
    assert line.startswith(f"the disk of {output(tmp_path)} is full (Disk quota exceeded): ")


def test_writing_replaces_a_whole_file_by_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_whole(path, "old")
    write_whole(path, "neü")
    assert path.read_text(encoding="utf-8") == "neü"
    assert not (tmp_path / "s.json.next").exists()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.mkdir()
    (path / "kept").touch()
    with pytest.raises(OSError, match=r"s\.json"):
        write_whole(path, "text")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.json", "tmp"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run.Class.method.1", "run.Class.method.1"),
        ("a b/c\nd:e", "a_b_c_d_e"),
        ("../../etc", "_.._etc"),
        ("..", "_"),
        ("", "_"),
        (".hidden", "hidden"),
        ("größe", "gr__e"),
        ("x" * 400, "x" * 150),
    ],
)
def test_a_safe_name_is_one_folder_below(text: str, expected: str) -> None:
    assert safe_name(text) == expected
