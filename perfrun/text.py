"""Text for people: urls without credentials, and values with their units.

Documents for programs (JSON, OpenMetrics, JUnit) keep the base unit: seconds, bytes.
"""

from __future__ import annotations

import math
import re

# A scheme is short: without that limit, a word of 100,000 letters took 20 s.
_USERINFO = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?P<user>[^/@\s:,;]*)(?P<rest>:[^/@\s]*)?@"
)
# A password of a database may have blanks and characters that end a host elsewhere (SQLAlchemy).
_DATABASE = re.compile(
    r"(?P<scheme>postgres(?:ql)?(?:\+\w{1,20})?://)"
    r"[^/:\s\"]{0,300}:[^@\n\"]{0,300}@(?:[^\s\"]{0,300}@)?"
)
_SECRET_QUERY = re.compile(
    r"(?P<name>[?&;][^=&;\s,]*(?:token|secret|password|passwd|signature|sig|credential|key)[^=&;\s,]*=)"
    r"[^&;\s,]+",
    re.IGNORECASE,
)
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_BYTES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "bytes"))
_FLOPS = ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s"))
_SCALES = {"s": _TIMES, "bytes": _BYTES, "FLOP/s": _FLOPS}


def redact(text: str) -> str:
    """Return `text` without the passwords and tokens of the urls in it.

    A user name of an ssh url (`ssh://git@host`) is no secret and stays; over http a bare user
    name is usually a token and is removed.
    """

    def without_secret(match: re.Match[str]) -> str:
        scheme, user, rest = match["scheme"], match["user"], match["rest"]
        if rest is None and "ssh" in scheme:
            return f"{scheme}{user}@"
        return f"{scheme}***@"

    hidden = _USERINFO.sub(without_secret, _DATABASE.sub(r"\g<scheme>***@", text))
    return _SECRET_QUERY.sub(r"\g<name>***", hidden)


def duration(seconds: float, figures: int = 4) -> str:
    """Return a duration with its unit: `0.01469` is `14.69 ms`."""
    return with_unit(float(seconds), "s", figures)


def with_unit(value: float, unit: str, figures: int = 4) -> str:
    """Return a value with its unit; seconds, bytes and FLOP/s are scaled to suit the value."""
    scale, name = scale_of(value, unit, figures)
    return f"{rounded(value / scale, figures)} {name}".rstrip()


def spread(median: float, low: float, high: float, unit: str) -> str:
    """Return `14.69 ms (13.7..20.6)`; the median decides the unit of all three."""
    scale, name = scale_of(median or high, unit)
    text = f"{rounded(median / scale)} {name}".rstrip()
    if low == high:
        return text
    return f"{text} ({rounded(low / scale)}..{rounded(high / scale)})"


def scale_of(value: float, unit: str, figures: int = 4) -> tuple[float, str]:
    """Return the divisor and the name of the largest unit in which the value is 1 or more.

    Zero, and values that are not finite, stay as they are.
    """
    scales = _SCALES.get(unit)
    if not scales or not value or not math.isfinite(value):
        return 1.0, unit
    size = abs(float(f"{value:.{figures}g}"))  # 0.99999 s is printed as one second
    return next((pair for pair in scales if size >= pair[0]), scales[-1])


def rounded(value: float, figures: int = 4) -> str:
    """Return a value with so many figures, without an exponent if it is large."""
    value = float(value)
    text = f"{value:.{figures}g}"
    shown = value if value.is_integer() else float(text)
    if not 1000 <= abs(shown) < 1e15:
        return text
    return f"{shown:,.0f}" if shown.is_integer() else f"{shown:,}"
