"""One knob: its name, the values it takes, and its meaning.

This module does not need the flags, so that using a knob imports nothing.
"""

from __future__ import annotations

import re

from perfrun import SetupError

# No dataclass and no `typing` at run time: with their imports they would be a third of a no-op
# trial.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    Kind = Literal["whole", "number", "switch", "choice", "text", "shape", "sizes"]

# What people write; DLBS took every word that it did not know for "false".
_SWITCH = {
    **dict.fromkeys(("true", "t", "1", "yes", "y", "on"), True),
    **dict.fromkeys(("false", "f", "0", "no", "n", "off"), False),
}
_SHAPE = re.compile(r"\d+([x,]\d+)*")
_SIZES = re.compile(r"\d+(,\d+)*")


class Knob:
    """A setting of a benchmark: a keyword of its class and a flag after `--`.

    The default is not here, because each method has its own.
    """

    def __init__(
        self,
        *,
        name: str,
        meaning: str,
        kind: Kind = "whole",
        minimum: int = 0,
        maximum: int | None = None,
        choices: tuple[str, ...] = (),
        synonyms: tuple[tuple[str, str], ...] = (),
        pattern: str = "",
        accepts: str = "",
        aliases: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.meaning = meaning
        self.kind = kind
        self.minimum, self.maximum = minimum, maximum  # of a number, inclusive
        self.choices = choices  # of the kind `choice`
        self.synonyms = synonyms  # another word for a choice, and that choice
        self.pattern = pattern  # of the kind `text`: a regular expression for all of it
        self.accepts = accepts  # the pattern in words
        self.aliases = aliases  # other spellings of the name

    @property
    def names(self) -> tuple[str, ...]:
        """Return all spellings, the knob's own first."""
        return (self.name, *self.aliases)

    @property
    def limits(self) -> str:
        """Return in words the values that the knob takes."""
        if self.kind == "whole":
            highest = "" if self.maximum is None else f" and at most {self.maximum}"
            return f"a whole number, at least {self.minimum}{highest}"
        if self.kind == "number":
            return f"a number, at least {self.minimum}"
        if self.kind == "switch":
            return "true or false"
        if self.kind == "shape":
            return "whole numbers above 0 joined by x, such as 3x224x224"
        if self.kind == "sizes":
            return "whole numbers above 0 joined by commas, such as 1,8,32"
        if self.kind == "choice":
            same = "".join(f", {word} (= {choice})" for word, choice in self.synonyms)
            return f"one of {', '.join(self.choices)}{same}"
        return self.accepts or "text"

    def checked(self, value: object) -> Any:
        """Return the value in its kind's type; SetupError names the knob, its limits and the value.

        A choice comes back in its own spelling, shape and sizes as tuples, and empty text as None.
        """
        found = getattr(self, f"_{self.kind}")(value)
        if found is None and not (self.kind == "text" and value == ""):
            raise SetupError(f"{self.name} is {value!r}; it must be {self.limits}")
        return found

    def parsed(self, text: str) -> Any:
        """Return the value that a flag's text stands for; ValueError as `checked` raises it."""
        if self.kind == "whole":
            return self.checked(int(text) if re.fullmatch(r"\s*[-+]?\d+\s*", text) else text)
        if self.kind == "number":
            return self.checked(_number_of(text))
        return self.checked(text)

    def _number(self, value: object) -> float | None:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return None
        # Also false for NaN.
        return float(value) if self.minimum <= value < float("inf") else None

    def _whole(self, value: object) -> int | None:
        if not isinstance(value, int) or isinstance(value, bool) or value < self.minimum:
            return None
        return value if self.maximum is None or value <= self.maximum else None

    def _switch(self, value: object) -> bool | None:
        # str() of a bool and of the numbers 0 and 1 are words of the table, too.
        return _SWITCH.get(str(value).strip().lower())

    def _choice(self, value: object) -> str | None:
        word = dict(self.synonyms).get(str(value), str(value))
        return word if word in self.choices else None

    def _text(self, value: object) -> str | None:
        if not isinstance(value, str) or not value:
            return None
        return value if not self.pattern or re.fullmatch(self.pattern, value) else None

    def _shape(self, value: object) -> tuple[int, ...] | None:
        if isinstance(value, str) and _SHAPE.fullmatch(value):
            value = [int(size) for size in re.split("[x,]", value)]
        return self._sizes(value)

    def _sizes(self, value: object) -> tuple[int, ...] | None:
        if isinstance(value, str) and _SIZES.fullmatch(value):
            value = [int(size) for size in value.split(",")]
        sizes: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
        right = all(type(size) is int and size > 0 for size in sizes)
        return tuple(sizes) if sizes and right else None


def _number_of(text: str) -> float | str:
    """Return the number that a text spells, else the text."""
    try:
        return float(text)
    except ValueError:
        return text
