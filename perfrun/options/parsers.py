"""Values of flags as people type them: parsers, the flags that commands share, and their checks.

Each flag is declared once, with its help and its check. An error is a UsageError of one line.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from perfrun.dataclass import dataclass
from perfrun.errors import UsageError
from perfrun.text import columns

if TYPE_CHECKING:
    from pathlib import Path


FORMATS = ("table", "json")
_MOST_DIGITS = 18  # of a number that fits into 64 bits
_MOST_SHOWN = 80  # characters of a value
ALIKE = 0.72  # ratio from which a flag is worth asking for: --shm_size is no --batch_size
_SHORTEST_PART = 3  # letters of a word that stands for a longer one which has it as a part
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
FEWEST_TRIALS = 6  # with --precision: below this there is no interval (analysis.stopping.PILOT)
MOST_TRIALS = 30  # default of --max_trials
RERUNS = 2  # default of --max_reruns with --precision
OVERRUN = 0.1  # part of a trial's usual time by which it may exceed the time budget
ALLOCATORS = ("default", "retain", "jemalloc", "tcmalloc")
KINDS = (
    *("cprofile", "lines", "torch", "tensorflow"),
    *("memory", "memory_lines", "sampling", "counters"),
)
SCOPES = ("timed", "method", "process")  # of a profile
_SECONDS = re.compile(r"\d{1,9}", re.ASCII)


class CommandParser(argparse.ArgumentParser):
    """argparse whose errors are UsageErrors that begin with the command's name (`prog`)."""

    never_suggested: Sequence[str] = ()  # flags by which something is removed

    def __init__(self, prog: str, text: str | None, epilog: str, usage: str | None = None) -> None:
        super().__init__(
            prog, usage, text, epilog, formatter_class=HelpFormatter, allow_abbrev=False
        )

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown:
            message = self._unknown(unknown[1])
        elif "are required" in message:
            message += f" (`{self.prog} --help` tells more)"
        raise UsageError(f"{self.prog}: {value_missing(message, self)}")

    def _unknown(self, word: str) -> str:
        """Return the message about a word that is no flag; it does not repeat a value."""
        name = word.partition("=")[0]
        if not name.startswith("-"):
            return f"{shown(word)!r} is one word too many; flags begin with --"
        flags = [flag for action in self._actions for flag in action.option_strings]
        safe = [flag.lstrip("-") for flag in flags if flag not in self.never_suggested]
        near = nearest(name.lstrip("-"), safe, ALIKE)
        return f"unknown flag {shown(name)}" + (f"; did you mean --{near}?" if near else "")

    def flag(
        self,
        name: str,
        metavar: str,
        text: str,
        parse: Callable[[str, str], object] | None = None,
        default: object = None,
        **options: Any,
    ) -> None:
        """Declare a flag with a value by name, placeholder and help; empty means not given.

        `parse` gets the text and the flag's name and returns the value. The user reads its
        UsageError as it is: argparse puts no words around it.
        """
        if parse:
            options["type"] = lambda typed: parse(typed, name) if typed else default
        self.add_argument(name, metavar=metavar, help=text, default=default, **options)

    def switch(self, name: str, text: str) -> None:
        """Declare a flag without a value."""
        self.add_argument(name, action="store_true", help=text)

    def add_workspace(self) -> None:
        """Declare `--workspace` of a command that reads results."""
        self.flag("--workspace", "DIR", "whose results are read (default ./workspace)")

    def add_store(self) -> None:
        """Declare `--store` of a command that reads an index."""
        text = "index to use instead of WORKSPACE/perfrun.db: a file or postgresql+psycopg://..."
        self.flag("--store", "URL|FILE", text)

    def add_format(self, words: Sequence[str] = FORMATS) -> None:
        """Declare `--format`; the first word is the default."""
        parse = partial(parse_word, words=words)
        self.flag("--format", "|".join(words), "what to print on stdout", parse, words[0])

    def add_clone(self) -> None:
        """Declare `--clone` of a command that reads series."""
        text = "full clone of the checkout NAME: points in the order of its commits"
        parse = partial(parse_clone, flag="--clone")
        self.flag("--clone", "NAME=DIR", text, default=[], action="append", type=parse)

    def add_pair_rules(self, min_effect: float, what: str = "pair") -> None:
        """Declare the flags of a command that runs pairs, or rounds, until it is decided."""
        text = f"changes surely below this are none (default {100 * min_effect:g}%%)"
        self.flag("--min_effect", "PERCENT", text, parse_share, min_effect)
        self.flag("--time_budget", "SECONDS", f"begin no {what} beyond (20m, 1h)", parse_duration)
        seed = partial(parse_whole, least=0)
        self.flag("--seed", "N", "of the order (default: random, recorded)", seed)


