"""A benchmark of many methods that do nothing, to measure what each further method costs."""

from benchmarks.python.calibration import Calibration


class Noops(Calibration):
    """`noop` under many names, so that no trial is a second trial of another method."""


for _number in range(50):
    setattr(Noops, f"noop_{_number}", Calibration.noop)
