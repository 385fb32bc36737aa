"""Which heavy modules each command loads: those it needs, and no others.

A command's start is mostly imports. What is listed here costs a millisecond or much more; a module
that appears without need, or a need that has gone, fails the test of its command.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.gitrepos import make_repository
from tests.summaries import summary, write

LIBRARIES = {
    "absl", "cpuinfo", "docker", "git", "numpy", "psutil", "pynvml", "requests", "rich",
    "ruptures", "scipy", "sqlalchemy", "urllib3",
}  # fmt: skip
STANDARD = {
    "asyncio", "bz2", "ctypes", "dataclasses", "difflib", "email", "hashlib", "http", "inspect",
    "logging", "lzma", "multiprocessing", "platform", "random", "shutil", "socket", "ssl",
    "statistics", "subprocess", "tempfile", "unicodedata", "unittest", "uuid", "xml",
}  # fmt: skip
OWN = {
    "perfrun.options.command_line",
    "perfrun.options.plan",
    "perfrun.run.rounds",
    "perfrun.run.runner",
    "perfrun.worker.author",
}
HEAVY = LIBRARIES | STANDARD | OWN
# Commands that cannot answer anything without statistics, or an index, import them at their top.
STATISTICS = {"numpy", "scipy"}
ALLOWED_HELP = {
    **dict.fromkeys(("ab", "bisect", "compare", "explain", "versus"), STATISTICS),
    "prune": {"sqlalchemy"},
}
NOOP = "benchmarks.python.calibration.Calibration.noop"
_CODE = """
import atexit, json, sys
before = set(sys.modules)
def dump(path):
    with open(path, "w") as file:
        json.dump(sorted(set(sys.modules) - before), file)
