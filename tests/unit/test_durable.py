"""Names on the disk: which folders have got one, and what a disk that cannot sync means."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from perfrun.durable import make_folder, sync_file, sync_names


def test_the_folders_with_new_names_are_told(tmp_path: Path) -> None:
    assert make_folder(tmp_path / "a" / "b") == [tmp_path / "a", tmp_path]
    assert make_folder(tmp_path / "a" / "b") == []
    assert make_folder(tmp_path / "a" / "c") == [tmp_path / "a"]


def test_a_folder_that_has_gone_is_no_error(tmp_path: Path) -> None:
    sync_names(tmp_path)
    sync_names(tmp_path / "gone")


def test_a_file_that_the_disk_cannot_sync_is_an_error_of_the_disk_only(tmp_path: Path) -> None:
    readable, writable = os.pipe()  # has nothing to sync: EINVAL
    sync_file(writable)
    os.close(readable)
    os.close(writable)
    with pytest.raises(OSError, match="Bad file descriptor") as failed:
        sync_file(writable)
    assert failed.value.errno == errno.EBADF
