"""Starting: one program under three names, little imported before it is needed, and mistakes that
end in one line.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from worlds import ENTRY, ROOT, World

from perfrun.probes import sysfs
from perfrun.probes.sysfs import Sysfs

THIRD_PARTY = ("rich", "git", "requests", "cpuinfo", "docker", "absl", "psutil", "pynvml", "numpy")
CLASS = """
class Plain(Benchmark):
    def noop(self):
        self.report_benchmark(wall_time=1.0)
"""
METHOD = "pkg.cases.Plain.noop"
INSTALLED = Path(sysconfig.get_path("scripts")) / "perfrun"
SPELLINGS = {
    "as a file": [sys.executable, ENTRY],
    "as a module": [sys.executable, "-m", "perfrun"],
    "as an installed command": [str(INSTALLED)],
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write(CLASS)
    return made


def spelled(world: World, command: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run one spelling of the program. As a module it is found from the checkout's root."""
    if command == [str(INSTALLED)] and not INSTALLED.exists():
        pytest.skip("perfrun is not installed in this environment")
    cwd = ROOT if "-m" in command else world.folder
    return subprocess.run(
        [*command, *words],
        cwd=cwd,
        env=world.environment(COLUMNS="120"),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.parametrize("command", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_each_spelling_runs_the_same_program(command: list[str], world: World) -> None:
    reference = spelled(world, SPELLINGS["as a file"], "--help")
    assert spelled(world, command, "--help").stdout == reference.stdout
    words = world.words(methods=METHOD)[2:]
    done = spelled(world, command, *words)
    assert done.returncode == 0, done.stderr
    assert METHOD in done.stdout
    assert len(world.summary_files()) == 1
    assert spelled(world, command, "--no_such").returncode == 2
    assert spelled(world, command, "list", "pkg", *words[:2]).returncode == 0


def test_run_as_a_file_the_package_s_own_folder_is_not_on_the_path(world: World) -> None:
    # There `plan`, `flags` or `trial` would hide modules of those names.
    world.write("class P(Benchmark):\n    def m(self):\n        import plan, flags, trial")
    for name in ("plan", "flags", "trial"):
        (world.folder / "code" / f"{name}.py").write_text("")
    assert world.run(methods="pkg.cases.P.m").code == 0


def imported(code: str, *flags: str) -> set[str]:
    """Top-level names of the modules that a fresh interpreter has after running the code."""
    printing = f"{code}\nimport sys\nsys.__stdout__.write('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, *flags, "-c", printing],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stdout.splitlines()}


def test_the_worker_s_modules_need_only_the_standard_library() -> None:
    worker = ROOT / "perfrun" / "worker"
    modules = [f"perfrun.worker.{path.stem}" for path in worker.glob("*.py")]
    # -S: without site-packages an import of anything installed fails; -I: nothing from outside.
    code = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
    code += "\n".join(f"import {module}" for module in sorted(modules))
    names = imported(code, "-I", "-S")
    allowed = set(sys.stdlib_module_names) | {"perfrun", "__main__"}
    assert {name for name in names if name not in allowed and not name.startswith("_")} == set()


def test_a_worker_that_does_nothing_imports_few_modules(world: World) -> None:
    world.write(
        "class Few(Benchmark):\n    def m(self):\n"
        "        self.report_benchmark(extras={'names': ' '.join(sys.modules)})"
    )
    done = world.run("--format=json", methods="pkg.cases.Few.m")
    [extra] = done.summaries()[0]["benchmark_result"]["extras"]
    names = set(extra["value"].split())
    dear = {"asyncio", "multiprocessing", "socket", "ssl", "unittest", "importlib.metadata", "http"}
    assert names & dear == set()


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["--no_such"], ["list", "--help"]])
def test_nothing_heavy_is_imported_to_answer_a_question(words: list[str]) -> None:
    code = (
        "import contextlib, io\nfrom perfrun.benchmark import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()),"
        f" contextlib.suppress(SystemExit):\n    main({words!r})"
    )
    allowed = {"git"} if words[0] == "list" else set()
    assert imported(code) & set(THIRD_PARTY) - allowed == set()


def test_libraries_that_a_plain_run_does_not_need_are_not_imported(world: World) -> None:
    words = world.words(methods=METHOD)[2:]
    code = (
        "import contextlib, io\nfrom perfrun.benchmark import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):"
        f"\n    assert main({words!r}) == 0"
    )
    dear = {"docker", "requests", "absl", "git", "numpy", "scipy"}
    if sysfs.core_count(Sysfs()):  # else psutil is asked
        dear.add("psutil")
    assert imported(code) & dear == set()


