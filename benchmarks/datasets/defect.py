"""What is wrong with a data set, in one line."""

from __future__ import annotations

from perfrun import SetupError


class DataError(SetupError):
    """A data set, or a record of it, that cannot be used.

    PyTorch's DataLoader raises what a worker process raised once more, with the worker's whole
    traceback as its text; the line that matters is the last of it.
    """

    def __init__(self, text: str) -> None:
        line = (text.strip().splitlines() or [""])[-1]
        super().__init__(line.removeprefix(f"{type(self).__module__}.{type(self).__qualname__}: "))
