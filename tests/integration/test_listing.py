"""`perfrun list` looks at benchmark code in throw-away workers, whatever that code does."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from gitrepos import make_repository
from worlds import Finished, World, finish, strict, wait_until

GOOD = '''
import enum

class Base(Benchmark):
    def inherited(self):
        """Comes from the base class."""

class Good(Base):
    """A class."""

    attribute = 3

    def zebra(self):
        """Say the first line.

        And not the second.
        """

    def apple(self):
        pass

    def with_default(self, steps=3):
        pass

    def takes_an_argument(self, steps):
        """Cannot be run."""

    def _private(self):
        """Is not for users."""

    @property
    def shape(self):
        raise RuntimeError("a property must not be read to list it")

setattr(Good, "case.one", lambda self: None)

class NotOne:
    """Has nothing to report with."""

    def run(self):
        pass
'''
LISTED = {
    "pkg.cases.Base.inherited": "Comes from the base class.",
    "pkg.cases.Good.apple": "",
    "pkg.cases.Good:case.one": "",
    "pkg.cases.Good.inherited": "Comes from the base class.",
    "pkg.cases.Good.with_default": "",
    "pkg.cases.Good.zebra": "Say the first line.",
}
DEADLY = {
    "exits": ("os._exit(5)", "import ended with exit status 5"),
    "leaves": ("sys.exit(3)", "SystemExit: 3"),
    "raises": ("raise ValueError('not today')", "ValueError: not today"),
    "segfaults": ("import ctypes; ctypes.string_at(0)", "import ended with signal 11"),
    "syntax": ("def (:", "SyntaxError"),
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write(GOOD)
    return made


def listed(world: World, *words: str) -> Finished:
    """Run `perfrun list` in the world."""
    return world.run("list", *words)


def methods_of(done: Finished) -> dict[str, str]:
    return {item["name"]: item["doc"] for item in strict(done.stdout)["methods"]}


def test_the_methods_of_a_package_are_listed_with_their_first_line(world: World) -> None:
    done = listed(world, "pkg", "--format=json")
    assert done.code == 0
    assert methods_of(done) == LISTED


@pytest.mark.parametrize("name", ["pkg.cases", "pkg.cases.Good"])
def test_a_module_or_class_can_be_named(name: str, world: World) -> None:
    done = listed(world, name, "--format=json")
    assert methods_of(done) == {k: v for k, v in LISTED.items() if k.startswith(name)}


def test_an_installed_package_is_listed_with_its_modules(world: World) -> None:
    (world.folder / "code").rename(world.folder / "installed")
    (world.folder / "code").mkdir()
    done = world.run("list", "pkg", "--format=json", PYTHONPATH=str(world.folder / "installed"))
    assert (done.code, methods_of(done)) == (0, LISTED)


def test_everything_on_the_python_path_is_listed_without_a_name(world: World) -> None:
    assert methods_of(listed(world, "--format=json")) == LISTED


def test_a_repository_is_checked_out_to_be_listed(world: World) -> None:
    head = "import os\nfrom perfrun import Benchmark\n"
    source = "class B(Benchmark):\n    def m(self):\n        'At {}.'\n"
    versions = [
        {"repo_pkg/bench.py": head + source.format(when), "setup.py": "raise SystemExit('never')"}
        for when in ("first", "last")
    ]
    remote = world.folder / "remote" / "some-repo.git"
    first, _ = make_repository(remote, versions)
    for ref, when in ((f"main;{first}", "first"), ("main", "last")):
        places = (f"--git_repos=file://{remote};{ref}", "--python_path=some-repo")
        done = listed(world, *places, "--format=json")
        assert methods_of(done) == {"repo_pkg.bench.B.m": f"At {when}."}


def test_the_plain_listing_has_one_line_a_method_that_can_be_run_as_it_is(world: World) -> None:
    done = listed(world, "pkg.cases.Good")
    lines = dict(line.partition("  ")[::2] for line in done.stdout.splitlines())
    assert {name.strip(): doc.strip() for name, doc in lines.items()} == {
        name: doc for name, doc in LISTED.items() if ".Good" in name
    }
    assert world.run(methods=",".join(lines)).code == 0


def test_modules_that_kill_the_interpreter_cost_only_themselves(world: World) -> None:
    for module, (source, _) in DEADLY.items():
        world.write(f"# a Benchmark\n{source}", module=module)
    done = listed(world, "pkg", "--format=json")
    assert done.code == 0
    assert methods_of(done) == LISTED
    errors = {item["module"]: item["error"] for item in strict(done.stdout)["errors"]}
    assert set(errors) == {f"pkg.{module}" for module in DEADLY}
    for module, (_, error) in DEADLY.items():
        assert error in errors[f"pkg.{module}"]


def test_what_cannot_be_imported_is_named_on_standard_error(world: World) -> None:
    for module in ("raises", "raises_too"):
        world.write("raise ValueError('no Benchmark today')", module=module)
    done = listed(world, "pkg")
    assert done.code == 0
    said = "pkg.raises, pkg.raises_too cannot be imported: ValueError: no Benchmark today"
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_listing_of_which_nothing_can_be_imported_is_a_failure(world: World) -> None:
    world.write("raise ValueError('no Benchmark today')", module="raises")
    assert listed(world, "pkg.raises").code == 1


def test_a_slow_module_is_waited_for(world: World) -> None:
    world.write(f"time.sleep(1.5)\n{GOOD}", module="slow")
    assert len(methods_of(listed(world, "pkg", "--format=json"))) == 2 * len(LISTED)


def test_ctrl_c_ends_a_listing_and_its_worker(world: World) -> None:
    ready = world.folder / "ready"
    world.write(f"# a Benchmark\nopen({str(ready)!r}, 'w').close()\ntime.sleep(600)", module="hang")
    process = world.start("list", "pkg")
    wait_until(ready.exists)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.code == 130
    assert "Traceback" not in done.stderr
    assert world.left_running() == []
    assert list(world.temporary.iterdir()) == []


def test_the_harness_never_imports_benchmark_code(world: World) -> None:
    pids = world.folder / "pids"
    head = f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
    world.write(head + GOOD)
    process = world.start("list", "pkg")
    assert finish(process).code == 0
    run = world.start(methods="pkg.cases.Good.filter:a.*,pkg.cases.Good.apple")
    assert finish(run).code == 0
    importers = [int(pid) for pid in pids.read_text().split()]
    assert len(importers) == 4  # listing, expanding the filter, two trials
    assert len(set(importers)) == 4
    assert not {process.pid, run.pid, os.getpid()} & set(importers)


def test_a_filter_runs_the_same_methods_that_are_listed(world: World) -> None:
    done = world.run("--format=json", methods="pkg.cases.Good.filter:.*")
    assert done.code == 0
    expected = [name for name in LISTED if ".Good" in name]
    assert [result["name"] for result in done.results] == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no.such.thing"], "No module named 'no'"),
        (["pkg.cases.Nobody"], "perfrun: pkg.cases has no class Nobody; it has Base, Good"),
        (["pkg-cases"], "is not a package, module or module.Class"),
        (["pkg/cases.py"], "perfrun: pkg/cases.py: there is no such file or folder"),
        (["--python_path=nowhere"], "--python_path"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(words: list[str], said: str, world: World) -> None:
    done = listed(world, *words)
    assert done.code in (1, 2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
