"""The entry point: `perfrun`, `python -m perfrun` and `python3 perfrun/benchmark.py`."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # When Python runs a file, it puts the file's folder first on the path. There, `options` or
    # `text` would hide other people's modules; the folder above is the right one.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120

import importlib
import io
from collections.abc import Sequence

from perfrun import __version__
from perfrun.errors import Interrupted, PerfrunError, UsageError
from perfrun.reports.output import OutputError, give_up_stdout, named_failures

TYPE_CHECKING = False  # as type checkers read it: `typing` is no part of every start
if TYPE_CHECKING:
    from argparse import Namespace

    from perfrun.changes.change_report import ChangeRow
    from perfrun.options.plan import RunPlan
    from perfrun.run.command import Judge

_RUN = ("perfrun.run.command", "run_command")
_DETECT = ("perfrun.changes.detect", "detect_command")
_HELP = ("perfrun.options.flags", "help_command")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; all errors are caught here."""
    words = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    try:
        return _main(words)
    except Exception as error:
        # To name an error takes files, too, and this disk gives none: nothing is imported here.
        _say(f"internal error: {type(error).__name__}: {error}; no log could be written")
        return PerfrunError.exit_code


def _main(words: list[str]) -> int:
    try:
        with named_failures():
            return _command(words)
    except PerfrunError as error:
        _say(error.line)
        return error.exit_code
    except KeyboardInterrupt:
        _say("interrupted")
        return Interrupted.exit_code
    except BrokenPipeError:
        give_up_stdout()  # nobody reads it any more
        return PerfrunError.exit_code
    except OutputError as error:
        give_up_stdout()
        _say(f"standard output cannot be written: {error.strerror}; what was measured is on disk")
        return PerfrunError.exit_code
    except FileNotFoundError as error:
        if error.filename is not None or _current_folder_exists():
            return _internal_error(words)
        _say("the current folder has been removed; change to another one")
        return UsageError.exit_code
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("perfrun"):
            return _internal_error(words)
        _say(
            f"the Python package {error.name!r} is missing in {sys.executable}; "
            "install perfrun there with `python -m pip install .`, or use `make run`"
        )
        return UsageError.exit_code
    except Exception:
        return _internal_error(words)


def _prepare_streams() -> None:
    """Point each standard stream that the caller has closed (`>&-`, a daemon) at the null device.

    Otherwise the next file that is opened gets the stream's number, and receives its output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - it stays open
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # file names may hold any bytes


def _current_folder_exists() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - pathlib takes 4 ms of `perfrun --version`
    except FileNotFoundError:
        return False
    return True


def _command(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        sys.stdout.write(f"perfrun {__version__}\n")
        return 0
    if words[:1] in (["--help"], ["-h"]):
        return _carry_out(_HELP, words)
    if words[:1] == ["help"]:
        return _help(words[1:])
    if not words:
        _carry_out(_HELP, words)
        return UsageError.exit_code  # a run in which nothing ran is no success
    if words[0].startswith("-"):
        return _carry_out(_RUN, words)
    return _carry_out(_named(words[0]), words[1:])


def _named(word: str) -> tuple[str, str]:
    """Return module and function of a command. Raises UsageError."""
    from perfrun.options.commands import COMMANDS

    if word not in COMMANDS:
        raise UsageError(_no_command(word))
    module, function, _ = COMMANDS[word]
    return module, function


def _help(words: list[str]) -> int:
    """Carry out `perfrun help [COMMAND]`."""
    if not words or words[0] == "help":
        return _carry_out(_HELP, words)
    return _carry_out(_named(words[0]), ["--help"])


def _carry_out(command: tuple[str, str], words: list[str]) -> int:
    module, function = command
    carry_out = getattr(importlib.import_module(module), function)
    above = {_RUN: _judge, _DETECT: _kept_with_incidents}.get(command)  # what lies above a command
    status: int = carry_out(words) if above is None else carry_out(words, above)
    return status


def _judge(plan: RunPlan) -> Judge:
    """Return what compares a run with its baseline: comparisons lie above a run."""
    from perfrun.compare.after_run import make_judge

    return make_judge(plan)


def _kept_with_incidents(given: Namespace, rows: Sequence[ChangeRow]) -> Sequence[str]:
    """Keep confirmed changes with the incidents, and return what is told of them."""
    from perfrun.incidents.after_detect import keep_confirmed

    return keep_confirmed(given, rows)


def _no_command(word: str) -> str:
    from perfrun.options.commands import nearest_command
    from perfrun.options.parsers import shown

    if word.partition("::")[0].endswith(".py") or "/" in word or word.count(".") > 1:
        return f"{shown(word)!r} is no command; to run it: `perfrun run {shown(word)}`"
    near = nearest_command(word)
    hint = f"; did you mean {near}?" if near else ""
    return f"{shown(word)!r} is no command{hint} (`perfrun --help` lists all commands)"


def _say(text: str) -> None:
    from perfrun.shown import write_prose

    named = text if text.startswith("perfrun ") else f"perfrun: {text}"
    write_prose([named], sys.stderr)


def _internal_error(words: list[str]) -> int:
    """Write the traceback to a file and print one line that names it; return the exit status."""
    import tempfile
    import traceback
    from datetime import datetime

    from perfrun.shown import block
    from perfrun.text import redact_words

    text = block(
        f"perfrun {__version__}, Python {sys.version}\n"
        f"time: {datetime.now().isoformat()}\nargv: {redact_words(words)!r}\n\n"
        f"{traceback.format_exc()}"
    )
    last = traceback.format_exc().strip().splitlines()[-1]
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="perfrun-error-", suffix=".log", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        _say(f"internal error: {last}; the log is in {file.name}")
    except OSError:
        _say(f"internal error: {last}")
        sys.stderr.write(f"{text}\n")
    return PerfrunError.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