def value_missing(message: str, parser: argparse.ArgumentParser) -> str:
    """Return argparse's message; about a flag without its value, one that shows how to write it."""
    found = re.match(r"argument ([-\w]+).*: expected (?:one|at least one) argument", message)
    if not found:
        return message
    metavar = parser._option_string_actions[found[1]].metavar
    return f"{found[1]} needs a value, as {found[1]}={metavar}"


_WIDEST_TEXT = 98  # columns of a paragraph of a help


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """argparse's formatter without its import of `shutil`, 3 ms of every run."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **{"width": columns() - 2, **options})

    def _fill_text(self, text: str, width: int, _indent: str) -> str:
        """Fit paragraphs to the terminal; a line that begins with a blank stays as it is."""
        from textwrap import fill  # for a help only

        width = min(width, _WIDEST_TEXT)
        blocks: list[str] = []
        is_open = False  # the last one is a paragraph that goes on
        for line in text.splitlines():
            is_text = bool(line) and not line.startswith(" ")
            if is_open and is_text:
                blocks[-1] += f" {line}"
            else:
                blocks.append(line)
            is_open = is_text
        return "\n".join(
            fill(one, width, break_long_words=False, break_on_hyphens=False)
            if one and not one.startswith(" ")
            else one
            for one in blocks
        )

    def _format_usage(self, usage: str | None, *others: Any) -> str:
        """Return the usage; argparse folds only the one that it writes itself."""
        text = super()._format_usage(usage, *others)
        if usage is None:
            return text
        from textwrap import wrap

        inner = " " * len("usage: ")
        lines = [
            part
            for line in text.rstrip("\n").split("\n")
            for part in wrap(
                line,
                self._width,
                subsequent_indent=f"{inner}    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        ]
        return "\n".join(lines) + "\n\n"


def split_at_dashes(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split flags of the command from those of the benchmark, which follow `--`."""
    at = list(words).index("--") if "--" in words else len(words)
    return list(words[:at]), list(words[at + 1 :])


def parse_shell_words(text: str, flag: str) -> list[str]:
    """Split the value of a flag into words as a shell does. Raises UsageError."""
    import shlex  # an ordinary run does without

    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{flag}={text!r}: {str(error).lower()}") from None


def parse_workspace(text: str | None) -> Path:
    """Return the absolute path of the workspace. Raises UsageError."""
    from pathlib import Path  # `perfrun --help` does without

    try:
        return Path(text or "workspace").absolute()
    except FileNotFoundError:
        raise UsageError("the current folder has been removed; change to another one") from None


def parse_word(text: str | None, flag: str, words: Sequence[str]) -> str:
    """Check that the text is one of the words; no text means the first. Raises UsageError."""
    if text and text not in words:
        known = " or ".join(words) if len(words) == 2 else f"one of {', '.join(words)}"
        raise UsageError(f"{flag}={shown(text)}: must be {known}")
    return text or words[0]


def parse_clone(word: str, flag: str) -> tuple[str, Path]:
    """Parse `NAME=DIR`. Raises UsageError."""
    from pathlib import Path

    name, _, folder = word.partition("=")
    if not name or not os.path.isdir(folder):  # noqa: PTH112 - pathlib raises for a name that is too long
        raise UsageError(f"{flag}={word}: must be NAME=DIR, the folder of a git repository")
    return name, Path(folder).absolute()


