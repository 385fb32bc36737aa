"""One knob: a whole number with limits. Apart from the flags, so that using one imports nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Knob:
    """A whole number with its inclusive limits."""

    name: str
    minimum: int
    maximum: int | None
    meaning: str

    def checked(self, value: object) -> int:
        """Return the value; ValueError names the knob, its limits and what was given."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not self._within(value):  # type: ignore[arg-type]
            limits = f"at least {self.minimum}"
            if self.maximum is not None:
                limits += f" and at most {self.maximum}"
            raise ValueError(f"{self.name} is {value!r}; it must be a whole number, {limits}")
        return value  # type: ignore[return-value]

    def _within(self, value: int) -> bool:
        return value >= self.minimum and (self.maximum is None or value <= self.maximum)
