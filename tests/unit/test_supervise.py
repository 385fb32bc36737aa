"""The supervisor outside of a container: it refuses, since it ends by killing all it can see.

What it does inside is tested where there is an engine (tests/docker).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from perfrun.launchers.container_service import write_order
from perfrun.launchers.contract import ENTRY


def test_it_does_not_run_among_other_peoples_processes(tmp_path: Path) -> None:
    order = write_order({"action": "run"}, tmp_path, tmp_path / "out", tmp_path / "err", None)
    assert json.loads(order.read_text())["parent_pid"] is None
    bystander = subprocess.Popen(["sleep", "600"])
    argv = [sys.executable, "-I", str(ENTRY), "--supervise", str(order)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1
    assert "runs in a container of its own" in done.stderr
    assert bystander.poll() is None
    assert not (tmp_path / "out").exists()
    bystander.kill()
    bystander.wait()
