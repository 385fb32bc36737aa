"""Read a suite file into a `Suite`: its tables, and the rules that hold between their keys."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from perfrun.changes.budget import (
    DEFAULT_CHANGES,
    Budget,
    NightBudget,
    parse_budget,
    parse_night_budget,
)
from perfrun.changes.creep import CreepRule, parse_rule
from perfrun.errors import UsageError
from perfrun.nightly.chat import FORMATS
from perfrun.nightly.retention import Policy, parse_age
from perfrun.nightly.suite import (
    Bound,
    EnvironmentSpec,
    MethodSpec,
    Night,
    Outputs,
    RepoPin,
    Rules,
    Suite,
    Unit,
    parse_deadline,
    units,
    words,
)
from perfrun.nightly.suite_values import TomlFile, Where, near
from perfrun.options.command_line import parse
from perfrun.options.parsers import parse_variables, parse_word
from perfrun.options.plan import RunPlan, parse_repos, parse_selector
from perfrun.options.store_address import parse_address
from perfrun.options.sweeps import Sweep, sweep_of

T = TypeVar("T")
Pairs = tuple[tuple[str, str], ...]
_NAME, _TEXT, _REPO = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z", r"^[^\0]*\Z", r"^[^\0,;]*\Z"
_METHOD_NAME = r"^[^\0,]*\Z"
_PATTERNS = {
    _TEXT: "holds a null character",  # which neither a path nor a command line can
    _NAME: "write letters, digits, _.-, at most 100, so that it can be a file's name",
    _METHOD_NAME: "one method or filter, without commas",
    _REPO: "a comma or semicolon cannot be in a url or name",
}
Text = Annotated[str, Meta(pattern=_TEXT)]
Filled = Annotated[str, Meta(pattern=_TEXT, min_length=1)]
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]  # the range of TOML
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]
_EVERY_RUN = ("python_path", "data", "root_data_dir", "platform_name", "system_name")
# Keys with another name than the flag of a run that they become.
_FLAGS = {
    "trials": "benchmark_num_trials",
    "data": "data_downloads",
    "constructor_args": "perfzero_constructor_args",
    "name": "benchmark_methods",
}
_KEYS = {flag: key for key, flag in _FLAGS.items()}
_FLAG = re.compile(r"--(\w+)(=?)")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


class _Table(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One table of a suite file; docs/guides/nightly.md explains the keys."""


class _Rules(_Table, frozen=True, kw_only=True):
    trials: Whole | None = None
    precision: Text | float | None = None
    max_trials: Whole | None = None
    time_budget: Text | Whole | None = None
    max_reruns: Whole | None = None
    timeout: Whole | float | None = None


class _MethodTable(_Rules, frozen=True, kw_only=True):
    name: Annotated[str, Meta(pattern=_METHOD_NAME, min_length=1)]
    owner: Text | None = None
    canary: bool = False
    environments: list[Text] = []
    sweep: list[Text] | None = None
    flags: list[Text] = []
    constructor_args: dict[str, Any] = {}
    bounds: dict[str, Any] = {}


class _Bound(_Table, frozen=True, kw_only=True):
    min: Whole | float | None = None
    max: Whole | float | None = None


class _Environment(_Table, frozen=True, kw_only=True):
    name: Annotated[str, Meta(pattern=_NAME)]
    env: dict[str, Any] = {}
    python: Text | None = None
    allocator: Text | None = None
    image: Text | None = None
    image_python: Text | Whole | None = None
    trial_network: Text | Whole | None = None
    cpuset: Text | Whole | None = None
    memory: Text | Whole | None = None
    shm_size: Text | Whole | None = None
    gpus: Text | Whole | None = None
    pids_limit: Text | Whole | None = None


class _Repo(_Table, frozen=True, kw_only=True):
    url: Annotated[str, Meta(pattern=_REPO)]
    branch: Annotated[str, Meta(pattern=_REPO)] = ""
    commit: Annotated[str, Meta(pattern=_REPO)] = ""
    clone: Filled | None = None


