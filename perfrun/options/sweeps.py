"""Sweeps: flags of the benchmark with several values each; every combination is a setting."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from perfrun.errors import UsageError
from perfrun.options.parsers import shown

MOST_SETTINGS = 10_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_FLAG = "--sweep"
Setting = tuple[tuple[str, str], ...]  # flags of the benchmark with one value each
Sweep = tuple[tuple[str, tuple[str, ...]], ...]  # names with their values


def parse_sweep(words: Sequence[str]) -> Sweep:
    """Parse `batch_size=1,8,32` `dtype=float32,bfloat16`. Raises UsageError."""
    found: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, sign, text = word.partition("=")
        given = f"{_FLAG}={shown(word)}"
        if not sign or not _NAME.fullmatch(name):
            raise UsageError(f"{given}: write a flag of the benchmark and its values: batch=1,8,32")
        values = [value.strip() for value in text.split(",")]
        if name in found:
            raise UsageError(f"{_FLAG}: {name} is there twice; write all its values in one word")
        found[name] = checked_values(values, given)
    return tuple(found.items())


def checked_values(values: Sequence[str], given: str) -> tuple[str, ...]:
    """Return the values of one flag. Raises UsageError, which begins with what was `given`."""
    if "" in values or any("\0" in value for value in values):
        raise UsageError(f"{given}: a value is empty")
    if len(values) > MOST_SETTINGS:
        raise UsageError(f"{given}: more than {MOST_SETTINGS:,} values")
    twice = next((value for value, count in Counter(values).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"{given}: the value {shown(twice)} is there twice")
    return tuple(values)


def sweep_of(table: Mapping[str, Sequence[str | float]]) -> Sweep:
    """Return the sweep of a table of flags, each with a list of values. Raises UsageError.

    Numbers and booleans become what they would be on a command line: `8`, `0.1`, `true`.
    """
    found = {}
    for name, values in table.items():
        if not _NAME.fullmatch(name):
            raise UsageError(f"{shown(name)}: is no name of a flag; write it without dashes")
        if not values:
            raise UsageError(f"{name}: has no values; write a list: {name} = [1, 8, 32]")
        found[name] = checked_values([_word(value) for value in values], name)
    return tuple(found.items())


def _word(value: str | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.strip() if isinstance(value, str) else str(value)


def merged(sweep: Sweep, over: Sweep) -> Sweep:
    """Return a sweep with the values of another one in the place of its own; new names come last.

    Names keep their order: it is that of the flags, which are part of the key of a series.
    """
    return tuple({**dict(sweep), **dict(over)}.items())


def narrowed(sweep: Sweep, names: Collection[str] | None) -> Sweep:
    """Return the part of a sweep that has these names; all of it for None."""
    return sweep if names is None else tuple(one for one in sweep if one[0] in names)


def settings(sweep: Sweep, given: str = _FLAG) -> tuple[Setting, ...]:
    """Return every combination, the last name changing fastest; one empty one without a sweep.

    Raises UsageError for too many.
    """
    count = 1
    for name, values in sweep:
        count *= len(values)
        if count > MOST_SETTINGS:
            raise UsageError(f"{given}: more than {MOST_SETTINGS:,} settings with {name}")
    names = [name for name, _ in sweep]
    products = itertools.product(*(values for _, values in sweep))
    return tuple(tuple(zip(names, values, strict=True)) for values in products)


def few_settings(sweep: Sweep) -> tuple[Setting, ...]:
    """Return settings that have every value of every name at least once, as few as that takes."""
    most = max((len(values) for _, values in sweep), default=1)
    return tuple(
        tuple((name, values[min(at, len(values) - 1)]) for name, values in sweep)
        for at in range(most)
    )


def setting_text(setting: Setting) -> str:
    """Return a setting as people read it; empty without a sweep."""
    return " ".join(f"{name}={value}" for name, value in setting)


def with_setting(benchmark_flags: Sequence[str], setting: Setting) -> tuple[str, ...]:
    """Return the flags of a benchmark with those of a setting in the place of its own values."""
    kept, names, words = [], {name for name, _ in setting}, list(benchmark_flags)
    while words:
        word = words.pop(0)
        name, sign, _ = word.removeprefix("-").removeprefix("-").partition("=")
        if word.startswith("-") and name in names:
            if not sign and words and _is_value(words[0]):
                words.pop(0)  # the value is a word of its own
        else:
            kept.append(word)
    return (*kept, *(f"--{name}={value}" for name, value in setting))


def _is_value(word: str) -> bool:
    """Return True for what is no flag, as a negative number is none."""
    return not word.startswith("-") or word.lstrip("-.")[:1].isdigit()
