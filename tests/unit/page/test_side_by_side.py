"""The comparisons of frameworks on the page: those of `perfrun versus`, and nothing else."""

from __future__ import annotations

from pathlib import Path

from perfrun.page.side_by_side import versus_tables
from tests.unit.versus.test_answer import saved


def test_saved_comparisons_are_shown_and_damaged_ones_and_links_are_not(tmp_path: Path) -> None:
    workspace = saved(tmp_path, "small", 1.0)
    own = workspace / "versus" / "x.json"
    (own.parent / "y.json").write_text(own.read_text().replace('"median"', '"mean"'))
    (own.parent / "z.json").symlink_to(own)
    (table,) = versus_tables(workspace)
    assert table["title"] == "net small"
    row = next(row for row in table["rows"] if row["metric"] == "latency_s")
    assert [side["name"] for side in row["sides"]] == ["torch", "tensorflow"]
    assert all(side["low"] <= side["value"] <= side["high"] for side in row["sides"])
    assert versus_tables(tmp_path) == ()