class _Output(_Table, frozen=True, kw_only=True):
    junit: Filled | None = None
    markdown: Filled | None = None
    openmetrics: Filled | None = None
    json: Filled | None = None


class _Retention(_Table, frozen=True, kw_only=True):
    keep_nights: Positive | None = None
    keep_per_series: Positive | None = None
    older_than: Text = ""
    unfinished_older_than: Text = ""


class _Confirm(_Table, frozen=True, kw_only=True):
    max_pairs: Whole | Text | None = None
    time_budget: Whole | Text | None = None
    max_changes: Whole | Text | None = None


class _Suite(_Rules, frozen=True, kw_only=True):
    methods: Annotated[list[_MethodTable], Meta(min_length=1)]
    environments: list[_Environment] = []
    repos: list[_Repo] = []
    sweep: dict[str, Any] = {}
    name: Text = ""
    workspace: Filled = "workspace"
    store: Text = ""
    owner: Text | None = None
    deadline: Text | None = None
    fail_on_bounds: bool = False
    webhook: Text = ""
    webhook_format: Text = ""
    output: _Output = _Output()
    retention: _Retention = _Retention()
    confirm: bool | _Confirm = False
    creep_baseline: Text = ""
    creep_bound: Text | float | None = None
    confirm_budget: Text | None = None
    bisect_budget: Text | None = None
    explain_budget: Text | None = None
    python_path: list[Text] = []
    data: list[Text] = []
    root_data_dir: Text | None = None
    platform_name: Text | None = None
    system_name: Text | None = None


def read_suite(path: Path) -> Suite:
    """Read a suite file, and check each of its runs as a command line.

    Relative paths begin at the file's folder. Raises UsageError: `suite.toml:12: what is wrong`.
    """
    reader = _Reader(TomlFile(path, _PATTERNS))
    suite = reader.suite()
    reader.check_runs(suite)
    return suite


def plan_of(suite: Suite, unit: Unit, night: Night) -> RunPlan:
    """Make the plan of a unit's run. Raises UsageError."""
    return parse(words(suite, unit, night))


