"""`perfrun fleet --table`: its forms, and metrics that nothing has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfrun.benchmark import main
from tests.submissions import finished, swept
from tests.summaries import summary


def test_the_table_of_a_sweep_is_markdown_too_and_a_metric_that_nothing_has_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = swept(tmp_path, 2)
    fleet = ["fleet", f"--workspace={tmp_path}", "--table"]
    assert main([*fleet, "--metric=wall_time"]) == 1  # nothing has ended, so nobody knows
    assert "no trial of it has ended" in capsys.readouterr().out
    for shard in made.shards:
        text = json.dumps(summary(method=shard.method, wall_time=1.0 + shard.index))
        finished(made, shard.index, **{f"t{shard.index}": text})
    assert main([*fleet, "--metric=wall_time", "--format=markdown"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| method | environment | setting | trials | wall\\_time | of first |",
        "|---|---|---|---:|---:|---:|",
        "| cases.Cases.m | default | size=0 | 1 | 1 s |  |",
        "| cases.Cases.m | default | size=1 | 1 | 2 s | 2.000 |",
    ]
    assert main([*fleet, "--metric=wall_tim"]) == 2
    assert "--metric=wall_tim: no trial has it; did you mean wall_time?" in capsys.readouterr().err
    assert main(["fleet", f"--workspace={tmp_path}", "--format=markdown"]) == 2
    assert "--format=markdown: is of --table" in capsys.readouterr().err