METHODS = f"--benchmark_methods={METHOD}"
MISTAKES = {
    "nothing at all": ([], "--benchmark_methods"),
    "no module": (["--benchmark_methods=noop"], "'noop'"),
    "a bad regular expression": (["--benchmark_methods=m.C.filter:("], "regular expression"),
    "a filter of a missing class": (["--benchmark_methods=pkg.cases.X.filter:.*"], "X"),
    "a filter that matches nothing": (["--benchmark_methods=pkg.cases.Plain.filter:zz"], "zz"),
    "a misspelt flag": ([METHODS, "--time_out=3"], "did you mean --timeout"),
    "a stray word": ([METHODS, "pkg.cases"], "'pkg.cases' is not a flag"),
    "no count": ([METHODS, "--benchmark_num_trials=many"], "--benchmark_num_trials=many"),
    "no trials": ([METHODS, "--benchmark_num_trials=0"], "--benchmark_num_trials=0"),
    "no timeout": ([METHODS, "--timeout=soon"], "--timeout=soon"),
    "a negative timeout": ([METHODS, "--timeout=-1"], "--timeout=-1"),
    "a missing interpreter": ([METHODS, "--python=/no/python"], "--python=/no/python"),
    "no interpreter": ([METHODS, "--python=/bin/true"], "--python=/bin/true"),
    "a folder as interpreter": ([METHODS, "--python=/"], "--python=/"),
    "an unknown format": ([METHODS, "--format=xml"], "--format=xml"),
    "no JSON": ([METHODS, "--perfzero_constructor_args={"], "--perfzero_constructor_args"),
    "no JSON object": ([METHODS, "--perfzero_constructor_args=[1]"], "JSON object"),
    "a missing checkout": ([METHODS, "--python_path=nowhere"], "nowhere"),
    "a path out of the workspace": ([METHODS, "--python_path=../x"], "../x"),
    "no repository": ([METHODS, "--git_repos=file:///no/such.git;main"], "/no/such.git"),
    "no hash": ([METHODS, "--git_repos=file:///a.git;main;zzz"], "'zzz'"),
    "an option as url": ([METHODS, "--git_repos=--upload-pack=x"], "--git_repos"),
    "a bucket": ([METHODS, "--data_downloads=gs://bucket/file"], "Google Cloud"),
    "a cloud flag": ([METHODS, "--bigquery_project_name=p"], "--bigquery_project_name"),
    "an execution id that is a path": ([METHODS, "--execution_id=../up"], "--execution_id"),
    "overlapping windows": ([METHODS, "--profiler_enabled_time=0:5,3:7"], "overlap"),
    "no upload function": ([METHODS, "--result_upload_methods=x"], "--result_upload_methods"),
    "no flag file": ([METHODS, "--flagfile=/no/file"], "/no/file"),
    "a workspace that is a file": ([METHODS, "--workspace=/dev/null/ws"], "/dev/null/ws"),
    "a value without a flag": ([METHODS, "--timeout"], "--timeout"),
}