def parse_whole(text: str | None, flag: str, least: int = 1) -> int | None:
    """Parse a whole number of a flag; None when it is not given. Raises UsageError."""
    if not text:
        return None
    plain = text.strip()
    if not re.fullmatch(r"\d+", plain, re.ASCII):
        raise UsageError(f"{flag}={shown(text)}: must be a whole number, {least} or more")
    digits = plain.lstrip("0") or "0"  # thousands of zeros are too much for `int`, too
    if len(digits) > _MOST_DIGITS:
        raise UsageError(f"{flag}={shown(text)}: is too large a number")
    if int(digits) < least:
        raise UsageError(f"{flag}={shown(text)}: must be a whole number, {least} or more")
    return int(digits)


def parse_share(text: str | None, flag: str, *, above_zero: bool = False) -> float | None:
    """Parse `2%` or `0.02`; None when it is not given. Raises UsageError."""
    if not text:
        return None
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        raise UsageError(f"{flag}={shown(text)}: write 1% or 0.01") from None
    if not 0 <= share < 1 or (above_zero and share == 0):
        least = "more than 0" if above_zero else "at least 0"
        raise UsageError(f"{flag}={shown(text)}: must be {least} and below 100% (1% = 0.01)")
    return share


def parse_duration(text: str | None, flag: str) -> float | None:
    """Parse seconds, or a number with s, m, h or d. Raises UsageError."""
    if not text:
        return None
    found = re.fullmatch(r"(.*?)\s{0,9}(s|m|min|h|d|)", text.strip(), re.DOTALL)
    try:
        seconds = float(found[1]) * _UNITS[found[2]] if found else math.nan
    except ValueError:
        raise UsageError(f"{flag}={shown(text)}: write seconds, or 20m, 1h, 1d") from None
    if not 0 < seconds < math.inf:
        raise UsageError(f"{flag}={shown(text)}: must be more than 0 seconds")
    return seconds


