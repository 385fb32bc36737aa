"""`--env NAME=VALUE`: environment variables of the workers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perfrun.errors import UsageError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_variables(values: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """Parse all `--env`; the last of a name counts. Raises UsageError."""
    found: dict[str, str] = {}
    for item in values or ():
        name, equals, value = item.partition("=")
        if not equals or not _NAME.fullmatch(name) or "\0" in value:
            raise UsageError(f"--env={item!r}: must be NAME=VALUE")
        found[name] = value
    return tuple(found.items())
