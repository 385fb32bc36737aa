"""Define a finding about a trial, its thresholds, and the change of the machine during a trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from perfrun.dataclass import dataclass
from perfrun.launchers.launcher import Exit
from perfrun.probes.counters import Counters, counters_between, increase
from perfrun.probes.machine import MachineState

# /proc/stat counts in steps of 10 ms a CPU, so this much may be the trial's own.
TICKS_SLACK_S = 0.05


class Severity(str, Enum):
    """The effect of a finding on the grade."""

    INFO = "info"  # the grade stays
    WARNING = "warning"  # figures are less certain; another trial would be no better
    DISTURBED = "disturbed"  # something outside disturbed the trial; another one may be better


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A finding with its value and the threshold that the value passes."""

    code: str  # stable; a key for programs
    severity: Severity
    text: str  # one line for people
    value: float | None = None
    limit: float | None = None
    unit: str | None = None
    mend: str | None = None  # advice, if there is any


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The thresholds of a value: one for a warning, one for a disturbance."""

    warning: float | None = None
    disturbed: float | None = None

    def severity(self, value: float) -> Severity | None:
        """Return the worst severity that applies; None below all thresholds."""
        if self.disturbed is not None and value > self.disturbed:
            return Severity.DISTURBED
        if self.warning is not None and value > self.warning:
            return Severity.WARNING
        return None

    def limit(self, severity: Severity) -> float | None:
        """Return the threshold of this severity."""
        return self.disturbed if severity is Severity.DISTURBED else self.warning


def beyond(
    code: str,
    value: float | None,
    thresholds: Thresholds,
    *,
    text: str,
    unit: str,
    mend: str | None = None,
) -> Iterable[Finding]:
    """Yield a finding if the value is known and beyond a threshold."""
    severity = None if value is None else thresholds.severity(value)
    if severity is not None:
        yield Finding(
            code=code,
            severity=severity,
            text=text,
            value=value,
            limit=thresholds.limit(severity),
            unit=unit,
            mend=mend,
        )


@dataclass(frozen=True, kw_only=True)
class MachineDelta:
    """The change of the machine from just after a trial's start to just after its end."""

    before: MachineState
    after: MachineState
    trial_cpu_s: float | None = None  # of the trial, as its launcher knows it
    trial_cgroup: Mapping[str, Any] | None = None  # its own (of a container), read at the end

    @property
    def added(self) -> Counters:
        """The increase of the machine's counters."""
        return counters_between(self.before.snapshot, self.after.snapshot)

    @property
    def harness_cpu_s(self) -> float:
        """The CPU time of perfrun itself."""
        return self.after.own_cpu_s - self.before.own_cpu_s

    @property
    def own_cpu_s(self) -> float:
        """The CPU time of the trial and of perfrun."""
        waited_for = self.after.children_cpu_s - self.before.children_cpu_s
        return self.harness_cpu_s + max(waited_for, self.trial_cpu_s or 0.0)

    @property
    def others_cores(self) -> float | None:
        """The number of CPUs that all other processes used, on average."""
        added = self.added
        if added.busy_s is None or added.elapsed_s <= 0 or not (added.busy_s + (added.idle_s or 0)):
            return None
        return max(0.0, added.busy_s - self.own_cpu_s - TICKS_SLACK_S) / added.elapsed_s

    @property
    def throttled_share(self) -> float | None:
        """The share of the quota's periods in which it was used up; None without a quota.

        It is of periods, not seconds, since Linux 6.18 counts only a sixth of the throttled seconds
        (measured with one thread at a quota of a fifth of a CPU).
        """
        periods, throttled = (self._of_cgroup(key) for key in ("cpu_periods", "throttled_periods"))
        return throttled / periods if periods and throttled is not None else None

    def _of_cgroup(self, key: str) -> float | None:
        """Return the increase of a figure of the trial's control group."""
        if self.trial_cgroup is not None:  # the counters of an own group begin with the trial
            return self.trial_cgroup.get(key)
        before, after = (s.snapshot.cgroup.get(key) for s in (self.before, self.after))
        found: float | None = increase(before, after)
        return found


def machine_delta(before: MachineState, after: MachineState, end: Exit) -> MachineDelta:
    """Combine two states with the launcher's figures of the trial itself."""
    group = end.cgroup or {}
    return MachineDelta(
        before=before,
        after=after,
        trial_cpu_s=group.get("cpu_usage_s") or end.user_cpu_s + end.system_cpu_s,
        trial_cgroup=end.cgroup,
    )
