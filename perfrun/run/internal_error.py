"""The log of an error of perfrun's own that costs one trial, and not the run."""

from __future__ import annotations

import sys

from perfrun import __version__
from perfrun.schema import short


def internal_error(error: Exception) -> str:
    """Write the traceback to a file of its own; return the error in one line that names it."""
    import tempfile  # for an error only
    import traceback

    from perfrun.shown import block

    trace = "".join(traceback.format_exception(error))
    text = block(f"perfrun {__version__}, Python {sys.version}\n\n{trace}")
    last = short(f"internal error: {type(error).__name__}: {error}")
    try:
        with tempfile.NamedTemporaryFile(
            "w",
            prefix="perfrun-error-",
            suffix=".log",
            delete=False,
            encoding="utf-8",
            errors="backslashreplace",
        ) as file:
            file.write(text)
    except OSError:
        return last
    return f"{last}; the log is in {file.name}"
