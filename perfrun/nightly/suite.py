"""A suite as values, the runs that a night of it consists of, and its deadline."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from perfrun.changes.budget import Budget, NightBudget
from perfrun.changes.creep import CreepRule
from perfrun.errors import UsageError
from perfrun.nightly.retention import Policy
from perfrun.options.plan import MethodSelector
from perfrun.options.sweeps import Setting, Sweep, narrowed, setting_text, settings, with_setting

_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s{0,9}(s|m|min|h)")
_MOST_S = 365 * 86400.0
MOST_RUNS = 100_000  # of methods with their settings, in a night or a round of a submission
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The limits of the median of a metric, inclusive."""

    metric: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The flags of a method's run, those after `--` included. Equal rules share a run."""

    flags: tuple[tuple[str, str], ...] = ()  # name without dashes, value
    benchmark_flags: tuple[str, ...] = ()

    @property
    def trials(self) -> int | None:
        """The number of trials of each method; None where a precision decides."""
        flags = dict(self.flags)
        return None if "precision" in flags else int(flags.get("benchmark_num_trials", "1"))


@dataclass(frozen=True, kw_only=True)
class MethodSpec:
    """One `[[methods]]`."""

    selector: MethodSelector
    rules: Rules
    owner: str | None = None
    canary: bool = False  # its code never changes, so it shows changes of the machine
    environments: tuple[str, ...] = ()  # names; empty means all
    bounds: tuple[Bound, ...] = ()
    sweep: tuple[str, ...] | None = None  # the flags of a sweep that it knows; None: all


@dataclass(frozen=True, kw_only=True)
class EnvironmentSpec:
    """One `[[environments]]`: an interpreter or an image."""

    name: str
    flags: tuple[tuple[str, str], ...] = ()
    variables: tuple[str, ...] = ()  # NAME=VALUE of the trials


@dataclass(frozen=True, kw_only=True)
class RepoPin:
    """One `[[repos]]`. Each night resolves a branch once."""

    url: str
    directory: str  # name of the checkout
    branch: str = ""
    commit: str = ""
    clone: Path | None = None  # a full clone, whose history orders the nights

    def item(self, commit: str | None = None) -> str:
        """Return the value for `--git_repos`."""
        return ";".join((self.url, self.branch, commit or self.commit)).rstrip(";")


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The files to be written after a night, besides those in the night's own folder."""

    junit: Path | None = None
    markdown: Path | None = None
    openmetrics: Path | None = None
    json: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A whole suite file."""

    path: Path
    name: str
    digest: str  # of the file's text: a night continues only with the same suite
    workspace: Path
    methods: tuple[MethodSpec, ...]
    environments: tuple[EnvironmentSpec, ...]
    repos: tuple[RepoPin, ...] = ()
    flags: tuple[tuple[str, str], ...] = ()  # of every run
    sweep: Sweep = ()
    store: str | None = None
    owner: str | None = None
    deadline: str | None = None  # `7h`, or the time of day `06:30`
    fail_on_bounds: bool = False  # for the bounds that benchmarks report themselves
    outputs: Outputs = field(default_factory=Outputs)
    webhook: str | None = None
    webhook_format: str = "json"  # or a chat: perfrun.nightly.chat.FORMATS
    retention: Policy = field(default_factory=Policy)  # applied at the end of the night
    confirm: Budget | None = None  # of the pairs of new changes; None: no pairs are run
    creep: CreepRule | None = None  # the baseline that each night is compared with; None: none
    confirm_budget: NightBudget | None = None  # of those of suspects; None: nothing is screened
    bisect_budget: NightBudget | None = None  # to find the commits of confirmed incidents
    explain_budget: NightBudget | None = None  # to profile their two sides


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One run of a night: the methods of one environment that share rules and setting."""

    name: str
    environment: EnvironmentSpec
    rules: Rules  # with the flags of the setting
    methods: tuple[MethodSpec, ...]
    setting: Setting = ()

    @property
    def title(self) -> str:
        """The name with the setting, as people read it."""
        return f"{self.name} ({setting_text(self.setting)})" if self.setting else self.name


