"""A measurement inside a profile trial: it tells the profiler where its timed part is."""

from __future__ import annotations

from typing import Any

from perfrun.worker.measuring import Measuring


class ProfiledMeasuring(Measuring):
    """As `Measuring`; its times hold the profiler's own work and count for nothing."""

    def __init__(self, observer: Any, **options: Any) -> None:
        super().__init__(**{**options, "limits": observer.limits(options["limits"].checked())})
        self._observer = observer

    def __enter__(self) -> "ProfiledMeasuring":
        self._observer.measurement_begins()
        super().__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._observer.timed_part_ends(len(self._progress.times))
        super().__exit__(kind, error, trace)

    def _start_timed(self) -> None:
        super()._start_timed()
        self._observer.timed_part_begins(self._name)
