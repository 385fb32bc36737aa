"""Where things lie: hostile paths, which copy of a package is measured, foreign interpreters."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from gitrepos import make_repository
from worlds import ROOT, World, find_python, finish

CLASS = """
class Where(Benchmark):
    def report(self):
        self.report_benchmark(wall_time=1.0, extras={"file": __file__, "out": self.output_dir})
"""
METHOD = "pkg.cases.Where.report"
HEAD = "import os, sys\nfrom perfrun import Benchmark\n"
HOSTILE = [
    "with blanks",
    'it\'s a "quote"',
    "new\nline",
    "caf\xe9 \N{SNOWMAN}",
    "$(touch pwned) `id` ; & | * ?",
    "-dash",
    "%s {0} \\n [bold]",
]


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write(CLASS)
    return made


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment in which nothing is installed."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


def site_packages(python: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


@pytest.mark.parametrize("name", HOSTILE)
def test_a_workspace_may_have_any_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    world = World(tmp_path / name)
    world.write(CLASS)
    done = world.run("--format=json", methods=METHOD)
    assert (done.code, done.statuses) == (0, ["passed"])
    summary = done.summaries()[0]
    extras = {e["name"]: e["value"] for e in summary["benchmark_result"]["extras"]}
    assert extras["file"] == str(world.folder / "code" / "pkg" / "cases.py")
    assert Path(extras["out"]).parent == world.workspace / "output"
    assert Path(done.results[0]["summary"]).parent == Path(extras["out"])
    assert not list(tmp_path.rglob("pwned"))
    # The table's folders are those of the run, whatever rich thinks of brackets.
    assert world.run(methods=METHOD).code == 0


@pytest.mark.parametrize("name", [n for n in HOSTILE if ";" not in n and "\n" not in n])
def test_a_repository_may_have_any_name_that_its_url_can_have(name: str, tmp_path: Path) -> None:
    remote = tmp_path / name / "code.git"
    [commit] = make_repository(remote, [{"pkg/__init__.py": "", "pkg/cases.py": HEAD + CLASS}])
    world = World(tmp_path)
    done = finish(
        subprocess.Popen(
            [
                *world.words("--format=json", methods=METHOD)[:2],
                f"--workspace={tmp_path / 'work space'}",
                f"--git_repos=file://{remote};main;{commit}",
                "--python_path=code",
                f"--benchmark_methods={METHOD}",
                "--format=json",
            ],
            env=world.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    )
    assert done.code == 0, done.stderr
    summary = done.summaries()[0]
    assert summary["benchmark_info"]["site_package_info"]["code"]["hash"] == commit
    checkout = tmp_path / "work space" / "site-packages" / "code"
    assert summary["perfrun"]["module_file"] == str(checkout / "pkg" / "cases.py")


def test_a_checkout_wins_over_an_installed_copy_of_the_same_package(
    world: World, bare_python: Path
) -> None:
    installed = site_packages(bare_python) / "pkg"
    installed.mkdir()
    try:
        (installed / "__init__.py").touch()
        (installed / "cases.py").write_text("raise ImportError('the installed copy')")
        done = world.run(f"--python={bare_python}", "--format=json", methods=METHOD)
    finally:
        shutil.rmtree(installed)
    assert done.statuses == ["passed"]
    expected = str(world.folder / "code" / "pkg" / "cases.py")
    assert done.summaries()[0]["perfrun"]["module_file"] == expected


def test_a_checkout_wins_over_pythonpath_and_pth_files(world: World, bare_python: Path) -> None:
    other = World(world.folder / "other")
    other.write("raise ImportError('the other copy')")
    pth = site_packages(bare_python) / "other.pth"
    pth.write_text(f"import sys; sys.path.insert(0, {str(other.folder / 'code')!r})\n")
    try:
        done = world.run(
            f"--python={bare_python}",
            "--format=json",
            methods=METHOD,
            PYTHONPATH=str(other.folder / "code"),
        )
    finally:
        pth.unlink()
    assert done.statuses == ["passed"]


def test_a_module_that_a_checkout_holds_but_python_takes_from_elsewhere_is_an_error(
    world: World, bare_python: Path
) -> None:
    # Without __init__.py the checkout's package is a namespace package, and a regular package of
    # the same name wins wherever on the path it lies.
    (world.folder / "code" / "pkg" / "__init__.py").unlink()
    installed = site_packages(bare_python) / "pkg"
    installed.mkdir()
    try:
        (installed / "__init__.py").touch()
        (installed / "cases.py").write_text(HEAD + CLASS)
        done = world.run(f"--python={bare_python}", "--format=json", methods=METHOD)
    finally:
        shutil.rmtree(installed)
    assert (done.code, done.statuses) == (1, ["failed"])
    outcome = done.summaries()[0]["perfrun"]["outcome"]
    assert outcome["reason"].startswith("ResolutionError: pkg.cases is in the checkout ")
    assert str(installed / "cases.py") in outcome["reason"]


def test_the_first_of_two_checkouts_that_hold_a_module_is_measured(world: World) -> None:
    other = World(world.folder / "other")
    other.write("raise ImportError('the second copy')")
    both = f"--python_path={world.folder / 'code'},{other.folder / 'code'}"
    done = world.run(both, "--format=json", methods=METHOD)
    assert done.statuses == ["passed"], done.summaries()[0]["perfrun"]["outcome"]["reason"]


def test_a_namespace_package_in_a_checkout_can_be_benchmarked(world: World) -> None:
    (world.folder / "code" / "pkg" / "__init__.py").unlink()
    assert world.run("--format=json", methods=METHOD).statuses == ["passed"]


SPIES = """
import importlib.util, multiprocessing

