"""What a user can turn in the shipped benchmarks: one declaration each, checked in one place.

A knob is a keyword of the class (`--perfzero_constructor_args`) and a flag after `--`. The keyword
wins over the flag, and the flag over the method's default. Flags exist where absl is importable.
"""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.knob import Knob


def _absl_flags() -> Any:
    """Return the module, or None: an environment without absl has the constructor keywords only."""
    try:
        return importlib.import_module("absl.flags")
    except ImportError:
        return None


flags = _absl_flags()


KNOBS = {
    knob.name: knob
    for knob in (
        Knob("batch_size", 1, None, "examples per step"),
        Knob("iterations", 1, None, "timed steps"),
        Knob("warmup", 0, None, "untimed steps after the first one and before the timed ones"),
        # 32 bits, because numpy's generator, which Keras seeds too, takes no more.
        Knob("seed", 0, 2**32 - 1, "seed of the weights and of the synthetic data"),
    )
}


class Settings:
    """The knobs of one benchmark object; ValueError for a keyword that is out of its limits."""

    def __init__(self, **keywords: object) -> None:
        self._given: dict[str, int] = {
            name: KNOBS[name].checked(value)
            for name, value in keywords.items()
            if value is not None
        }

    def value(self, name: str, default: int) -> int:
        """Return the keyword's value, else the flag's, else the default."""
        if name in self._given:
            return self._given[name]
        flag = _flag_value(name)
        return default if flag is None else KNOBS[name].checked(flag)


def _flag_value(name: str) -> Any:
    # Item access: reading a flag as an attribute raises when nobody has parsed the command line.
    return flags.FLAGS[name].value if flags is not None and name in flags.FLAGS else None


def _define_flags() -> None:
    for knob in KNOBS.values():
        # Another module of the process may own a flag of this name; then that flag is read.
        if knob.name not in flags.FLAGS:
            flags.DEFINE_integer(
                knob.name,
                None,
                f"{knob.meaning} (default: the method's own)",
                lower_bound=knob.minimum,
                upper_bound=knob.maximum,
            )


if flags is not None:
    _define_flags()
