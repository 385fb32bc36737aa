"""What `perfrun pack` puts into a capsule."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfrun.errors import UsageError
from perfrun.replay.capsule import write_capsule
from perfrun.replay.installed import Distribution
from perfrun.replay.pack_command import add_pip, copy_code


def names(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def test_code_is_packed_without_the_workspace_and_without_capsules(tmp_path: Path) -> None:
    code = tmp_path / "code"
    for name in ("bench/cases.py", "bench/workspace/own.py", "workspace/runs/trial.json"):
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text("1")
    (code / "capsule.tar").write_text("the one that is to be replaced")
    empty = tmp_path / "empty"
    empty.mkdir()
    write_capsule(empty, {}, code / "an earlier one")
    link = tmp_path / "link"
    link.symlink_to(code)
    copy_code(link, tmp_path / "copy", (code / "workspace", code / "capsule.tar"))
    assert names(tmp_path / "copy") == ["bench/cases.py", "bench/workspace/own.py"]


def test_a_name_that_no_manifest_can_hold_is_refused(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / os.fsdecode(b"caf\xe9.py")).write_text("1")
    with pytest.raises(UsageError, match=r"code: 'caf.*\.py' is no name in UTF-8"):
        copy_code(tmp_path / "code", tmp_path / "copy")


def test_a_pip_that_no_wheel_can_be_made_of_is_said(tmp_path: Path) -> None:
    (tmp_path / "pip-1.dist-info").mkdir()  # without RECORD, as some systems install it
    found = Distribution(
        name="pip", version="1", metadata=tmp_path / "pip-1.dist-info", prefix=tmp_path
    )
    notes: list[str] = []
    add_pip(found, tmp_path / "tools", notes.append)
    assert "perfrun's own pip cannot be packed (no list of its files" in notes[0]
    assert names(tmp_path / "tools") == []