class _Reader:
    """Makes a suite of a file, whose tables have the right keys and types."""

    def __init__(self, file: TomlFile) -> None:
        self.file, self.refuse = file, file.refuse
        self.top = file.converted((), _Suite)

    def suite(self) -> Suite:
        file, top = self.file, self.top
        name = top.name or re.sub(r"[^\w.-]", "_", file.path.stem)
        self.refuse(not re.match(_NAME, name), ("name",), f"name = {name!r}: {_PATTERNS[_NAME]}")
        if top.deadline is not None:
            self._judged(("deadline",), parse_deadline, top.deadline, 0.0)
        environments = self._environments()
        outputs = {key: self._path(("output", key), path) for key, path in _given(top.output)}
        return Suite(
            path=file.path,
            name=name,
            digest=file.digest,
            workspace=self._path(("workspace",), top.workspace),
            methods=self._methods({environment.name for environment in environments}),
            environments=environments,
            repos=self._repos(),
            sweep=self._sweep(),
            flags=self._with_path((), self._every_run(), "root_data_dir"),
            store=self._expanded("store", top.store),
            owner=top.owner,
            deadline=top.deadline,
            fail_on_bounds=top.fail_on_bounds,
            outputs=Outputs(**outputs),
            webhook=self._webhook(),
            webhook_format=self._judged(
                ("webhook_format",), parse_word, top.webhook_format, "--webhook_format", FORMATS
            ),
            retention=self._retention(),
            confirm=self._confirm(),
            creep=self._creep(),
            confirm_budget=self._confirm_budget(),
            bisect_budget=self._cause_budget("bisect_budget", self.top.bisect_budget),
            explain_budget=self._cause_budget("explain_budget", self.top.explain_budget),
        )

    def _every_run(self) -> dict[str, str]:
        """Return the flags of every run; `./x` of `python_path` begins at the file, too."""
        flags = _flags(self.top, _EVERY_RUN)
        items = [
            str(self._path(("python_path",), item).absolute()) if item[:1] == "." else item
            for item in self.top.python_path
        ]
        return {**flags, "python_path": ",".join(items)} if items else flags

    def _environments(self) -> tuple[EnvironmentSpec, ...]:
        found: dict[str, EnvironmentSpec] = {}
        for number, table in enumerate(self.top.environments):
            where: Where = ("environments", number)
            is_twice = table.name in found
            self.refuse(is_twice, (*where, "name"), f"there are two environments {table.name!r}")
            flags, place = _flags(table, _Environment.__struct_fields__[2:]), (*where, "env")
            self.refuse(
                table.python and table.image,
                (*where, "image"),
                "an environment is an interpreter (python) or an image, not both",
            )
            for key in flags:
                needs = not table.image and key not in ("python", "allocator")
                self.refuse(needs, (*where, key), f"{key}: needs an image")
            variables = [f"{key}={self.file.converted((*place, key), Text)}" for key in table.env]
            self._judged(place, parse_variables, variables)
            found[table.name] = EnvironmentSpec(
                name=table.name,
                flags=self._with_path(where, flags, "python"),
                variables=tuple(variables),
            )
        return tuple(found.values()) or (EnvironmentSpec(name="default"),)

    def _methods(self, environments: set[str]) -> tuple[MethodSpec, ...]:
        found = []
        for number, table in enumerate(self.top.methods):
            where: Where = ("methods", number)
            for name in table.environments:
                text = f"there is no environment {name!r}{near(name, environments)}"
                self.refuse(name not in environments, (*where, "environments"), text)
            bounds = [self._bound((*where, "bounds", metric), metric) for metric in table.bounds]
            method = MethodSpec(
                selector=self._judged((*where, "name"), parse_selector, table.name),
                rules=self._rules(where, table),
                owner=table.owner,
                canary=table.canary,
                environments=tuple(table.environments),
                bounds=tuple(bounds),
                sweep=None if table.sweep is None else self._swept((*where, "sweep"), table.sweep),
            )
            found.append(method)
        return tuple(found)

    def _sweep(self) -> Sweep:
        """Return the sweep of the suite, of which each flag has to be one of a method."""
        found: Sweep = ()
        for name in self.top.sweep:
            where: Where = ("sweep", name)
            values = self.file.converted(where, list[str | int | float | bool])
            found += self._judged(where, sweep_of, {name: values})
            taken = any(one.sweep is None or name in one.sweep for one in self.top.methods)
            self.refuse(not taken, where, f"{name}: every method's own `sweep` leaves it out")
        return found

    def _swept(self, where: Where, names: list[str]) -> tuple[str, ...]:
        """Return the flags of the sweep that a method takes part in."""
        for name in names:
            known = tuple(self.top.sweep)
            text = f"sweep: [sweep] has no {name!r}{near(name, known)}"
            self.refuse(name not in known, where, text)
        return tuple(names)

    def _rules(self, where: Where, table: _MethodTable) -> Rules:
        """Return a method's own rules over those at the top of the file."""
        keys = _Rules.__struct_fields__
        own, flags = _flags(table, keys), _flags(self.top, keys)
        if "benchmark_num_trials" in own and "precision" not in own:
            for flag in ("precision", "max_trials", "time_budget"):
                flags.pop(flag, None)  # a method with a number of trials has that number
        flags.update(own)
        if table.constructor_args:
            try:
                text = json.dumps(table.constructor_args, allow_nan=False)
            except (TypeError, ValueError, RecursionError) as error:
                where = (*where, "constructor_args")
                raise self.file.error(where, f"constructor_args: not JSON: {error}") from None
            flags["perfzero_constructor_args"] = text
        return Rules(flags=tuple(sorted(flags.items())), benchmark_flags=tuple(table.flags))

    def _bound(self, where: Where, metric: str) -> Bound:
        table = self.file.converted(where, _Bound)
        given = [value for _, value in _given(table)]
        self.refuse(not given, where, f"bounds.{metric}: needs min or max")
        self.refuse(any(map(math.isnan, given)), where, f"bounds.{metric}: nan is no bound")
        self.refuse(given[0] > given[-1], where, f"bounds.{metric}: min is more than max")
        return Bound(metric=metric, low=table.min, high=table.max)

    def _repos(self) -> tuple[RepoPin, ...]:
        found: dict[str, RepoPin] = {}
        for number, table in enumerate(self.top.repos):
            where: Where = ("repos", number)
            parts = {"url": table.url, "branch": table.branch, "commit": table.commit}
            self.refuse(not table.url.strip(), (*where, "url"), "url: is empty")
            for end, (key, part) in enumerate(parts.items(), start=1):
                if part:  # the parts before it are right, so an error is about this key
                    item = ";".join(list(parts.values())[:end])
                    (spec,) = self._judged((*where, key), parse_repos, item, f"--{key}")
            text = f"two repositories would be checked out as {spec.directory!r}"
            self.refuse(spec.directory in found, (*where, "url"), text)
            clone = self._path((*where, "clone"), table.clone) if table.clone else None
            is_gone = clone is not None and not os.path.isdir(clone)  # noqa: PTH112 - no error
            self.refuse(is_gone, (*where, "clone"), f"clone = {clone}: is not a folder")
            found[spec.directory] = RepoPin(**parts, directory=spec.directory, clone=clone)
        return tuple(found.values())

    def _retention(self) -> Policy:
        table = self.top.retention
        ages = {
            f"{key}_s": self._judged(("retention", key), parse_age, getattr(table, key), f"--{key}")
            for key in ("older_than", "unfinished_older_than")
            if getattr(table, key)
        }
        return Policy(keep_nights=table.keep_nights, keep_per_series=table.keep_per_series, **ages)

    def _confirm(self) -> Budget | None:
        """Return the limits of `confirm`, which is a boolean or a table."""
        if self.top.confirm is False:
            return None
        texts = {"max_changes": str(DEFAULT_CHANGES)}
        for key, value in _given(self.top.confirm):
            texts[key] = str(value)
            self._judged(("confirm", key), partial(parse_budget, **{key: texts[key]}))
        return parse_budget(**texts)

    def _creep(self) -> CreepRule | None:
        bound = "" if self.top.creep_bound is None else str(self.top.creep_bound)
        if self.top.creep_baseline:
            found: CreepRule = self._judged(
                ("creep_bound",), parse_rule, self.top.creep_baseline, bound
            )
            return found
        self.refuse(bound, ("creep_bound",), "creep_bound is of creep_baseline: give that, too")
        return None

    def _confirm_budget(self) -> NightBudget | None:
        """Return the time for suspects, whose pairs take the place of those of `confirm`."""
        text, where = self.top.confirm_budget, ("confirm_budget",)
        if text is None:
            return None
        both = "confirm_budget confirms what confirm does, and more: give one of them"
        self.refuse(self.top.confirm is not False, where, both)
        return self._budget("confirm_budget", text)

    def _cause_budget(self, key: str, text: str | None) -> NightBudget | None:
        """Return the time for the causes of incidents that pairs have confirmed."""
        if text is None:
            return None
        is_confirming = self.top.confirm is not False or self.top.confirm_budget is not None
        needs = (
            f"{key} is for changes that pairs have confirmed: give confirm_budget or confirm, too"
        )
        self.refuse(not is_confirming, (key,), needs)
        return self._budget(key, text)

    def _budget(self, key: str, text: str) -> NightBudget:
        self.refuse(not text.strip(), (key,), f"{key}: write a time, 30m, or a share, 20%")
        budget: NightBudget = self._judged((key,), parse_night_budget, text, f"--{key}")
        return budget

    def _webhook(self) -> str | None:
        url = self._expanded("webhook", self.top.webhook)
        if url and not _is_http(url):
            raise self.file.error(("webhook",), "webhook: must be an http:// or https:// url")
        return url

    def _expanded(self, key: str, text: str) -> str | None:
        """Replace `${NAME}` by environment variables, so that secrets stay out of the file."""
        for name in _VARIABLE.findall(text):
            if name not in os.environ:
                raise self.file.error((key,), f"{key}: the variable {name} is not set")
        return _VARIABLE.sub(lambda found: os.environ[found[1]], text) or None

    def _path(self, where: Where, text: str) -> Path:
        try:
            return self.file.folder / Path(text).expanduser()
        except RuntimeError:
            raise self.file.error(where, f"{where[-1]} = {text}: there is no such home") from None

    def _with_path(self, where: Where, flags: dict[str, str], key: str) -> Pairs:
        """Return the flags with a path that begins at the file; a program's name is no path."""
        if key in flags and (key != "python" or "/" in flags[key]):
            flags[key] = str(self._path((*where, key), flags[key]))
        return tuple(flags.items())

    def _judged(self, where: Where, parser: Callable[..., T], *given: object) -> T:
        """Call a parser of the command line, and give its error the place in the file."""
        try:
            return parser(*given)
        except UsageError as error:
            raise self.file.error(where, _in_words_of_the_file(error)) from None

    def check_runs(self, suite: Suite) -> None:
        """Raise UsageError for mistakes that only show when the runs are put together."""
        self._judged(("store",), parse_address, suite.store, suite.workspace)
        self._judged(("sweep",) if suite.sweep else (), units, suite)
        # A sweep adds flags of benchmarks only, which no command line refuses.
        runs = units(replace(suite, sweep=()))
        for unit in runs:
            seen: set[str] = set()
            for method in unit.methods:
                name = method.selector.text
                if name in seen:
                    number = next(n for n, one in enumerate(suite.methods) if one is method)
                    text = f"{name!r} is named twice for {unit.environment.name}"
                    raise self.file.error(("methods", number, "name"), text)
                seen.add(name)
            try:
                plan_of(suite, unit, Night(night=suite.name))
            except UsageError as error:
                where = self._place_of(suite, unit, str(error))
                raise self.file.error(where, _in_words_of_the_file(error)) from None
        used = {unit.environment.name for unit in runs}
        for number, environment in enumerate(suite.environments):
            text = f"no method runs in environment {environment.name!r}"
            self.refuse(environment.name not in used, ("environments", number), text)

    def _place_of(self, suite: Suite, unit: Unit, text: str) -> Where:
        """Return the place of the key that became the flag which an error names."""
        found = _FLAG.search(text)
        key = _KEYS.get(found[1], found[1]) if found else ""
        places: list[Where] = [("methods", suite.methods.index(spec)) for spec in unit.methods]
        if self.top.environments:
            places.insert(0, ("environments", suite.environments.index(unit.environment)))
        named = [(*place, key) for place in (*places, ()) if key in self.file.at(place)]
        return named[0] if named else places[0]


def _given(table: object) -> Iterable[tuple[str, Any]]:
    """Return the keys and values of a table; `true` in place of a table has none."""
    fields = table.__struct_fields__ if isinstance(table, _Table) else ()
    return [(key, value) for key in fields if (value := getattr(table, key)) is not None]


def _flags(table: _Table, keys: Iterable[str]) -> dict[str, str]:
    """Return the keys of a table as flags of a run; an empty value is not given."""
    flags = {}
    for key in keys:
        value = getattr(table, key)
        text = ",".join(value) if isinstance(value, list) else value
        if text is not None and text != "":
            flags[_FLAGS.get(key, key)] = str(text)
    return flags


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # half of an IPv6 address, a port that is no number
        return False


def _in_words_of_the_file(error: UsageError) -> str:
    return _FLAG.sub(
        lambda found: _KEYS.get(found[1], found[1]) + (" = " if found[2] else ""), str(error)
    )
