"""Figures as people write them: `35.9 GFLOP/s (28.9..38.3)`, `first call 546.9 ms`, `1.2 %`.

Every table and line for people takes its figures from here. Documents for programs keep the names
and base units of the metrics (`perfrun.text` says how a value is scaled).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from perfrun.analysis.directions import unit_of
from perfrun.text import spread, with_unit

# Names that end in their unit; `images_per_second_per_device` does not. They are compiled when a
# table is drawn, because that takes milliseconds.
_RATE = r"(?P<what>[A-Za-z0-9_]{1,80}?)_per_(?:second|sec|s)"
_TIME = r"(?P<what>[A-Za-z0-9_]{1,80}?)_(?:s|sec|secs|seconds)"
_SMALL_TIME = r"(?P<what>[A-Za-z0-9_]{1,80}?)_(?P<unit>ms|us|ns)"
_SIZE = r"(?P<what>[A-Za-z0-9_]{1,80}?)_bytes"
_LONG = 100  # seconds from which a time to wait is told in minutes
_VERY_LONG = 100 * 60.0


def percent(share: float | None) -> str:
    """Return a share as a percentage with two significant digits."""
    if share is None:
        return "?"
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"


def changed_by(ratio: float) -> str:
    """Return a ratio as people say it: `+9.8 %`, `-12 %`."""
    share = 100 * (ratio - 1)
    return f"{share:+.2g} %" if abs(share) < 100 else f"{share:+.0f} %"


def metric_text(name: str, median: float, low: float, high: float) -> str:
    """Return a metric with its name: `accuracy 0.71`, `first call 546.9 ms`, `35.2 images/s`.

    A name that ends in its unit is written with blanks; any other stays as its author wrote it.
    """
    label, unit = name_and_unit(name)
    return f"{label} {spread(median, low, high, unit)}".lstrip()


def name_and_unit(name: str) -> tuple[str, str]:
    """Return the words of a metric's name and the unit of its values; either may be empty."""
    if found := re.fullmatch(_RATE, name):
        return _rate(found["what"])
    if (found := re.fullmatch(_TIME, name)) and unit_of(name) == "s":
        return _words(found["what"]), "s"
    if found := re.fullmatch(_SMALL_TIME, name):
        return _words(found["what"]), found["unit"]
    if (found := re.fullmatch(_SIZE, name)) and unit_of(name) == "bytes":
        return _words(found["what"]), "bytes"
    return name, ""


def _rate(what: str) -> tuple[str, str]:
    label, _, unit = what.rpartition("_")
    if unit.lower() == "flops":
        return _words(label), "FLOP/s"
    if unit.lower() == "bytes":
        return _words(label), "bytes/s"
    return "", f"{_words(what)}/s"


def _words(name: str) -> str:
    return " ".join(name.split("_"))


def named_value(
    name: str, value: float, low: float | None, high: float | None, unit: str
) -> tuple[str, str]:
    """Return a metric's name as people say it and its value, with an interval if there is one.

    `unit` is that of a value whose name does not end in one. The name is empty where the unit says
    it all: `35.2 images/s`.
    """
    prefix, slash, last = name.rpartition("/")
    label, own = name_and_unit(last)
    if low is None or high is None:
        shown = with_unit(value, own or unit)
    else:
        shown = spread(value, low, high, own or unit)
    return f"{prefix}{slash}{label}".removesuffix("/"), shown


def bound_text(name: str, bound: float) -> str:
    """Return a bound of a metric in the unit of its values."""
    return with_unit(bound, name_and_unit(name)[1])


def value_text(value: float | None, metric: str) -> str:
    """Return a value with four digits, in a suitable unit; its metric is named elsewhere."""
    if value is None:
        return "-"
    return with_unit(value, unit_of(metric.rpartition("/")[2]))


def time_left(seconds: float) -> str:
    """Return a time to wait as people say it: `14 s`, `6 min`, `2.5 h`."""
    seconds = max(0.0, seconds)
    if seconds < _LONG:
        return f"{seconds:.0f} s"
    if seconds < _VERY_LONG:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.2g} h"


def interval_text(low: float, high: float) -> str:
    """Return an interval of ratios: `0.80..1.50`; more digits where it is narrow."""
    decimals = _decimals(low, high)
    return f"{low:.{decimals}f}..{high:.{decimals}f}"


def ratio_text(ratio: float, low: float | None, high: float | None) -> str:
    """Return a ratio with its interval: `1.09 (0.80..1.50)`."""
    if low is None or high is None:
        return f"{ratio:.3f}"
    return f"{ratio:.{_decimals(low, high)}f} ({interval_text(low, high)})"


def _decimals(low: float, high: float) -> int:
    return 2 if high - low >= 0.1 else 3


def trials_text(counts: Sequence[int]) -> str:
    """Return numbers of trials as one phrase: `14 trials`, `6 to 14 trials`."""
    least, most = min(counts), max(counts)
    if least == most:
        return f"{most} trial{'s' * (most != 1)}"
    return f"{least} to {most} trials"
