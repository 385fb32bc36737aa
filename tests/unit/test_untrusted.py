"""Whatever lies under a name, the reader of a trial's files ends, and follows nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfrun.untrusted import Folder, Refused, parse_json, read_file

LIMIT = 1000


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "a 'trial'\n"
    place.mkdir()
    (tmp_path / "secret").write_text("private key")
    return place


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
    for number in range(11_000):
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
