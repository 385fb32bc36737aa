"""From a suite file to a `Suite`. Everything that is wrong is found here, with its line."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from perfrun.nightly.around import Around
from perfrun.nightly.source import Source, Where, near
from perfrun.nightly.suite import (
    Bound,
    EnvironmentSpec,
    MethodSpec,
    RepoPin,
    Rules,
    Suite,
)
from perfrun.nightly.values import Keys
from perfrun.plan import RepoSpec, parse_repos, parse_selector
from perfrun.variables import parse_variables

# Key of the file -> flag of a run, kinds of value.
_RULES: Keys = {
    "trials": ("benchmark_num_trials", (int,)),
    "precision": ("precision", (str, float)),
    "max_trials": ("max_trials", (int,)),
    "time_budget": ("time_budget", (str, int)),
    "max_reruns": ("max_reruns", (int,)),
    "timeout": ("timeout", (int, float)),
}
_EVERY_RUN: Keys = {
    "python_path": ("python_path", (list,)),
    "data": ("data_downloads", (list,)),
    "root_data_dir": ("root_data_dir", (str,)),
    "platform_name": ("platform_name", (str,)),
    "system_name": ("system_name", (str,)),
}
_CONTAINER = (
    "image_python",
    "trial_network",
    "cpuset",
    "memory",
    "shm_size",
    "gpus",
    "pids_limit",
)
_ENVIRONMENT: Keys = {
    "python": ("python", (str,)),
    "image": ("image", (str,)),
    **{key: (key, (str, int)) for key in _CONTAINER},
}
# Flag -> key, for errors that a run's command line would give.
FLAG_KEYS: Mapping[str, str] = {
    **{flag: key for key, (flag, _) in {**_RULES, **_EVERY_RUN, **_ENVIRONMENT}.items()},
    "perfzero_constructor_args": "constructor_args",
    "benchmark_methods": "name",
}
_OWN = {
    "name",
    "workspace",
    "store",
    "owner",
    "deadline",
    "fail_on_bounds",
    "webhook",
    "output",
    "retention",
    "confirm",
    "repos",
    "environments",
    "methods",
}
_METHOD = {"name", "owner", "canary", "environments", "flags", "constructor_args", "bounds"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def read_suite(source: Source) -> Suite:
    """Judge a suite file. Raises UsageError: `suite.toml:12: what is wrong`.

    Relative paths in it start at its own folder.
    """
    return _Reader(source).suite()


class _Reader(Around):
    """Makes a suite of a source."""

    def suite(self) -> Suite:
        source = self.source
        source.refuse_unknown((), {*_OWN, *_RULES, *_EVERY_RUN})
        name = self.take((), "name", str) or re.sub(r"[^\w.-]", "_", source.path.stem)
        if not _NAME.fullmatch(name):
            raise source.error(("name",), f"name = {name!r}: must be usable as a file's name")
        environments = self._environments()
        return Suite(
            path=source.path,
            name=name,
            digest=hashlib.sha256(source.text.encode()).hexdigest(),
            workspace=self.path((), "workspace") or self.folder / "workspace",
            methods=self._methods({environment.name for environment in environments}),
            environments=environments,
            repos=self._repos(),
            flags=self._every_run(),
            store=self.expanded("store"),
            owner=self.take((), "owner", str),
            deadline=self._deadline(),
            fail_on_bounds=bool(self.take((), "fail_on_bounds", bool)),
            outputs=self._outputs(),
            webhook=self._webhook(),
            retention=self._retention(),
            confirm=self._confirm(),
        )

    def _every_run(self) -> tuple[tuple[str, str], ...]:
        flags = dict(self.flags((), _EVERY_RUN))
        if "root_data_dir" in flags:
            flags["root_data_dir"] = str(self.folder / Path(flags["root_data_dir"]).expanduser())
        return tuple(flags.items())

    def _environments(self) -> tuple[EnvironmentSpec, ...]:
        found: dict[str, EnvironmentSpec] = {}
        for number in range(self.tables("environments", needed=False)):
            where: Where = ("environments", number)
            self.source.refuse_unknown(where, {"name", "env", *_ENVIRONMENT})
            name = self.needed(where, "name")
            if not _NAME.fullmatch(name):
                raise self.source.error((*where, "name"), f"name = {name!r}: letters, digits, _.-")
            if name in found:
                raise self.source.error((*where, "name"), f"there are two environments {name!r}")
            found[name] = EnvironmentSpec(
                name=name, flags=self._place(where), variables=self._variables(where)
            )
        return tuple(found.values()) or (EnvironmentSpec(name="default"),)

    def _variables(self, where: Where) -> tuple[str, ...]:
        table = self.take(where, "env", dict) or {}
        place: Where = (*where, "env")
        variables = tuple(f"{name}={self.take(place, name, str)}" for name in table)
        self.judged(place, partial(parse_variables, variables))
        return variables

    def _place(self, where: Where) -> tuple[tuple[str, str], ...]:
        flags = dict(self.flags(where, _ENVIRONMENT))
        if "python" in flags and "image" in flags:
            raise self.source.error(
                (*where, "image"), "an environment is an interpreter (python) or an image, not both"
            )
        if "image" not in flags:
            for key in _CONTAINER:
                if key in flags:
                    raise self.source.error((*where, key), f"{key}: needs an image")
        if "/" in flags.get("python", ""):
            flags["python"] = str(self.folder / Path(flags["python"]).expanduser())
        return tuple(flags.items())

    def _methods(self, environments: set[str]) -> tuple[MethodSpec, ...]:
        count = self.tables("methods", needed=True)
        return tuple(self._method(("methods", number), environments) for number in range(count))

    def _method(self, where: Where, environments: set[str]) -> MethodSpec:
        self.source.refuse_unknown(where, {*_METHOD, *_RULES})
        name = self.needed(where, "name")
        if "," in name:
            raise self.source.error((*where, "name"), "name: one method or filter, without commas")
        if self.take(where, "environments", list) is not None:
            for number, item in enumerate(self.texts((*where, "environments"))):
                if item not in environments:
                    raise self.source.error(
                        (*where, "environments", number),
                        f"there is no environment {item!r}{near(item, environments)}",
                    )
        return MethodSpec(
            selector=self.judged((*where, "name"), partial(parse_selector, name)),
            rules=self._rules(where),
            owner=self.take(where, "owner", str),
            canary=bool(self.take(where, "canary", bool)),
            environments=tuple(self.source.at(where).get("environments", ())),
            bounds=self._bounds(where),
        )

    def _rules(self, where: Where) -> Rules:
        """A method's own rules over those at the top of the file."""
        own = dict(self.flags(where, _RULES))
        flags = dict(self.flags((), _RULES))
        if "benchmark_num_trials" in own and "precision" not in own:
            for flag in ("precision", "max_trials", "time_budget"):
                flags.pop(flag, None)  # a method with a number of trials has that number
        flags.update(own)
        arguments = self.take(where, "constructor_args", dict)
        if arguments:
            flags["perfzero_constructor_args"] = self._as_json(where, arguments)
        benchmark_flags: list[str] = []
        if self.take(where, "flags", list) is not None:
            benchmark_flags = self.texts((*where, "flags"))
        return Rules(flags=tuple(sorted(flags.items())), benchmark_flags=tuple(benchmark_flags))

    def _as_json(self, where: Where, arguments: Mapping[str, Any]) -> str:
        try:
            return json.dumps(arguments, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise self.source.error(
                (*where, "constructor_args"), f"constructor_args: not JSON: {error}"
            ) from None

    def _bounds(self, where: Where) -> tuple[Bound, ...]:
        table = self.take(where, "bounds", dict) or {}
        bounds = []
        for metric in table:
            place: Where = (*where, "bounds", metric)
            self.take((*where, "bounds"), metric, dict)
            self.source.refuse_unknown(place, ("min", "max"))
            low, high = (self.take(place, key, int, float) for key in ("min", "max"))
            if low is None and high is None:
                raise self.source.error(place, f"bounds.{metric}: needs min or max")
            if low is not None and high is not None and low > high:
                raise self.source.error(place, f"bounds.{metric}: min is more than max")
            bounds.append(Bound(metric=metric, low=low, high=high))
        return tuple(bounds)

    def _repos(self) -> tuple[RepoPin, ...]:
        found: dict[str, RepoPin] = {}
        for number in range(self.tables("repos", needed=False)):
            where: Where = ("repos", number)
            self.source.refuse_unknown(where, ("url", "branch", "commit", "clone"))
            url = self.needed(where, "url")
            fields = [self.take(where, key, str) or "" for key in ("branch", "commit")]
            if any("," in part or ";" in part for part in (url, *fields)):
                raise self.source.error(where, "a comma or semicolon cannot be in a url or name")
            specs = self._repo(where, (url, *fields))
            directory = specs[0].directory
            if directory in found:
                raise self.source.error(
                    (*where, "url"), f"two repositories would be checked out as {directory!r}"
                )
            found[directory] = RepoPin(
                url=url,
                directory=directory,
                branch=fields[0],
                commit=fields[1],
                clone=self._clone(where),
            )
        return tuple(found.values())

    def _repo(self, where: Where, parts: tuple[str, ...]) -> tuple[RepoSpec, ...]:
        """Parse what is there so far, one key more each time: the last one is wrong, if any is."""
        for number, key in enumerate(("url", "branch", "commit"), start=1):
            item = ";".join(parts[:number]).rstrip(";")
            place = (*where, key) if parts[number - 1] else where
            specs: tuple[RepoSpec, ...] = self.judged(place, partial(parse_repos, item))
        return specs

    def _clone(self, where: Where) -> Path | None:
        folder = self.path(where, "clone")
        if folder is not None and not folder.is_dir():
            raise self.source.error((*where, "clone"), f"clone = {folder}: is not a folder")
        return folder
