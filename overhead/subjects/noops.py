"""A benchmark of many methods that do nothing, to measure what each further method costs."""

from benchmarks.python.calibration import Calibration


class Noops(Calibration):
    """`noop` under other names, so that none is a second trial of another."""


for _number in range(50):
    setattr(Noops, f"noop_{_number}", Calibration.noop)
