"""From the units of a suite to plans of runs, each made and judged as a command line would be."""

from __future__ import annotations

import re

from perfrun.cli import parse
from perfrun.errors import UsageError
from perfrun.nightly.parsing import FLAG_KEYS
from perfrun.nightly.source import Source, Where
from perfrun.nightly.suite import Night, Suite, Unit, units, words
from perfrun.plan import RunPlan
from perfrun.store.address import parse_address

_FLAG = re.compile(r"--(\w+)(=?)")


def plan_of(suite: Suite, unit: Unit, night: Night) -> RunPlan:
    """Make the plan of a unit's run. Raises UsageError."""
    return parse(words(suite, unit, night))


def check(suite: Suite, source: Source) -> None:
    """Find what only shows when the runs are put together. Raises UsageError with the line."""
    try:
        parse_address(suite.store, suite.workspace)
    except UsageError as error:
        raise source.error(("store",), str(error)) from None
    used = set()
    for unit in units(suite):
        used.add(unit.environment.name)
        _refuse_twice(suite, unit, source)
        try:
            plan_of(suite, unit, Night(night=suite.name))
        except UsageError as error:
            raise source.error(_place(suite, unit, source, str(error)), _text(str(error))) from None
    for number, environment in enumerate(suite.environments):
        if environment.name not in used:
            raise source.error(
                ("environments", number), f"no method runs in environment {environment.name!r}"
            )


def _refuse_twice(suite: Suite, unit: Unit, source: Source) -> None:
    seen = set()
    for method in unit.methods:
        if method.selector.text in seen:
            places = [n for n, m in enumerate(suite.methods) if m is method]
            text = f"{method.selector.text!r} is named twice for {unit.environment.name}"
            raise source.error(("methods", places[-1], "name"), text)
        seen.add(method.selector.text)


def _place(suite: Suite, unit: Unit, source: Source, text: str) -> Where:
    """Where the key is that became the flag which an error names."""
    found = _FLAG.search(text)
    key = FLAG_KEYS.get(found[1]) if found else None
    places: list[Where] = [("methods", suite.methods.index(spec)) for spec in unit.methods]
    if suite.environments.index(unit.environment) < len(source.data.get("environments", ())):
        places.insert(0, ("environments", suite.environments.index(unit.environment)))
    for place in (*places, ()):
        if key is not None and key in source.at(place):
            return (*place, key)
    return places[0]


def _text(text: str) -> str:
    """An error of the command line in the words of the file."""
    return _FLAG.sub(
        lambda found: FLAG_KEYS.get(found[1], found[1]) + (" = " if found[2] else ""), text
    )
