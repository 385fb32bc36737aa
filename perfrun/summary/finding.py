"""One thing that is to be known about the quality of a trial's figures.

The machine during a trial: what was added between two states of it, and by whom. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from perfrun.dataclass import dataclass
from perfrun.launchers.launcher import Exit
from perfrun.probes.counters import Counters, counters_between, difference
from perfrun.probes.machine import MachineState


class Severity(str, Enum):
    """What a finding means for the figures."""

    INFO = "info"  # good to know; the grade stays
    WARNING = "warning"  # figures are less certain; doing it again would be no better
    DISTURBED = "disturbed"  # something from outside came in between; doing it again may help


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found, with its number and the limit that it is beyond."""

    code: str  # stable; a key for programs
    severity: Severity
    text: str  # one line for people
    value: float | None = None
    limit: float | None = None
    unit: str | None = None
    mend: str | None = None  # what helps, if anything does


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """From where on a value is worth a warning, and from where on it is a disturbance."""

    warning: float | None = None
    disturbed: float | None = None

    def severity(self, value: float) -> Severity | None:
        """The worst that holds; None below all limits."""
        if self.disturbed is not None and value > self.disturbed:
            return Severity.DISTURBED
        if self.warning is not None and value > self.warning:
            return Severity.WARNING
        return None

    def limit(self, severity: Severity) -> float | None:
        """The limit that a value of this severity is beyond."""
        return self.disturbed if severity is Severity.DISTURBED else self.warning


def beyond(
    code: str,
    value: float | None,
    limits: Thresholds,
    *,
    text: str,
    unit: str,
    mend: str | None = None,
) -> Iterable[Finding]:
    """Yield a finding if the value is known and beyond a limit."""
    severity = None if value is None else limits.severity(value)
    if severity is not None:
        yield Finding(
            code=code,
            severity=severity,
            text=text,
            value=value,
            limit=limits.limit(severity),
            unit=unit,
            mend=mend,
        )


# /proc/stat counts in steps of 10 ms a CPU; so much may be anybody's.
TICKS_SLACK_S = 0.05


@dataclass(frozen=True, kw_only=True)
class MachineDelta:
    """The machine from just after a trial's start to just after its end."""

    before: MachineState
    after: MachineState
    trial_cpu_s: float | None = None  # of the trial, as its launcher knows it
    trial_cgroup: Mapping[str, Any] | None = None  # a group of its own (a container), at its end

    @property
    def added(self) -> Counters:
        """What was added to the machine's counters."""
        return counters_between(self.before.snapshot, self.after.snapshot)

    @property
    def harness_cpu_s(self) -> float:
        """CPU time that perfrun itself used."""
        return self.after.own_cpu_s - self.before.own_cpu_s

    @property
    def own_cpu_s(self) -> float:
        """CPU time of the trial and of perfrun."""
        waited_for = self.after.children_cpu_s - self.before.children_cpu_s
        return self.harness_cpu_s + max(waited_for, self.trial_cpu_s or 0.0)

    @property
    def others_cores(self) -> float | None:
        """CPUs that everybody else used, on the average."""
        added = self.added
        if added.busy_s is None or added.elapsed_s <= 0 or not (added.busy_s + (added.idle_s or 0)):
            return None
        return max(0.0, added.busy_s - self.own_cpu_s - TICKS_SLACK_S) / added.elapsed_s

    @property
    def throttled_share(self) -> float | None:
        """Share of the quota's periods in which it ran out; None without a quota.

        Periods, not seconds: Linux 6.18 counts but a sixth of the seconds (seen with one thread at
        a quota of a fifth of a CPU).
        """
        periods, throttled = (self._of_cgroup(key) for key in ("cpu_periods", "throttled_periods"))
        return throttled / periods if periods and throttled is not None else None

    def _of_cgroup(self, key: str) -> float | None:
        """What was added to a figure of the trial's control group."""
        if self.trial_cgroup is not None:  # a group of its own counts from the trial's start
            return self.trial_cgroup.get(key)
        before, after = (s.snapshot.cgroup.get(key) for s in (self.before, self.after))
        found: float | None = difference(before, after)
        return found


def span_between(before: MachineState, after: MachineState, end: Exit) -> MachineDelta:
    """Bring the two states together with what the launcher knows of the trial itself."""
    group = end.cgroup or {}
    return MachineDelta(
        before=before,
        after=after,
        trial_cpu_s=group.get("cpu_usage_s") or end.user_cpu_s + end.system_cpu_s,
        trial_cgroup=end.cgroup,
    )
