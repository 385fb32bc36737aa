"""A user's own file or folder on the command line becomes a folder to import from and methods."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfrun.errors import UsageError
from perfrun.launchers.mounts import code_folders
from perfrun.options.command_line import parse
from perfrun.options.plan import RunPlan

SOURCE = "from perfrun import Benchmark\nclass Sorting(Benchmark):\n    def numbers(self): pass\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files of every kind."""
    folder = tmp_path / 'my files\' "place", -x'
    for name in (
        *("sorting.py", "json.py", "my bench.py", "2nd.py", "class.py", "caf\xe9.py"),
        *("pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/deep.py", "pkg/json.py"),
        *("plain/sorting.py", "plain/other.py", "plain/below/more.py", "both.py"),
        *("both/__init__.py", "a-b/__init__.py", "a-b/inner.py", "repo/__init__.py"),
        *("repo/bench.py", "perfrun.py", "empty/notes.txt"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("" if name.endswith("__init__.py") else SOURCE)
    (folder / "repo" / ".git").mkdir()
    monkeypatch.chdir(folder)
    return folder


def texts(plan: RunPlan) -> list[str]:
    return [selector.text for selector in plan.selectors]


@pytest.mark.parametrize(
    ("word", "root", "text"),
    [
        ("sorting.py::Sorting.numbers", ".", "sorting.Sorting.numbers"),
        ("./sorting.py::Sorting::numbers", ".", "sorting.Sorting.numbers"),
        ("sorting.py::Sorting:a.b", ".", "sorting.Sorting:a.b"),
        ("sorting.py::Sorting.filter:num.*", ".", "sorting.Sorting.filter:num.*"),
        ("sorting.py::Sorting", ".", "sorting.Sorting.filter:.*"),
        ("sorting.py", ".", "sorting"),
        ("plain/../sorting.py", ".", "sorting"),
        ("class.py", ".", "class"),
        ("caf\xe9.py", ".", "caf\xe9"),
        ("plain/sorting.py", "plain", "sorting"),
        ("pkg/sub/deep.py", ".", "pkg.sub.deep"),  # so that its relative imports work
        ("pkg/json.py", ".", "pkg.json"),
        ("pkg/__init__.py", ".", "pkg"),
        ("a-b/inner.py", "a-b", "inner"),  # no package can have this name
        ("repo/bench.py", "repo", "bench"),  # a checkout does not have its parent imported from
        ("a.b.C.m", None, "a.b.C.m"),
    ],
)
def test_a_file_is_imported_by_its_folder(
    word: str, root: str | None, text: str, here: Path
) -> None:
    plan = parse([word, "--benchmark_num_trials=2"])
    assert texts(plan) == [text]
    assert plan.python_path == (() if root is None else (str((here / root).resolve()),))
    assert plan.flags["benchmark_methods"] == [text]
    assert plan.num_trials == 2


@pytest.mark.parametrize(
    ("word", "root", "expected"),
    [
        ("pkg/", ".", ["pkg.json", "pkg.sub.deep"]),
        ("pkg/sub", ".", ["pkg.sub.deep"]),
        ("plain", "plain", ["below.more", "other", "sorting"]),
    ],
)
def test_a_folder_is_all_modules_that_could_hold_benchmarks(
    word: str, root: str, expected: list[str], here: Path
) -> None:
    plan = parse([word])
    assert texts(plan) == expected
    assert plan.python_path == (str((here / root).resolve()),)
    assert parse(["./" + word], command="list").names == tuple(expected)


def test_own_files_come_before_the_flags_of_the_same_run(here: Path) -> None:
    plan = parse(["--python_path=lib", "sorting.py", "--benchmark_methods=m.C.x", "plain/other.py"])
    assert texts(plan) == ["m.C.x", "sorting", "other"]
    assert plan.python_path == (str(here), str(here / "plain"), "lib")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sortin.py"], "sortin.py: there is no such file or folder; did you mean sorting.py?"),
        (["no/where.py"], "no/where.py: there is no such file or folder"),
        (["a\0b/c.py"], "there is no such file or folder"),
        (["empty/notes.txt"], "empty/notes.txt: is not a Python file, whose name ends in .py"),
        (["empty"], "empty: no file in it has a benchmark class"),
        (["my bench.py"], "Python cannot import a file of this name; rename it, as to my_bench.py"),
        (["2nd.py"], "rename it, as to bench_2nd.py"),
        (["json.py"], "json.py: Python has a module json of its own and would not import this"),
        (["perfrun.py"], "perfrun.py: Python has a module perfrun of its own"),
        (["both.py"], "both.py: Python imports the package both/ beside it in its place"),
        (["sorting.py::"], "sorting.py::: write FILE.py::Class or FILE.py::Class.method"),
        (["sorting.py::a b"], "write FILE.py::Class or FILE.py::Class.method"),
        (["pkg/::C.m"], "pkg/::C.m: a class follows a file, as in FILE.py::C.m"),
        (["sorting.py", "plain/"], "plain/: "),  # two modules of one name
        (["stray"], "'stray' is not a flag, a file or module.Class.method; flags begin with --"),
    ],
)
def test_what_cannot_be_run_is_one_clear_line(words: list[str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(words)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_that_would_take_minutes_to_search_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfrun.options.own_files._MOST_FILES", 2)
    with pytest.raises(UsageError, match="plain: has more than 2 files in it; name a smaller"):
        parse(["plain"])


def test_the_home_folder_is_not_shown_to_a_container_because_of_a_file(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse(["sorting.py", "--image=some"])
    for home in (here, here / "below"):
        monkeypatch.setenv("HOME", str(home))
        parse(["sorting.py"])
        with pytest.raises(UsageError, match=r"sorting.py: a container is shown the whole folder"):
            parse(["sorting.py", "--image=some"])


def test_a_link_in_a_checkout_shows_a_container_nothing_outside(here: Path) -> None:
    (here / "repo" / "linked").symlink_to(here / "plain")
    plan = parse(["repo/linked/other.py", "--image=some"])
    with pytest.raises(UsageError, match="is a link out of its checkout"):
        code_folders(plan.python_path, plan.site_packages)


@pytest.mark.parametrize("item", [".", "./plain", "./plain/below"])
def test_a_path_that_begins_with_a_dot_is_taken_from_the_current_folder(
    item: str, here: Path
) -> None:
    assert parse([f"--python_path={item}", "a.b.C.m"]).python_path == (str(here / item),)


def test_a_path_that_is_a_checkout_too_is_refused_or_stays_the_checkout(here: Path) -> None:
    (here / "workspace" / "site-packages" / "plain").mkdir(parents=True)
    (here / "workspace" / "site-packages" / "theirs").mkdir()
    assert parse(["--python_path=./theirs,plain", "a.b.C.m"]).python_path == ("./theirs", "plain")
    for words in (["--python_path=./plain"], ["--python_path=."]):
        with pytest.raises(UsageError, match="write the one that is meant in full"):
            parse([*words, "a.b.C.m"])
    repos = "--git_repos=file:///x/pkg.git"  # it will be there
    with pytest.raises(UsageError, match="write the one that is meant in full"):
        parse(["--python_path=./pkg", repos, "a.b.C.m"])
