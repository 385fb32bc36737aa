"""The commands of a GPU day, for real on the CPU: what a device would be asked, and no verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu_day import __main__ as command


@pytest.mark.torch
def test_the_rehearsal_runs_the_commands_of_a_day(tmp_path: Path, torch_python: str) -> None:
    words = ["--rehearse", f"--output={tmp_path}", f"--python={torch_python}"]
    status = command.main([*words, "--only", "two_streams", "dlbs_rows", "mig"])
    whole = json.loads((tmp_path / "gpu_day.json").read_text(encoding="utf-8"))
    found = {one["name"]: one for one in whole["checks"]}
    assert status == 0, found
    verdicts = {name: one["verdict"] for name, one in found.items()}
    assert verdicts == {"mig": "absent", "two_streams": "ran", "dlbs_rows": "ran"}
    assert found["two_streams"]["answer"]["trial"]["by_hand_s"] > 0
    assert found["dlbs_rows"]["answer"]["lines"]["results.status"] == "ok"