class Spies(Benchmark):
    def report(self):
        self.report_benchmark(wall_time=1.0, extras={
            "found": [n for n in NAMES if importlib.util.find_spec(n)],
            "path": os.pathsep.join(sys.path), "modules": ",".join(sorted(sys.modules)),
            "version": "%d.%d" % sys.version_info[:2]})

    def spawns(self):
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            self.report_benchmark(wall_time=pool.apply(child))

def child():
    return Benchmark().root_data_dir is None and 2.0

NAMES = ["rich", "git", "psutil", "absl", "requests", "cpuinfo", "docker"]
"""


def spied(world: World, python: str) -> dict[str, str]:
    world.write(SPIES)
    methods = "pkg.cases.Spies.report,pkg.cases.Spies.spawns"
    done = world.run(f"--python={python}", "--format=json", methods=methods)
    assert done.statuses == ["passed", "passed"], done.stderr
    report, spawns = done.summaries()
    assert spawns["benchmark_result"]["wall_time"] == 2.0
    return {extra["name"]: extra["value"] for extra in report["benchmark_result"]["extras"]}


def test_perfruns_own_libraries_are_not_importable_in_another_environment(
    world: World, bare_python: Path
) -> None:
    seen = spied(world, str(bare_python))
    assert seen["found"] == "[]"
    assert "site-packages/rich" not in seen["path"]
    own = {name for name in seen["modules"].split(",") if name.startswith("perfrun")}
    assert not {
        name for name in own if not (name + ".").startswith(("perfrun.", "perfrun.worker."))
    }
    assert "perfrun.run.runner" not in own
    assert "perfrun.summary.document" not in own


def test_what_is_installed_beside_perfrun_is_not_importable_in_another_environment(
    world: World, bare_python: Path
) -> None:
    beside = world.folder / "site-packages"
    shutil.copytree(ROOT / "perfrun", beside / "perfrun")
    (beside / "decoy.py").touch()
    world.write(SPIES.replace('"rich"', '"decoy", "perfrun"'))
    words = world.words(
        f"--python={bare_python}", "--format=json", methods="pkg.cases.Spies.report"
    )
    words[1] = str(beside / "perfrun" / "benchmark.py")
    process = subprocess.Popen(
        words, env=world.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    [summary] = finish(process).summaries()
    extras = {e["name"]: e["value"] for e in summary["benchmark_result"]["extras"]}
    assert extras["found"] == "['perfrun']"
    assert str(beside) not in extras["path"]


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.12", "3.13", "3.14"])
def test_the_worker_runs_on_other_versions_of_python(version: str, world: World) -> None:
    assert spied(world, find_python(version))["version"] == version


def test_an_environment_variable_names_the_default_interpreter(
    world: World, bare_python: Path
) -> None:
    done = world.run("--format=json", methods=METHOD, PERFRUN_PYTHON=str(bare_python))
    summary = done.summaries()[0]
    assert summary["perfrun"]["environment"]["python"]["prefix"] == str(bare_python.parents[1])
    assert summary["perfrun"]["environment"]["distributions"] == {}


def test_a_virtual_environment_s_own_packages_are_recorded_and_importable(
    world: World, bare_python: Path
) -> None:
    # `bin/python` is a link; resolved, it would be the interpreter without the packages.
    folder = site_packages(bare_python)
    info = folder / "Odd_Name-1.2+cpu.dist-info"
    info.mkdir()
    (info / "direct_url.json").write_text('{"vcs_info": {"commit_id": "abc"}, "url": "file:///x"}')
    (folder / "odd_name.py").write_text("VALUE = 7.0")
    world.write(
        "import odd_name\nclass Odd(Benchmark):\n"
        "    def m(self): self.report_benchmark(wall_time=odd_name.VALUE)"
    )
    try:
        done = world.run(f"--python={bare_python}", "--format=json", methods="pkg.cases.Odd.m")
    finally:
        shutil.rmtree(info)
        (folder / "odd_name.py").unlink()
    summary = done.summaries()[0]
    assert summary["benchmark_result"]["wall_time"] == 7.0
    environment = summary["perfrun"]["environment"]
    assert environment["distributions"] == {"odd-name": "1.2+cpu"}
    assert environment["direct_url_commits"] == {"odd-name": "abc"}


def test_a_fixed_execution_id_never_overwrites(world: World) -> None:
    fixed = ("--execution_id=night 7", "--format=json")
    first = world.run(*fixed, methods=METHOD)
    second = world.run(*fixed, methods=METHOD)
    several = world.run(*fixed, "--benchmark_num_trials=2", methods=f"{METHOD},{METHOD}")
    folders = [Path(r["summary"]).parent for d in (first, second, several) for r in d.results]
    assert folders[0].name == "night 7"
    assert len(set(folders)) == 6
    for folder, summary in zip(
        folders, [*first.summaries(), *second.summaries(), *several.summaries()], strict=True
    ):
        assert summary["execution_id"] == folder.name


def test_two_runs_at_once_in_one_workspace_keep_apart(world: World) -> None:
    words = ("--format=json", "--benchmark_num_trials=3")
    runs = [world.start(*words, methods=METHOD) for _ in range(3)]
    results = [finish(run) for run in runs]
    assert [done.code for done in results] == [0, 0, 0]
    assert len({r["summary"] for done in results for r in done.results}) == 9
    assert len(world.summary_files()) == 9
    assert len({done.summaries()[0]["perfrun"]["run_id"] for done in results}) == 3


def test_the_workspace_is_below_the_current_folder_unless_named(world: World) -> None:
    done = subprocess.run(
        [sys.executable, world.words()[1], f"--benchmark_methods={METHOD}",
         f"--python_path={world.folder / 'code'}"],
        cwd=world.folder,
        env={**os.environ, **world.environment()},
        capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert len(list((world.folder / "workspace" / "output").glob("*/perfzero_summary.json"))) == 1


def test_an_installed_perfrun_brings_the_shipped_benchmarks_and_nothing_beside_them(
    tmp_path: Path,
) -> None:
    """As `pip install .` lays it out, next to somebody else's package of the same name."""
    site = tmp_path / "site-packages"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (place,) = re.findall(r'^"benchmarks" = "(.+)"$', project, re.MULTILINE)
    shutil.copytree(ROOT / "perfrun", site / "perfrun")
    shutil.copytree(ROOT / "benchmarks", site / place)
    (site / "benchmarks").mkdir()
    (site / "benchmarks" / "__init__.py").write_text("raise SystemExit('somebody else's')\n")
    world = World(tmp_path, entry=str(site / "perfrun" / "benchmark.py"))
    world.write("""
        class Cases(Benchmark):
            def path(self):
                print(*sys.path, sep="\\n")
    """)
    noop = "benchmarks.python.calibration.Calibration.noop"
    done = world.run("--format=json", methods=f"{noop},pkg.cases.Cases.path")
    assert done.statuses == ["passed", "passed"], done.stderr
    printed = Path(done.results[1]["summary"]).with_name("stdout.log").read_text().splitlines()
    assert [line for line in printed if line.startswith(str(site))] == [
        str(site / "perfrun/shipped")
    ]
