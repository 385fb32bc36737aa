"""What a worker wrote over the readings of its processes does no harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfrun.summary import process_log
from perfrun.summary.process_log import NAME, readings


def test_only_finite_numbers_of_ever_later_times_count(tmp_path: Path) -> None:
    lines = [
        '{"time": 0.0, "rss": 5}',
        '{"time": 1.0, "rss": NaN, "cpu_percent": -1, "power_w": 1e400, "tree_pss": 7}',
        '{"time": 0.5, "rss": 6}',
        '{"rss": 6}',
        '{"time": "2", "rss": 6}',
        '{"time": true}',
        "[" * 100_000,
        "[1]",
        f'{{"time": 3.0, "{"x" * 70_000}": 1}}',
        '{"time": 4.0, "rss": 1' + "0" * 400 + "}",
        '{"time": 5.0, "rs',
    ]
    summary = tmp_path / "perfzero_summary.json"
    (tmp_path / NAME).write_text("\n".join(lines))
    assert list(readings(summary)) == [
        {"time": 0.0, "rss": 5.0},
        {"time": 1.0, "tree_pss": 7.0},
        {"time": 4.0},
    ]


def test_a_link_or_a_large_file_is_no_log_and_many_readings_are_thinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "perfzero_summary.json"
    assert list(readings(Path())) == []
    (tmp_path / "other").write_text('{"time": 1.0}\n' * 100)
    (tmp_path / NAME).symlink_to(tmp_path / "other")
    assert list(readings(summary)) == []
    (tmp_path / "other").rename(tmp_path / NAME)
    assert len(readings(summary)) == 100
    assert len(readings(summary, 30)) == 34
    monkeypatch.setattr(process_log, "_LARGEST_BYTES", 100)
    assert list(readings(summary)) == []
