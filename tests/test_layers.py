"""A folder imports only from folders of lower levels: the table is the architecture."""

from __future__ import annotations

import ast
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "perfrun"
LEVELS = (  # lowest first; a module at the top of the package counts as a folder
    {"dataclass"},
    {
        "errors",
        "text",
        "untrusted",
        "durable",
        "schema",
        "analysis",
        "worker",
        "trial_user",
    },
    {"__init__", "options", "probes", "locks", "image", "adapters", "shown"},
    {"launchers", "workspace"},
    {"summary"},
    {"store", "reports"},
    {"run"},
    {"compare", "doctor", "selftest", "shards"},
    {"changes", "versus", "dlbs", "exchange", "show", "replay"},
    {"page", "plots", "explain"},
    {"incidents", "nodes"},
    {"nightly", "notebook", "serve"},
    {"fleet"},
    {"benchmark"},
    {"__main__"},
)
HEIGHT = {name: height for height, names in enumerate(LEVELS) for name in names}
BARE = ("worker", "image", "adapters")  # run where nothing is installed: standard library only
LONGEST = 600  # lines; a module is split by subject, not by length


@cache
def modules() -> list[Path]:
    return [
        p for p in sorted(PACKAGE.rglob("*.py")) if p.name != "__init__.py" or p.parent == PACKAGE
    ]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def folder_of(module: str) -> str:
    """The first part of a module's name; programs (`__main__`) stand above everything."""
    first, _, rest = module.partition(".")
    return rest if rest == "__main__" else first


@cache
def imported(path: Path) -> set[str]:
    """All modules and names that a file imports, those inside functions too.

    What stands under TYPE_CHECKING is for annotations alone and is never imported.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def own_imports(path: Path) -> set[str]:
    """The modules of perfrun that a file imports."""
    found = {name.removeprefix("perfrun.") for name in imported(path)}
    return (found & names_of_all()) - {name_of(path)}


@cache
def names_of_all() -> set[str]:
    return {name_of(path) for path in modules()}


def test_every_folder_has_a_level() -> None:
    assert {folder_of(name_of(path)) for path in modules()} == HEIGHT.keys()


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_imports_only_from_its_own_and_lower_folders(path: Path) -> None:
    own = folder_of(name_of(path))
    folders = {folder_of(other) for other in own_imports(path)} - {own}
    assert sorted(other for other in folders if HEIGHT[other] >= HEIGHT[own]) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    # The order is of no interest; a circle raises CycleError, which names it.
    list(TopologicalSorter({name_of(p): own_imports(p) for p in modules()}).static_order())


@pytest.mark.parametrize("path", [p for p in modules() if name_of(p).startswith(BARE)], ids=name_of)
def test_what_runs_on_a_bare_interpreter_imports_only_the_standard_library(path: Path) -> None:
    tops = {name.partition(".")[0] for name in imported(path)}
    # absl parses the benchmark's own flags; it is imported only when there are some.
    allowed = sys.stdlib_module_names | {"perfrun", "absl"}
    assert tops <= allowed, sorted(tops - allowed)


@pytest.mark.parametrize(
    "path", [p for p in modules() if folder_of(name_of(p)) == "analysis"], ids=name_of
)
def test_analysis_touches_nothing_but_its_arguments(path: Path) -> None:
    tops = {name.partition(".")[0] for name in imported(path)}
    assert not tops & {"io", "os", "pathlib", "shutil", "socket", "subprocess", "sys", "time"}


def test_modules_are_not_too_long_to_read() -> None:
    long = {name_of(p): n for p in modules() if (n := len(p.read_text().splitlines())) > LONGEST}
    assert not long


def test_no_two_files_of_tests_are_the_same_module() -> None:
    # pytest collects neither of them then, and with it the whole run is an error.
    files = [path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")]
    packages = [path.parent for path in TESTS.rglob("__init__.py")]
    names = [str(path) if TESTS / path.parent in packages else path.name for path in files]
    assert sorted(set(names)) == sorted(names)
