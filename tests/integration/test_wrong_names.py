"""A method's name that is wrong is found once, before any trial, and never in place of a result."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from worlds import World

from perfrun.errors import UsageError
from perfrun.launchers.local import LocalLauncher
from perfrun.options.plan import parse_selector, parse_selectors
from perfrun.run import environment
from perfrun.run.environment import Paths, check_names

SOURCE = """
from pkg.base import Base

class Cases(Base):
    def right(self):
        self.report_benchmark(wall_time=1.0)

class Made(Base):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        setattr(self, "mine" + "_too", self.inherited)

class Asked(Base):
    def __getattr__(self, name):
        return self.inherited

for letter in "ab":
    setattr(Cases, f"made_{letter}", Base.inherited)
"""
BASE = """
class Base(Benchmark):
    def inherited(self):
        self.report_benchmark(wall_time=2.0)
"""
WRONG = (
    "pkg.cases.Cases.rigth",
    "pkg.cases.Nobody.right",
    "pkg.cases.Case.right",
    "pkg.nowhere.Cases.right",
    "none_such.Cases.right",
)
UNSURE = ("pkg.cases.Made.mine_too", "pkg.cases.Asked.anything", "pkg.cases.Cases.made_a")
SURE = ("pkg.cases.Cases.right", "pkg.cases.Cases.inherited", "pkg.cases.Made.inherited")


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write(SOURCE)
    made.write(BASE, module="base")
    made.write("raise ValueError('not today')", module="raises")
    return made


def test_one_line_for_each_wrong_name_and_nothing_runs(world: World) -> None:
    done = world.run("--benchmark_num_trials=3", methods=",".join((*SURE, *WRONG, *UNSURE)))
    assert (done.code, done.stdout) == (2, "")
    assert world.summary_files() == []
    absent = (
        "it is in no checkout, no --python_path and not in the environment under test; "
        "`perfrun list PACKAGE` prints what there is"
    )
    whys = (
        "pkg.cases.Cases has no method 'rigth'; did you mean right?",
        "pkg.cases has no class 'Nobody'; `perfrun list` prints what there is",
        "pkg.cases has no class 'Case'; did you mean Cases?",
        f"No module named 'pkg.nowhere': {absent}",
        f"No module named 'none_such': {absent}",
    )
    assert done.stderr.splitlines() == [
        f"perfrun: --benchmark_methods: {name!r}: {why}"
        for name, why in zip(WRONG, whys, strict=True)
    ]


def test_what_may_be_there_runs_and_a_module_that_raises_is_a_failed_trial(world: World) -> None:
    names = (*UNSURE, "pkg.raises.Any.method")
    done = world.run("--quiet", "--format=json", methods=",".join(names))
    assert done.code == 1
    assert done.statuses == ["passed"] * len(UNSURE) + ["failed"]
    assert done.summaries()[-1]["perfrun"]["outcome"]["reason"] == "ValueError: not today"


def test_a_night_goes_on_without_the_method_that_somebody_renamed(world: World) -> None:
    suite = world.folder / "suite.toml"
    tables = "".join(f'[[methods]]\nname = "{n}"\n' for n in ("pkg.cases.Cases.rigth", SURE[0]))
    suite.write_text(f'python_path = ["{world.folder / "code"}"]\n{tables}')
    done = world.run_words([world.python, world.entry, "nightly", str(suite), "--quiet"])
    assert done.code == 1
    assert "has no method 'rigth'; did you mean right?" in done.stdout
    assert len(world.summary_files()) == 2


def test_a_right_name_costs_no_process(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = Paths(first=(str(world.folder / "code"),))
    asked: list[str] = []

    def discover(
        _: object, targets: list[dict[str, str]], __: Paths, ___: float
    ) -> list[dict[str, object]]:
        asked.extend(target["method"] for target in targets)
        return [{"methods": []} for _ in targets]

    monkeypatch.setattr(environment, "discover", discover)
    launcher = LocalLauncher(sys.executable)
    check_names(launcher, parse_selectors([*SURE, "pkg.cases.Cases.filter:.*"]), paths)
    assert asked == []
    check_names(launcher, parse_selectors(list(UNSURE)), paths)
    assert asked == ["mine_too", "anything", "made_a"]


def test_an_installed_module_is_looked_up_before_it_is_imported(tmp_path: Path) -> None:
    """The framework that it imports takes seconds, and its trial imports it again."""
    package = tmp_path / "installed"
    package.mkdir()
    (package / "__init__.py").touch()
    source = "open({!r}, 'a').close()\nclass Cases:\n    def right(self): pass\n"
    mark = tmp_path / "imported"
    (package / "cases.py").write_text(source.format(str(mark)))
    launcher = LocalLauncher(sys.executable, {"PYTHONPATH": str(tmp_path)})
    check_names(launcher, [parse_selector("installed.cases.Cases.right")], Paths())
    assert not mark.exists()
    with pytest.raises(UsageError, match="has no method 'left'"):
        check_names(launcher, [parse_selector("installed.cases.Cases.left")], Paths())
    assert mark.exists()


@pytest.mark.parametrize(
    ("variable", "kind"), [("VIRTUAL_ENV", "virtual"), ("CONDA_PREFIX", "conda")]
)
def test_the_environment_in_which_the_user_is_is_named(
    variable: str, kind: str, world: World
) -> None:
    other = world.folder / "the env"
    (other / "bin").mkdir(parents=True)
    (other / "bin" / "python").symlink_to(sys.executable)
    world.write("import not_installed_here", module="needs")
    hint = f"; you are in the {kind} environment {other}: add --python=${variable}/bin/python"
    settings = {"VIRTUAL_ENV": "", "CONDA_PREFIX": "", variable: str(other)}
    done = world.run("list", "pkg.needs", **settings)
    assert done.stderr.endswith(f"No module named 'not_installed_here'{hint}\n")
    if kind == "virtual":
        done = world.run(methods="pkg.needs.Any.method", **settings)
        assert f"name another (--python){hint}\n" in done.stderr
        settings[variable] = sys.prefix
        assert "you are in" not in world.run("list", "pkg.needs", **settings).stderr
