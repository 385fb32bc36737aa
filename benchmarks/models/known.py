"""Metrics whose true value is known beforehand."""

from __future__ import annotations

from typing import Any


def known_value(name: str, value: float, truth: float) -> dict[str, Any]:
    """Return a metric that passes only when it equals a truth known beforehand."""
    return {"name": name, "value": value, "min_value": truth, "max_value": truth}
