"""Whatever lies under a name, the reader of a trial's files ends, and follows nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from nested import nest

from perfrun.untrusted import Folder, Refused, parse_json, read_file, remove_tree

LIMIT = 1000


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "a 'trial'\n"
    place.mkdir()
    (tmp_path / "secret").write_text("private key")
    yield place
    remove_tree(place)  # folders that are as deep as these cannot be removed by pytest itself


def plant_link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "secret")


def plant_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def plant_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(4 * 2**40)


PLANTS = (plant_link, plant_device, plant_sparse, os.mkfifo, Path.mkdir)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_what_is_no_regular_file_of_bounded_size_is_refused(place: Path, plant) -> None:  # type: ignore[no-untyped-def]
    plant(place / "outcome.json")
    with Folder(place) as folder, pytest.raises((OSError, Refused)):
        folder.read("outcome.json", LIMIT)
    with pytest.raises((OSError, Refused)):
        read_file(place / "outcome.json", LIMIT)


def test_the_end_of_a_sparse_file_takes_no_more_than_the_limit(place: Path) -> None:
    plant_sparse(place / "stderr.log")
    with Folder(place) as folder:
        data, is_cut = folder.tail("stderr.log", LIMIT)
    assert (len(data), is_cut) == (LIMIT, True)


def test_a_folder_on_the_way_that_is_a_link_is_not_entered(place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (place / "perfrun").symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"Not a directory|symbolic"):
        Folder(place, "perfrun")


@pytest.mark.parametrize("name", ["../secret", "..", ".", "", "a/b", "a\0b"])
def test_a_name_cannot_lead_out_of_the_folder(place: Path, name: str) -> None:
    with Folder(place) as folder, pytest.raises(Refused):
        folder.read(name, LIMIT)
    with pytest.raises(Refused):
        Folder(place, name)


def test_writing_replaces_a_link_and_leaves_its_target_as_it_was(place: Path) -> None:
    plant_link(place / "perfzero_summary.json")
    with Folder(place) as folder:
        folder.write("perfzero_summary.json", b"{}")
        assert folder.read("perfzero_summary.json", LIMIT) == b"{}"
        assert folder.names() == ["perfzero_summary.json"]
    assert (place.parent / "secret").read_text() == "private key"


@pytest.mark.parametrize("plant", [plant_link, os.mkfifo], ids=["link", "pipe"])
def test_nothing_is_appended_to_a_link_or_a_pipe(place: Path, plant) -> None:  # type: ignore[no-untyped-def]
    plant(place / "log")
    with Folder(place) as folder, pytest.raises((OSError, Refused)):
        folder.append("log", b"a line\n")
    assert (place.parent / "secret").read_text() == "private key"


def test_nothing_is_appended_to_a_file_with_a_second_name(place: Path) -> None:
    os.link(place.parent / "secret", place / "log")
    with Folder(place) as folder, pytest.raises(Refused):
        folder.append("log", b"a line\n")


def test_lines_are_appended_and_names_are_listed(place: Path) -> None:
    with Folder(place) as folder:
        folder.append("log_2", b"one\n")
        folder.append("log_2", b"two\n")
        folder.write("log_1", b"")
        assert folder.names("log_") == ["log_1", "log_2"]
        assert folder.text("log_2", LIMIT) == "one\ntwo\n"
        assert folder.size("log_2") == 8
        assert folder.text("absent", LIMIT) is None
        assert not folder.exists("absent")


def test_many_files_of_the_benchmark_hide_none_of_perfruns(place: Path) -> None:
    for number in range(10_001):
        (place / f"frame_{number}").touch()
    (place / "proto_C.m").touch()
    with Folder(place) as folder:
        assert folder.names("proto_") == ["proto_C.m"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        '{"a":' * 70 + "1" + "}" * 70,
        "1" * 400,
        "1" * 5000,
        b"\xff",
        "-" + "9" * 30,
    ],
)
def test_json_that_no_reader_could_bear_is_refused(text: str | bytes) -> None:
    with pytest.raises(Refused):
        parse_json(text)


def test_json_is_text_that_a_file_can_take() -> None:
    found = parse_json('{"a\\ud800": ["\\ud83d\\ude00", 1.5, true, null]}')
    assert found == {"a?": ["\N{GRINNING FACE}", 1.5, True, None]}


def test_folders_of_any_depth_are_walked_and_removed(place: Path) -> None:
    nest(place, 1200)
    with Folder(place) as folder:
        names = [entry.name for entry in folder.entries()]
    assert names == ["file"] + ["deep"] * 1200  # what is in a folder comes before it
    before = len(list(Path("/proc/self/fd").iterdir()))
    remove_tree(place)
    assert not place.exists()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_removing_follows_no_link_and_waits_for_no_pipe(place: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (place / "inside").symlink_to(kept)
    os.mkfifo(place / "pipe")
    (place / "closed").mkdir()
    (place / "closed" / "file").touch()
    (place / "closed").chmod(0)
    (tmp_path / "link").symlink_to(kept)
    remove_tree(place)
    remove_tree(tmp_path / "link")
    remove_tree(tmp_path / "absent")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "secret"]
    assert (kept / "file").exists()


def test_a_folder_is_made_in_the_place_of_a_link(place: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (place / "profiles").symlink_to(tmp_path / "elsewhere")
    with Folder(place) as folder:
        assert folder.make("profiles")
        assert not folder.make("profiles")
    assert not (place / "profiles").is_symlink()
    assert (tmp_path / "elsewhere").is_dir()


def test_only_what_a_killed_write_of_that_name_left_is_removed(place: Path) -> None:
    with Folder(place) as folder:
        folder.write("s.json", b"{}")
        for name in (".s.json.0123.next", ".t.json.0123.next", ".s.json.kept", "s.json.next"):
            (place / name).touch()
        plant_link(place / ".s.json.link.next")
        folder.remove_unfinished("s.json")
        assert folder.names() == [".s.json.kept", ".t.json.0123.next", "s.json", "s.json.next"]
    assert (place.parent / "secret").exists()