@pytest.mark.parametrize(("words", "said"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_ends_in_one_line_and_exit_status_2(
    words: list[str], said: str, world: World
) -> None:
    done = world.run(*words)
    assert done.code == 2, done.stderr
    assert done.stdout == ""
    progress = "perfrun: fetching "
    [line] = [line for line in done.stderr.splitlines() if not line.startswith(progress)]
    assert line.startswith("perfrun: ")
    assert said in line
    assert world.summary_files() == []
    assert list(world.temporary.iterdir()) == []


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_run_whose_standard_streams_are_closed_is_like_any_other(
    closed: str, world: World
) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *world.words(METHODS, "--format=json")]
    done = subprocess.run(command, env=world.environment(), capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert len(world.summary_files()) == 1
    assert b"Error" not in done.stderr


def test_an_empty_run_is_a_success_only_when_allowed(world: World) -> None:
    assert world.run("--benchmark_methods=").code == 2
    done = world.run("--allow_empty", "--format=json")
    assert (done.code, done.results) == (0, [])


def test_perfzeros_documented_command_line_runs_unchanged(world: World) -> None:
    done = world.run(
        *("--gcloud_key_file_url=", "--output_gcs_url=", "--bigquery_project_name="),
        *("--tpu_parameters=", "--scratch_gcs_url=", "--bigquery_dataset_table_name="),
        f"--benchmark_m={METHOD}",
        "--format=json",
    )
    assert (done.code, done.statuses) == (0, ["passed"])


def test_a_flag_file_and_repeated_flags_work(world: World) -> None:
    file = world.folder / "flags"
    file.write_text(f"# a night\n--benchmark_methods={METHOD}\n--benchmark_num_trials=2\n")
    done = world.run(f"--flagfile={file}", f"--benchmark_methods={METHOD}", "--format=json")
    assert (done.code, done.statuses) == (0, ["passed"] * 4)


def test_a_library_that_is_missing_is_named_in_one_line(world: World) -> None:
    # -S: the interpreter without its installed packages.
    done = subprocess.run(
        [sys.executable, "-S", *world.words(methods=METHOD)[1:]],
        cwd=world.folder,
        env=world.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert re.fullmatch(r"perfrun: the Python package '\w+' is missing in .*\n", done.stderr)


def test_a_reader_that_goes_away_stops_no_benchmark(world: World) -> None:
    head = shutil.which("head") or pytest.skip("no head")
    command = subprocess.list2cmdline(world.words("--benchmark_num_trials=3", methods=METHOD))
    done = subprocess.run(
        ["sh", "-c", f"{command} | {head} -n 1"],
        env=world.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert len(world.summary_files()) == 3
    assert "Traceback" not in done.stderr


def test_a_terminal_that_goes_away_stops_no_benchmark(world: World) -> None:
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        world.words("--benchmark_num_trials=3", methods=METHOD),
        env=world.environment(TERM="xterm"),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    assert os.read(ours, 1)  # it has begun to show something
    os.close(ours)  # what is written from now on is an input/output error
    process.wait(240)
    assert len(world.summary_files()) == 3
    assert list(world.temporary.iterdir()) == []  # no log of an internal error


def test_json_is_all_that_is_on_standard_output(world: World) -> None:
    source = "class P(Benchmark):\n    def m(self):\n        print('noise')\n"
    world.write(source + "        os.write(1, b'more noise')")
    done = world.run("--format=json", methods="pkg.cases.P.m")
    assert done.stdout.count("\n") == 1
    assert done.statuses == ["passed"]
    assert "noise" in done.stderr


def test_a_full_device_as_standard_output_is_one_line_and_the_results_stay(world: World) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            world.words("--format=json", methods=METHOD),
            env=world.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
        )
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("perfrun: standard output cannot be written")
    assert "Traceback" not in done.stderr
    assert list((world.workspace / "output").glob("*/perfzero_summary.json"))


@pytest.mark.parametrize(
    ("word", "unbuffered"), [("doctor", ""), ("doctor", "1"), ("--help", ""), ("--help", "1")]
)
def test_other_commands_say_in_one_line_that_standard_output_is_full(
    word: str, unbuffered: str, world: World
) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, ENTRY, word],
            env=world.environment(PYTHONUNBUFFERED=unbuffered),
            cwd=world.folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
        )
    assert done.returncode == 3
    [line] = done.stderr.splitlines()
    assert line.startswith("perfrun: standard output cannot be written: No space left")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_table_that_a_full_device_has_swallowed_is_no_success(
    unbuffered: str, world: World
) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            world.words(methods=METHOD),
            env=world.environment(PYTHONUNBUFFERED=unbuffered),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
        )
    assert done.returncode == 3
    assert "perfrun: standard output cannot be written" in done.stderr
    assert list((world.workspace / "output").glob("*/perfzero_summary.json"))


def test_a_reader_that_goes_away_before_the_end_changes_no_exit_status(world: World) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        done = subprocess.run(
            world.words("--quiet", methods=METHOD),
            env=world.environment(PYTHONUNBUFFERED=""),
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(world.summary_files()) == 1


@pytest.mark.parametrize(
    "words", [["compare", "a", "b"], ["versus", "--combine", "x"], ["index"]], ids=lambda w: w[0]
)
def test_a_current_folder_that_has_been_removed_is_one_line(
    words: list[str], tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$0" && exec "$@"', str(gone), sys.executable, "-m", "perfrun", *words],
        cwd=gone,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stderr == "perfrun: the current folder has been removed; change to another one\n"
    assert done.returncode == 2


def test_a_workspace_whose_name_is_no_text_is_shown_where_only_text_can_be(tmp_path: Path) -> None:
    workspace = tmp_path / os.fsdecode(b"not \xff text")
    workspace.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "perfrun", "index", f"--workspace={workspace}"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8:strict"},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert "not \\udcff text/perfrun.db: 0 trials" in done.stdout
