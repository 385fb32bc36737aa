"""Sweeps: flags of the benchmark with several values each; every combination is a setting."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from perfrun.errors import UsageError
from perfrun.fleet.shards import Setting
from perfrun.options.parsers import shown

MOST_SETTINGS = 10_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_FLAG = "--sweep"
Sweep = tuple[tuple[str, tuple[str, ...]], ...]  # names with their values


def parse_sweep(words: Sequence[str]) -> Sweep:
    """Parse `batch_size=1,8,32` `dtype=float32,bfloat16`. Raises UsageError."""
    found: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, sign, text = word.partition("=")
        given = f"{_FLAG}={shown(word)}"
        if not sign or not _NAME.fullmatch(name):
            raise UsageError(f"{given}: write a flag of the benchmark and its values: batch=1,8,32")
        values = tuple(value.strip() for value in text.split(","))
        if "" in values or "\0" in text:
            raise UsageError(f"{given}: a value is empty")
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise UsageError(f"{given}: the value {shown(twice)} is there twice")
        if name in found:
            raise UsageError(f"{_FLAG}: {name} is there twice; write all its values in one word")
        found[name] = values
    return tuple(found.items())


def settings(sweep: Sweep) -> tuple[Setting, ...]:
    """Return every combination, the last name changing fastest; one empty one without a sweep.

    Raises UsageError for too many.
    """
    count = 1
    for name, values in sweep:
        count *= len(values)
        if count > MOST_SETTINGS:
            raise UsageError(f"{_FLAG}: more than {MOST_SETTINGS:,} settings with {name}")
    names = [name for name, _ in sweep]
    products = itertools.product(*(values for _, values in sweep))
    return tuple(tuple(zip(names, values, strict=True)) for values in products)


def with_setting(benchmark_flags: Sequence[str], setting: Setting) -> tuple[str, ...]:
    """Return the flags of a benchmark with those of a setting in the place of its own values."""
    kept, names, words = [], {name for name, _ in setting}, list(benchmark_flags)
    while words:
        word = words.pop(0)
        name, sign, _ = word.removeprefix("-").removeprefix("-").partition("=")
        if word.startswith("-") and name in names:
            if not sign and words and not words[0].startswith("-"):
                words.pop(0)  # the value is a word of its own
        else:
            kept.append(word)
    return (*kept, *(f"--{name}={value}" for name, value in setting))