def nearest(word: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """Return the known word that is most like this one; None when none is, by difflib's ratio.

    One that has all parts of this one comes first: `num_trials` means `benchmark_num_trials`.
    """
    from difflib import get_close_matches  # only for a mistake

    words = list(known)
    parts = re.findall(r"[^_\W]+", word)
    longer = [
        one
        for one in words
        if all(get_close_matches(part, re.findall(r"[^_\W]+", one), 1, 0.8) for part in parts)
    ]
    is_long = max(map(len, parts), default=0) > _SHORTEST_PART
    near = get_close_matches(word, longer, 1, 0.0) if is_long else []
    return next(iter(near or get_close_matches(word, words, 1, least)), None)


def parse_metrics(text: str | None) -> re.Pattern[str] | None:
    """Parse `--metrics` of a run: `all`, or a regular expression. Raises UsageError."""
    if not text:
        return None
    return re.compile("(?s:.*)") if text == "all" else parse_regex(text, "--metrics")


def parse_regex(pattern: str, what: str) -> re.Pattern[str]:
    """Compile a regular expression; `what` begins the message. Raises UsageError."""
    try:
        with warnings.catch_warnings():  # of what a later Python may read differently
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(pattern)
    except (re.error, OverflowError) as error:
        why = str(error)
    except ValueError:
        why = "a number of thousands of digits"
    except RecursionError:
        why = "too deeply nested"
    raise UsageError(f"{what}: {shown(pattern)!r} is not a regular expression: {why}")


def shown(text: str) -> str:
    """Return a value of the command line for a message: on one line, and shortened."""
    told = text if text.isprintable() else repr(text)
    return told if len(told) <= _MOST_SHOWN else f"{told[:_MOST_SHOWN]}..."


def parse_variables(values: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """Parse all `--env`; the last of a name counts. Raises UsageError."""
    found: dict[str, str] = {}
    for item in values or ():
        name, equals, value = item.partition("=")
        if not equals or not _NAME.fullmatch(name) or "\0" in value:
            raise UsageError(f"--env={item!r}: must be NAME=VALUE")
        found[name] = value
    return tuple(found.items())


def is_full(git_hash: str) -> bool:
    """Return True when a hash is complete."""
    return _FULL_HASH.fullmatch(git_hash) is not None


def may_be_hash(text: str) -> bool:
    """Return True when a text can be a commit's hash or its beginning, as users write it."""
    return re.fullmatch(r"[0-9a-fA-F]{4,64}", text) is not None


def local_branch(ref: str) -> str | None:
    """Return the branch a checkout of `ref` is on; None for other refs than branches."""
    if ref.startswith("refs/heads/"):
        return ref.removeprefix("refs/heads/")
    return None if ref.startswith("refs/") else ref


def looks_hex(name: str) -> bool:
    """Return True when the name of a branch may have been meant as a hash."""
    return re.fullmatch(r"[0-9a-f]{7,64}", name) is not None


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """The rules for trials beyond `--benchmark_num_trials`."""

    precision: float | None = None  # relative half-width to reach; None = a fixed number of trials
    max_trials: int = MOST_TRIALS  # of a method, re-runs not counted; with a precision only
    time_budget_s: float | None = None  # for all trials together; with a precision only
    max_reruns: int = 0  # of disturbed trials, per method
    seed: int | None = None  # of the order; None = a random one, which is recorded


def parse_repetition(given: Mapping[str, Any], num_trials: int) -> Repetition:
    """Parse the flags. Raises UsageError."""
    precision = parse_share(given["precision"], "--precision", above_zero=True)
    max_trials = parse_whole(given["max_trials"], "--max_trials", FEWEST_TRIALS)
    reruns = parse_whole(given["max_reruns"], "--max_reruns", 0)
    budget_s = parse_duration(given["time_budget"], "--time_budget")
    if precision is None:
        for flag, value in (("--max_trials", max_trials), ("--time_budget", budget_s)):
            if value is not None:
                raise UsageError(
                    f"{flag} needs --precision; without it, --benchmark_num_trials is the number"
                )
    if max_trials is not None and max_trials < num_trials:
        raise UsageError(
            f"--max_trials={max_trials}: is less than --benchmark_num_trials={num_trials}, "
            "the fewest with --precision"
        )
    return Repetition(
        precision=precision,
        max_trials=max(MOST_TRIALS, num_trials) if max_trials is None else max_trials,
        time_budget_s=budget_s,
        max_reruns=reruns if reruns is not None else RERUNS if precision else 0,
        seed=parse_whole(given["seed"], "--seed", 0),
    )


@dataclass(frozen=True, kw_only=True)
class ProfilerWindow:
    """Seconds after the method's start between which the framework's profiler records."""

    begin_s: int
    end_s: int


def parse_profiles(text: str | None) -> tuple[str, ...]:
    """Parse the comma list of kinds; one named twice counts once."""
    kinds = [item.strip() for item in (text or "").split(",") if item.strip()]
    for kind in kinds:
        if kind not in KINDS:
            near = nearest(kind, KINDS)
            hint = f"; did you mean {near}?" if near else ""
            raise UsageError(f"--profile: {kind!r} is not one of {', '.join(KINDS)}{hint}")
    return tuple(dict.fromkeys(kinds))


def parse_profile_scope(text: str | None, kinds: str | None) -> str:
    """Parse what a profile records; the timed steps by default."""
    if text is None:
        return SCOPES[0]
    if not (kinds or "").strip():
        raise UsageError("--profile_scope: there is no --profile whose scope it would be")
    return parse_word(text, "--profile_scope", SCOPES)


def parse_profiler_windows(text: str | None) -> tuple[ProfilerWindow, ...]:
    """Parse `begin:end,begin2:end2` (whole seconds, increasing); `:end` may be left out."""
    windows: list[ProfilerWindow] = []
    for item in [item.strip() for item in (text or "").split(",") if item.strip()]:
        begin, _, end = item.partition(":")
        if not all(_SECONDS.fullmatch(text) for text in (begin, end or "0")):
            raise UsageError(f"--profiler_enabled_time: {item!r} is not begin:end in whole seconds")
        # PerfZero's "until the method ends" is a year.
        window = ProfilerWindow(begin_s=int(begin), end_s=int(end) if end else 365 * 24 * 3600)
        if window.end_s <= window.begin_s or (windows and window.begin_s <= windows[-1].end_s):
            raise UsageError(f"--profiler_enabled_time: {text!r}: must increase and not overlap")
        windows.append(window)
    return tuple(windows)