@dataclass(frozen=True, kw_only=True)
class UnitDone:
    """The result of one run."""

    summaries: tuple[str, ...] = ()  # of the trials that were not interrupted
    stopped_by: Mapping[str, str | None] = field(default_factory=dict)  # by method
    error: str | None = None  # why it could not begin


@dataclass(frozen=True, kw_only=True)
class Night:
    """One night, and its results so far."""

    night: str  # its id, which is the label of its trials
    suite: str = ""
    digest: str = ""  # of the suite file
    begun: float = 0.0  # seconds since the epoch
    deadline: float | None = None
    ended: float | None = None
    given_up: bool = False  # killed, and not continued
    delivered: bool = False  # the webhook has taken the report
    # False: it has not searched for changes, or was given up, so the next night tells its changes.
    told: bool = True
    pinned: Mapping[str, str] = field(default_factory=dict)  # checkout -> tonight's commit
    units: Mapping[str, UnitDone] = field(default_factory=dict)

    def with_unit(self, name: str, done: UnitDone, pinned: Mapping[str, str]) -> Night:
        """Return the night with one more run done."""
        return replace(self, units={**self.units, name: done}, pinned={**pinned, **self.pinned})


def units(suite: Suite) -> tuple[Unit, ...]:
    """Return all runs of a night, by environment and then by rules, in the order of the file.

    Each setting of a sweep is a run of its own. Raises UsageError for too many of them.
    """
    chosen = {id(method): _settings(suite, method) for method in suite.methods}
    found, left = [], MOST_RUNS
    for environment in suite.environments:
        groups: dict[tuple[Setting, Rules], list[MethodSpec]] = {}
        for method in suite.methods:
            if not method.environments or environment.name in method.environments:
                left -= len(chosen[id(method)])
                if left < 0:
                    raise UsageError(f"sweep: more than {MOST_RUNS:,} runs of methods")
                for setting in chosen[id(method)]:
                    flags = with_setting(method.rules.benchmark_flags, setting)
                    rules = replace(method.rules, benchmark_flags=flags)
                    groups.setdefault((setting, rules), []).append(method)
        for number, ((setting, rules), methods) in enumerate(groups.items(), start=1):
            found.append(
                Unit(
                    name=environment.name if number == 1 else f"{environment.name}#{number}",
                    environment=environment,
                    rules=rules,
                    methods=tuple(methods),
                    setting=setting,
                )
            )
    return tuple(found)


def _settings(suite: Suite, method: MethodSpec) -> tuple[Setting, ...]:
    return settings(narrowed(suite.sweep, method.sweep), "sweep")


def words(suite: Suite, unit: Unit, night: Night) -> tuple[str, ...]:
    """Return the command line of a unit's run."""
    repos = ",".join(repo.item(night.pinned.get(repo.directory)) for repo in suite.repos)
    flags = {
        **dict(suite.flags),
        **dict(unit.rules.flags),
        **dict(unit.environment.flags),
        "workspace": str(suite.workspace),
        "execution_label": night.night,
    }
    if repos:
        flags["git_repos"] = repos
    own = [f"--{name}={value}" for name, value in flags.items()]
    own += [f"--env={variable}" for variable in unit.environment.variables]
    own += [f"--benchmark_methods={method.selector.text}" for method in unit.methods]
    rest = unit.rules.benchmark_flags
    return (*own, "--", *rest) if rest else tuple(own)


def parse_deadline(text: str, begun: float) -> float:
    """Return the deadline of a night from its begin, both in seconds since the epoch.

    `7h` counts from the begin; `06:30` is the next one by the local clock. Raises UsageError.
    """
    clock, span = _TIME_OF_DAY.fullmatch(text), _DURATION.fullmatch(text)
    if clock:
        start = datetime.fromtimestamp(begun)
        end = start.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        return (end if end > start else end + timedelta(days=1)).timestamp()
    if span and 0 < float(span[1]) * _SECONDS[span[2]] <= _MOST_S:
        return begun + float(span[1]) * _SECONDS[span[2]]
    raise UsageError(f"deadline = {text!r}: write 7h, 90m or a time of day, 06:30")
