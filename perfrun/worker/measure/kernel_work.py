"""The kernel's work for a series: page faults, and CPU time spent in the kernel.

An allocator that gives freed memory back has every step fault it in again. That time is in the
step's, and neither the median nor its interval tells it from the work of the step.
"""

from __future__ import annotations

from typing import Dict, Optional

try:
    import resource
except ImportError:  # not a Unix
    resource = None  # type: ignore[assignment]


class KernelWork:
    """The sum of the kernel's counts over the intervals between `begin` and `end`.

    They are of this process, all threads together (RUSAGE_SELF): the threads of an operator fault
    in the pages that they touch first. Both calls lie outside of the timed interval.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: what has been counted was the warm-up."""
        self._minor = self._major = 0
        self._system_s = 0.0

    def begin(self) -> None:
        """Read the counts before an interval."""
        if resource is not None:
            self._before = resource.getrusage(resource.RUSAGE_SELF)

    def end(self) -> None:
        """Add the counts of the interval."""
        if resource is not None:
            after, before = resource.getrusage(resource.RUSAGE_SELF), self._before
            self._minor += after.ru_minflt - before.ru_minflt
            self._major += after.ru_majflt - before.ru_majflt
            self._system_s += after.ru_stime - before.ru_stime

    def facts(self, steps: int) -> Dict[str, Optional[float]]:
        """Return the counts per step; None without a step, or where nothing counts."""
        known = resource is not None and steps > 0
        return {
            "system_cpu_s": self._system_s / steps if known else None,
            "minor_faults_per_step": self._minor / steps if known else None,
            "major_faults_per_step": self._major / steps if known else None,
        }
