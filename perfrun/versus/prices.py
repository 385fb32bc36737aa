"""What an hour costs: `--price_per_hour=2.5`, `torch=2.5`, `PLATFORM=2.5`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from perfrun.errors import UsageError

_FLAG = "--price_per_hour"


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices an hour, in whatever currency they were given in."""

    by_name: Mapping[str, float] = field(default_factory=dict)
    for_all: float | None = None

    def __bool__(self) -> bool:
        return bool(self.by_name) or self.for_all is not None

    def of(self, label: str, framework: str, platform: str | None) -> float | None:
        """The price of an environment: by its label, its framework, its platform, or for all."""
        for name in (label, framework, platform):
            if name is not None and name in self.by_name:
                return self.by_name[name]
        return self.for_all

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Raise UsageError for the price of something that is not compared here."""
        for name in self.by_name:
            if name not in known:
                raise UsageError(
                    f"{_FLAG}={name}={self.by_name[name]:g}: {name!r} is none of "
                    f"{', '.join(sorted(known))}"
                )


def parse_prices(values: Sequence[str] | None) -> Prices:
    """Parse the flag, which is repeatable and split by commas. Raises UsageError."""
    by_name: dict[str, float] = {}
    for_all = None
    for item in (part.strip() for text in values or () for part in text.split(",")):
        if not item:
            continue
        name, equals, number = item.rpartition("=")
        if equals and not name:
            raise UsageError(f"{_FLAG}={item}: write NUMBER or NAME=NUMBER")
        price = _price(item, number)
        if name in by_name or (not equals and for_all is not None):
            raise UsageError(f"{_FLAG}: {name or 'the price of all'} is given twice")
        if equals:
            by_name[name] = price
        else:
            for_all = price
    return Prices(by_name=by_name, for_all=for_all)


def _price(item: str, number: str) -> float:
    try:
        price = float(number)
    except ValueError:
        price = math.nan
    if not 0 < price < math.inf:
        raise UsageError(
            f"{_FLAG}={item}: a price is a number above 0, without a currency, as 2.5 or torch=2.5"
        )
    return price
