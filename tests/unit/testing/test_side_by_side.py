"""The processes that tests share where they run side by side, and the order of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

pytest.importorskip("xdist")
TESTS = Path(__file__).parents[2]
TEST = """
import os
import pytest

@pytest.mark.parametrize("case", ["a-rootful", "b-rootless", "c-rootful", "d-rootless", "e"])
def test_it(case, request):
    with open("ran", "a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + " " + request.node.nodeid + "\\n")
"""
FOLDERS = ("attack", "docker", "integration", "unit")


@pytest.mark.slow
def test_an_engine_and_a_module_stay_in_one_process_and_the_shortest_tests_are_last(
    tmp_path: Path,
) -> None:
    for folder in FOLDERS:
        for name in ("one", "two"):
            path = tmp_path / "tests" / folder / f"test_{folder}_{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(TEST)
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir=.", "-n", "2"],
        cwd=tmp_path,
        env={
            **{key: value for key, value in os.environ.items() if "PYTEST" not in key},
            "PYTHONPATH": os.fspath(TESTS),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    ran = [line.split(" ", 1) for line in (tmp_path / "ran").read_text().splitlines()]
    assert len({nodeid for _, nodeid in ran}) == len(ran) == len(FOLDERS) * 2 * 5
    processes = defaultdict(set)
    for process, nodeid in ran:
        scope = nodeid.partition("::")[0]
        if "/docker/" in nodeid:
            scope = "rootless" if "rootless" in nodeid else "rootful"
        if "/unit/" not in nodeid:
            processes[scope].add(process)
    assert len(processes) == 2 + 2 * 2
    assert all(len(found) == 1 for found in processes.values()), processes
    assert processes["rootless"] != processes["rootful"]  # both begin at once
    for process in ("gw0", "gw1"):
        folders = [nodeid.split("/")[1] for where, nodeid in ran if where == process]
        order = [folder for folder in dict.fromkeys(folders) if folder in FOLDERS]
        assert order[0] == "docker"
        ranked = [f for f in ("docker", "integration", "attack", "unit") if f in order]
        assert order == ranked
        assert folders == sorted(folders, key=ranked.index)
