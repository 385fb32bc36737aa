"""`%%perfrun` in a real IPython: figures, failures, Ctrl-C, the end of the notebook."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

_PATIENCE_S = 60.0
# A cell a line, as JSON; the answer to each is a line.
_SHELL = """
import contextlib, io, json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor", history_length=0)
answers, sys.stdin = sys.stdin, open("/dev/null")
for line in answers:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        found = shell.run_cell(json.loads(line), store_history=False)
    error = found.error_in_exec or found.error_before_exec
    print(json.dumps({
        "printed": printed.getvalue(), "repr": repr(found.result),
        "error": None if error is None else f"{type(error).__name__}: {error}",
    }), flush=True)
"""


def _own(folder: Path) -> dict[str, str]:
    """Folders for what IPython keeps, and for what a notebook leaves that is killed."""
    own = {"IPYTHONDIR": folder / "own" / "ipython", "TMPDIR": folder / "own" / "tmp"}
    for path in own.values():
        path.mkdir(parents=True, exist_ok=True)
    return {name: str(path) for name, path in own.items()}


class Shell:
    """An IPython in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SHELL],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, **_own(folder)},
        )

    def begin(self, code: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def run(self, code: str) -> dict[str, Any]:
        self.begin(code)
        return self.answer()

    def value(self, expression: str) -> Any:
        """The value of an expression that JSON can hold."""
        found = self.run(f"import json; json.dumps({expression})")
        assert found["error"] is None, found
        return json.loads(eval(found["repr"]))


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    assert made.run("%load_ext perfrun")["error"] is None
    yield made
    assert made.process.stdin
    assert made.process.stdout
    made.process.stdin.close()
    made.process.wait(_PATIENCE_S)
    made.process.stdout.close()


def wait_for(path: Path) -> str:
    """The content of a file that a cell writes."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.02)
    raise AssertionError(f"{path} has not come")


def test_a_cell_is_measured_as_trials_of_fresh_processes(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\ndef work(n):\n    return sum(range(n))\n")
    assert shell.run("hidden = 1")["error"] is None
    cell = (
        "%%perfrun --trials={} --max_time=0.2 --name=total --to={} --setup 'n = 1000'\n"
        "import mine, os\n"
        "open('pids', 'a').write(f'{{os.getpid()}}\\n')\n"
        "assert 'hidden' not in globals()\n"
        "# perfrun: measure\n"
        "mine.work(n)\n"
    )
    found = shell.run(cell.format(2, "slow"))
    assert found["error"] is None
    lines = found["printed"].splitlines()
    assert lines[1] == "2 trials of 1 method"
    method, metric, _, _, interval, trials, grade = lines[4].split()
    assert (method, metric, trials) == ("notebook_cell.Cell.total", "wall_time", "2")
    assert interval.startswith("(")
    assert grade in "ABCDEF"
    assert len(set((tmp_path / "pids").read_text().split())) == 2
    figure = shell.value("[slow.measurements[0].value, slow.measurements[0].low, len(slow)]")
    assert 1e-6 < figure[0] < 1e-2
    assert figure[1] <= figure[0]
    # The same cell in another folder is the same series.
    assert shell.run(cell.format(1, "again"))["error"] is None
    assert shell.value("len({one.record.subject for one in slow + again})") == 1
    assert shell.value("len(slow + again)") == 3
    assert shell.value("len(slow.compare(again).document['comparisons'])") >= 2
    left = {one.name for one in tmp_path.iterdir()} - {"__pycache__"}  # Python's own, of mine.py
    assert left == {"mine.py", "own", "pids"}

    failed = shell.run("%%perfrun --trials=1 --workspace=kept\nx = 0\n1 / x")
    assert failed["error"] is None
    assert "failed (ZeroDivisionError: division by zero), 1 trial" in failed["printed"]
    assert "return 1 / x" in failed["printed"]
    assert len(list((tmp_path / "kept" / "output").glob("*/perfzero_summary.json"))) == 1
    hung = shell.run("%%perfrun --trials=1 --timeout=0.5\nimport time\ntime.sleep(60)")
    assert "timed_out (not finished after 0.5 s" in hung["printed"]
    assert list((tmp_path / "own" / "tmp").iterdir()) == []
    for code, said in (
        ("%%perfrun --trails=3\n1", "unknown flag --trails; did you mean --trials?"),
        ("%%perfrun --trials=0\n1", "--trials=0: must be"),
        ("%%perfrun --setup='\n1", "No closing quotation"),
        ("%%perfrun --python=/none\n1", "--python=/none: is not there"),
        ("%%perfrun\n%matplotlib inline", "a measured cell is plain Python"),
    ):
        assert said in shell.run(code)["error"], code
        assert shell.run(code)["error"].startswith("UsageError: ")
    assert "NOT visible" in shell.run("%%perfrun --help\n1")["printed"]


def test_ctrl_c_and_the_end_of_the_notebook_leave_no_process(shell: Shell, tmp_path: Path) -> None:
    hanging = "%%perfrun\nimport os, time\nopen({!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    shell.begin(hanging.format("first"))
    worker = psutil.Process(int(wait_for(tmp_path / "first")))
    shell.process.send_signal(signal.SIGINT)
    assert shell.answer()["error"].startswith("KeyboardInterrupt")
    assert not worker.is_running()
    assert psutil.Process(shell.process.pid).children(recursive=True) == []
    assert shell.run("1 + 1")["repr"] == "2", "the notebook goes on"

    shell.begin(hanging.format("second"))
    worker = psutil.Process(int(wait_for(tmp_path / "second")))
    shell.process.kill()
    assert worker.wait(_PATIENCE_S) is None


_EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(book)
NotebookClient(book, timeout=300, kernel_name="python3").execute()
nbformat.write(book, sys.argv[2])
"""
EXAMPLE = Path(__file__).parents[2] / "docs" / "guides" / "example.ipynb"


def test_the_example_tells_its_story_in_a_real_kernel(tmp_path: Path) -> None:
    stored = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    code = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)

    done = subprocess.run(
        [sys.executable, "-c", _EXECUTE, str(EXAMPLE), str(tmp_path / "done.ipynb")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **_own(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads((tmp_path / "done.ipynb").read_text())["cells"]
    shown = {cell["id"]: cell["outputs"] for cell in cells if cell["cell_type"] == "code"}
    assert "3 trials of 1 method" in "".join(shown["list"][0]["data"]["text/plain"])
    verdict = shown["verdict"][0]["data"]
    assert "faster" in "".join(verdict["text/plain"])
    assert "".join(verdict["text/html"]).startswith("<div class=")
    assert "image/png" in shown["plot"][0]["data"]
    assert "".join(shown["pandas"][0]["data"]["text/html"]).count("<tr") == 1 + 6
    assert not (tmp_path / "workspace").exists()