atexit.register(dump, sys.argv.pop(1))
from perfrun.benchmark import main
sys.exit(main())
"""


def loaded(tmp_path: Path, argv: Sequence[str], statuses: Sequence[int] = (0,)) -> set[str]:
    """Run a command in a process of its own; return what it has loaded when it ends."""
    path = tmp_path / "modules.json"
    command = [sys.executable, "-c", _CODE, str(path), *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode in statuses, done.stderr
    return set(json.loads(path.read_text()))


def heavy(tmp_path: Path, *argv: str, statuses: Sequence[int] = (0,)) -> set[str]:
    return loaded(tmp_path, argv, statuses) & HEAVY


def test_the_version_needs_nothing(tmp_path: Path) -> None:
    found = loaded(tmp_path, ["--version"])
    assert not found & {*HEAVY, "argparse", "json", "pathlib", "typing"}
    assert {name for name in found if name.startswith("perfrun")} == {
        "perfrun", "perfrun.benchmark", "perfrun.errors", "perfrun.reports",
        "perfrun.reports.output",
    }  # fmt: skip


def test_results_in_python_cost_nothing_until_they_are_asked_for() -> None:
    code = (
        "import sys; before = set(sys.modules); import perfrun; print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["perfrun"]


def test_loaded_results_need_no_library_of_a_notebook(nights: Path) -> None:
    code = (
        "import sys, perfrun; found = perfrun.load(sys.argv[1]); repr(found), found._repr_html_()\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(nights)], capture_output=True, text=True, check=True
    )
    libraries = {*LIBRARIES, "IPython", "matplotlib", "pandas", "polars"}
    assert set(done.stdout.split()) & libraries == {"numpy", "scipy"}


def test_the_flags_need_a_parser_only(tmp_path: Path) -> None:
    found = loaded(tmp_path, ["--help"])
    assert not found & {*HEAVY, "json", "pathlib"}
    assert "argparse" in found


def test_a_wrong_command_pays_for_its_hint_alone(tmp_path: Path) -> None:
    assert heavy(tmp_path, "comparre", statuses=(2,)) == {"difflib", "unicodedata"}


def run_words(tmp_path: Path, *words: str) -> list[str]:
    return [f"--workspace={tmp_path / 'workspace'}", f"--benchmark_methods={NOOP}", *words]


OF_A_RUN = {
    "ctypes",  # prctl; whether there is an NVIDIA driver
    "perfrun.options.command_line", "perfrun.options.plan",
    "perfrun.run.rounds", "perfrun.run.runner",
    "platform",
    "random",  # the order of trials
    "subprocess",
}  # fmt: skip


def test_a_run_of_one_trial_loads_no_library(tmp_path: Path) -> None:
    assert heavy(tmp_path, *run_words(tmp_path)) == OF_A_RUN


def test_statistics_are_loaded_for_who_repeats_trials(tmp_path: Path) -> None:
    # Of two trials one may be disturbed, and one value has no statistics.
    found = heavy(tmp_path, *run_words(tmp_path, "--benchmark_num_trials=3"))
    assert found & LIBRARIES == {"numpy", "scipy"}


def test_an_index_is_written_with_sqlalchemy_by_a_run_that_has_one(tmp_path: Path) -> None:
    store = f"--store={tmp_path / 'index.sqlite'}"
    found = heavy(tmp_path, *run_words(tmp_path, store))
    assert found & LIBRARIES == {"sqlalchemy"}


def test_a_checkout_loads_no_more_than_git_needs(tmp_path: Path) -> None:
    repository = tmp_path / "theirs"
    make_repository(repository, [{"mine.py": "x = 1"}])
    words = run_words(tmp_path, f"--git_repos=file://{repository}", "--python_path=theirs")
    first = heavy(tmp_path, *words)
    assert first & LIBRARIES <= {"git"}
    assert heavy(tmp_path, *words) & LIBRARIES <= {"git"}


def test_the_list_of_methods_loads_no_library(tmp_path: Path) -> None:
    words = ["list", f"--workspace={tmp_path}", "benchmarks.python.calibration"]
    assert not heavy(tmp_path, *words) & {*LIBRARIES, "ctypes", "perfrun.run.rounds", "tempfile"}


def test_the_doctor_loads_no_library(tmp_path: Path) -> None:
    found = heavy(tmp_path, "doctor", f"--workspace={tmp_path}", statuses=(0, 1))
    assert not found & {*LIBRARIES, "perfrun.run.rounds", "perfrun.run.runner"}


@pytest.fixture
def nights(tmp_path: Path) -> Path:
    """A workspace with a few nights of one method."""
    documents = [
        summary(name=f"2026-11-{day}-10-00-00-000000", timestamp=1.79e9 + 86400 * day, label=label)
        for day, label in enumerate(("old", "old", "new", "new"), start=10)
    ]
    write(tmp_path / "output", *documents)
    return tmp_path


def test_the_index_loads_sqlalchemy_and_nothing_else(nights: Path) -> None:
    found = heavy(nights, "index", f"--workspace={nights}")
    assert found & (LIBRARIES | OWN) == {"sqlalchemy"}


def test_a_history_loads_sqlalchemy_and_no_statistics(nights: Path) -> None:
    found = heavy(nights, "history", f"--workspace={nights}", "pkg.cases.Cases.spin")
    assert found & (LIBRARIES | OWN) == {"sqlalchemy"}


def test_changes_are_looked_for_with_numpy_and_not_with_what_draws_or_runs(nights: Path) -> None:
    found = heavy(nights, "detect", f"--workspace={nights}", statuses=(2,))  # too few nights
    assert found & (LIBRARIES | OWN) <= {"sqlalchemy", "numpy", "scipy"}


def test_folders_are_compared_with_numpy_and_scipy_and_without_an_index(nights: Path) -> None:
    first, *_, last = sorted((nights / "output").iterdir())
    found = heavy(nights, "compare", str(first), str(last), statuses=(0, 1, 2))
    assert found & (LIBRARIES | OWN) == {"numpy", "scipy"}


def test_labels_are_looked_up_in_the_index_where_there_is_one(nights: Path) -> None:
    loaded(nights, ["index", f"--workspace={nights}"])
    words = ["compare", f"--workspace={nights}", "old", "new"]
    found = heavy(nights, *words, statuses=(0, 1, 2))
    assert "sqlalchemy" in found
    assert not found & (LIBRARIES | OWN) - {"sqlalchemy", "numpy", "scipy"}


@pytest.mark.parametrize(
    "command",
    [
        "ab", "baseline", "bisect", "compare", "completion", "detect", "dlbs", "doctor", "explain",
        "export", "history", "import", "incidents", "index", "init", "list", "nightly", "nodes",
        "prune", "run", "selftest", "serve", "show", "versus",
    ],
)  # fmt: skip
def test_the_help_of_a_command_loads_no_library(command: str, tmp_path: Path) -> None:
    assert not heavy(tmp_path, command, "--help") & LIBRARIES - ALLOWED_HELP.get(command, set())
