"""The answer of `perfrun compare` as a Python value."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from perfrun.analysis.two_sets import Comparison
from perfrun.compare.command import (
    CompareResult,
    Wanted,
    allowed_kinds,
    compare_sets,
    document_of,
    lines_below,
)
from perfrun.compare.comparison_table import comparison_table, environment_lines
from perfrun.notebook.display import as_html, as_text
from perfrun.notebook.packages import needed
from perfrun.options.parsers import parse_regex
from perfrun.summary.metrics import WALL_TIME
from perfrun.summary.record import SummaryRecord

if TYPE_CHECKING:
    import pandas

    from perfrun.notebook.drawing import Picture


def compared(
    base: Sequence[SummaryRecord],
    new: Sequence[SummaryRecord],
    *,
    methods: str | None,
    metrics: str | None,
    min_effect: float | None,
    allow_different: Sequence[str],
) -> Comparisons:
    """Compare two sets by the rules of the command. Raises UsageError."""
    wanted = Wanted(
        None if methods is None else parse_regex(methods, f"methods={methods!r}"),
        None if metrics is None else parse_regex(metrics, f"metrics={metrics!r}"),
    )
    allowed = allowed_kinds(",".join(allow_different))
    common = len({record.uid for record in base} & {record.uid for record in new})
    if common:
        warnings.warn(f"{common} of the trials are in both sets", stacklevel=3)
    return Comparisons(
        compare_sets(base, new, wanted=wanted, allowed=allowed, min_effect=min_effect), base, new
    )


class Comparisons(Sequence[Comparison]):
    """The comparisons of two sets, one a method and metric. Ratios are new over base."""

    def __init__(
        self, found: CompareResult, base: Sequence[SummaryRecord], new: Sequence[SummaryRecord]
    ) -> None:
        """Take the answer and the trials that were compared."""
        self._found, self._base, self._new = found, base, new

    def __len__(self) -> int:
        return len(self._found.comparisons)

    def __iter__(self) -> Iterator[Comparison]:
        return iter(self._found.comparisons)

    @overload
    def __getitem__(self, at: int) -> Comparison: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Comparison]: ...
    def __getitem__(self, at: int | slice) -> Comparison | Sequence[Comparison]:
        return self._found.comparisons[at]

    @property
    def slower(self) -> tuple[Comparison, ...]:
        """What has become worse."""
        return tuple(one for one in self if one.verdict == "slower")

    @property
    def faster(self) -> tuple[Comparison, ...]:
        """What has become better."""
        return tuple(one for one in self if one.verdict == "faster")

    @property
    def document(self) -> dict[str, Any]:
        """The document that `perfrun compare --format=json` prints."""
        return document_of(self._found)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame of pandas with one row a method and metric."""
        rows = [
            {name: value for name, value in row.items() if name != "derived"}
            for row in self.document["comparisons"]
        ]
        frame: pandas.DataFrame = needed("pandas", "to_pandas()").DataFrame(rows)
        return frame

    def plot(self, metric: str = WALL_TIME, *, theme: str = "light") -> Picture:
        """Draw the medians of both sides with their 95 % intervals, a case for each method."""
        from perfrun.notebook.drawing import compared as drawn

        return drawn(self._found, metric, self._base, self._new, theme)

    def __repr__(self) -> str:
        return as_text(comparison_table(self._found.comparisons), self._lines)

    def _repr_html_(self) -> str:
        return as_html(comparison_table(self._found.comparisons), self._lines)

    @property
    def _lines(self) -> list[str]:
        return lines_below(self._found, environment_lines(self._found.differences))
