"""`perfrun list`: print the benchmark methods of a repository, package, module or class."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfrun.errors import UsageError
from perfrun.launchers.choice import make_launcher
from perfrun.launchers.launcher import Launcher
from perfrun.options.command_line import parse
from perfrun.options.parsers import shown
from perfrun.options.plan import RunPlan
from perfrun.run.environment import Paths, Service, describe, discover
from perfrun.run.runner import import_paths
from perfrun.shown import cell, say, width, write_json, write_lines, write_prose
from perfrun.text import columns
from perfrun.worker.modules import modules_in
from perfrun.workspace.checkouts import checked_out

if TYPE_CHECKING:
    from perfrun.run.known_costs import KnownCost

_LEAST_ROOM = 42  # columns of a terminal for a docstring beside the name
_LONGEST = 1000  # characters of a name; the path of its file must be one that systems take


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Methods that were found, and modules that could not be searched."""

    methods: tuple[tuple[str, str], ...]  # name for --benchmark_methods, docstring's first line
    errors: tuple[tuple[str, str], ...]  # module, why it cannot be imported
    missing: tuple[tuple[str, str], ...] = ()  # module, which class it has not


def list_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun list`."""
    plan = parse(argv, command="list")
    launcher = make_launcher(plan, "list", say)
    with Service(launcher, {"action": "describe"}, Paths()) as service:
        describe(service)  # raises when the interpreter does not work
    with checked_out(
        plan.repos,
        workspace=plan.workspace,
        use_cached=plan.use_cached_site_packages,
        notify=say,
    ):
        paths = import_paths(plan)
        targets = [target for name in plan.names for target in find_targets(name, paths)]
        if not plan.names:
            targets = _everything(paths)
        found = listing(_discover(launcher, targets, paths))
    costs = _costs(plan, found) if plan.with_cost else None
    if plan.output_format == "json":
        write_json(_document(found, costs))
    else:
        _print(found, costs)
    return 0 if found.methods or not (found.errors or found.missing) else 1


def _costs(plan: RunPlan, found: Listing) -> dict[str, KnownCost | None]:
    from perfrun.options.store_address import parse_address
    from perfrun.run.known_costs import known_costs  # it reads results, which a list does not

    names = [name for name, _ in found.methods]
    return known_costs(names, plan.workspace, parse_address(plan.store, plan.workspace))


def _discover(
    launcher: Launcher, targets: Sequence[dict[str, Any]], paths: Paths
) -> list[dict[str, Any]]:
    """Search the targets, and the modules of those that are installed packages."""
    answers = discover(launcher, targets, paths)
    inside = [
        {"module": module}
        for answer in answers
        for module in answer.get("inside", ())  # only the worker sees them all
        if module != answer["target"]["module"]
    ]
    return answers + discover(launcher, inside, paths)


def find_targets(name: str, paths: Paths) -> list[dict[str, Any]]:
    """Return the targets of `name` for a worker: modules of a package, a module or a class."""
    if len(name) > _LONGEST or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"perfrun list: {shown(name)!r} is not a package, module or module.Class")
    relative = Path(*name.split("."))
    for root in map(Path, (*paths.first, *paths.last)):
        if (root / relative).is_dir():
            return list(_modules(root / relative, relative.parts))
        if (root / relative).with_suffix(".py").is_file():
            return [{"module": name}]
    module, _, last = name.rpartition(".")
    if module and last[:1].isupper():
        return [{"module": module, "class_name": last}]
    return [{"module": name, "is_named": True}]


def _everything(paths: Paths) -> list[dict[str, Any]]:
    """Return all modules of the checkouts; without checkouts, those of the shipped benchmarks."""
    if paths.first:
        return [t for root in map(Path, paths.first) for t in _modules(root, ())]
    shipped = "benchmarks"
    targets = [t for root in paths.last for t in _modules(Path(root) / shipped, (shipped,))]
    if not targets:
        raise UsageError("perfrun list: name a package, or give --git_repos and --python_path")
    return targets


def _modules(folder: Path, package: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the modules in `folder`, from which `package` is imported."""
    for module in modules_in(str(folder), package):
        yield {"module": module}


def listing(answers: Sequence[dict[str, Any]]) -> Listing:
    """Turn the workers' answers into names that `--benchmark_methods` accepts."""
    methods: list[tuple[str, str]] = []
    errors: list[tuple[str, str]] = []
    missing: list[tuple[str, str]] = []
    for answer in answers:
        module = answer["target"]["module"]
        if "error" in answer:
            (missing if answer.get("is_missing") else errors).append((module, answer["error"]))
            continue
        for item in answer["methods"]:
            separator = ":" if "." in item["method"] else "."
            name = f"{module}.{item['class']}{separator}{item['method']}"
            methods.append((name, item["doc"]))
    return Listing(methods=tuple(methods), errors=tuple(errors), missing=tuple(missing))


def _document(found: Listing, costs: dict[str, KnownCost | None] | None) -> dict[str, Any]:
    methods: list[dict[str, Any]] = [{"name": name, "doc": doc} for name, doc in found.methods]
    if costs is not None:
        from perfrun.run.known_costs import cost_document

        methods = [{**one, "cost": cost_document(costs[one["name"]])} for one in methods]
    return {
        "methods": methods,
        "errors": [
            {"module": module, "error": error} for module, error in (*found.errors, *found.missing)
        ],
    }


def _print(found: Listing, costs: dict[str, KnownCost | None] | None) -> None:
    if costs is None:
        _print_methods(found)
    elif costs:
        from perfrun.reports.terminal import Terminal
        from perfrun.run.known_costs import cost_table

        Terminal(sys.stdout, sys.stderr, quiet=True).table(cost_table(costs))
    modules: dict[str, list[str]] = {}
    for module, error in found.errors:
        modules.setdefault(error, []).append(module)
    for error, names in modules.items():  # one line for all modules that lack the same framework
        say(f"{', '.join(names)} cannot be imported: {error}")
    for _, error in found.missing:
        say(error)


def _print_methods(found: Listing) -> None:
    methods = [(cell(name), cell(doc)) for name, doc in found.methods]
    room = max((width(name) for name, _ in methods), default=0)
    if sys.stdout.isatty() and room + _LEAST_ROOM > columns():
        # One below the other: a name is copied whole, and a program reads one line a method.
        write_prose(one for name, doc in methods for one in (name, f"    {doc}".rstrip()) if one)
    else:
        write_lines(f"{name}{'':<{room - width(name)}}  {doc}".rstrip() for name, doc in methods)
