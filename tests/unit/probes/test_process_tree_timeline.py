"""The lines of process_info.log: rarer over time, without losing a peak."""

from __future__ import annotations

import json
import resource
from pathlib import Path

from perfrun.probes.process_tree import Timeline


def written(path: Path, values: dict[float, int]) -> list[tuple[float, int]]:
    with Timeline(path) as timeline:
        for time, value in values.items():
            timeline.add({"time": time, "tree_pss": value})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(line["time"], line["tree_pss"]) for line in lines]


def test_a_short_trial_has_a_line_every_tenth_of_a_second(tmp_path: Path) -> None:
    lines = written(tmp_path / "log", {i / 20: 1000 for i in range(100)})
    assert 45 <= len(lines) <= 51


def test_a_day_does_not_make_a_huge_file(tmp_path: Path) -> None:
    lines = written(tmp_path / "log", {i / 4: 1000 for i in range(24 * 3600 * 4)})
    assert len(lines) < 10_000


def test_a_peak_between_two_lines_gets_a_line_of_its_own_in_its_place(tmp_path: Path) -> None:
    values = {1000.0 + i / 20: 1000 for i in range(100)}
    values[1002.5] = 5000
    lines = written(tmp_path / "log", values)
    assert len(lines) < 15
    assert (1002.5, 5000) in lines
    assert lines == sorted(lines)


def test_a_peak_at_the_very_end_is_not_lost(tmp_path: Path) -> None:
    lines = written(tmp_path / "log", {1000.0: 1000, 1000.05: 1000, 1000.1: 2000})
    assert lines == [(1000.0, 1000), (1000.1, 2000)]


def test_noise_is_no_peak(tmp_path: Path) -> None:
    assert len(written(tmp_path / "log", {1000.0: 100_000, 1000.1: 100_050, 1000.2: 100_000})) == 1


def test_a_folder_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    with Timeline(tmp_path / "missing" / "log") as timeline:
        timeline.add({"time": 0.0, "tree_pss": 1})


def test_what_a_full_disk_does_not_take_is_written_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "log"
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Timeline(path) as timeline:
        timeline.add({"time": 0.0, "tree_pss": 1})
        try:  # the kernel takes a part of a line, and then nothing
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, usual[1]))
            timeline.add({"time": 2.0, "tree_pss": 2})
            timeline.add({"time": 4.0, "tree_pss": 3})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        assert not path.read_text().endswith("\n")
        timeline.add({"time": 6.0, "tree_pss": 4})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["time"], line["tree_pss"]) for line in lines] == [(0, 1), (2, 2), (4, 3), (6, 4)]


def test_lines_are_on_disk_a_second_later_while_the_trial_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Timeline(path) as timeline:
        timeline.add({"time": 0.0, "tree_pss": 1})
        assert len(path.read_text().splitlines()) == 1
        for tenths in range(2, 31, 2):
            timeline.add({"time": tenths / 10, "tree_pss": 1})
            lines = path.read_text().splitlines()
            assert json.loads(lines[-1])["time"] >= tenths / 10 - 1.2
    assert len(path.read_text().splitlines()) == 16
