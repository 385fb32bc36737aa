"""The comparisons of frameworks on the page: those of `perfrun versus`, and nothing else."""

from __future__ import annotations

import json
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


def test_a_comparison_with_very_many_cases_is_cut_and_says_so(tmp_path: Path) -> None:
    own = saved(tmp_path, "small", 1.0) / "versus" / "x.json"
    document = json.loads(own.read_text(encoding="utf-8"))
    cells = [{**one, "batch_size": size} for size in range(1, 301) for one in document["cells"]]
    own.write_text(json.dumps({**document, "cells": cells}), encoding="utf-8")
    (table,) = versus_tables(own.parents[1])
    assert table["title"] == "net small (the first 200 of 300 cases)"
    shown = [row for row in table["rows"] if row["metric"] == "latency_s"]
    assert len(shown) == 200
    assert all([side["name"] for side in row["sides"]] == ["torch", "tensorflow"] for row in shown)
