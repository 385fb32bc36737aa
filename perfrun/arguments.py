"""The parser of a command: its errors are one line, by the one catch of `perfrun.benchmark`."""

from __future__ import annotations

import argparse
from typing import NoReturn

from perfrun.errors import UsageError


class CommandParser(argparse.ArgumentParser):
    """argparse whose errors are UsageErrors that begin with the command's name (`prog`)."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}")
