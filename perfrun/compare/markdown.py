"""A comparison as Markdown: a comment for a pull request, which a CI job can find and update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfrun.compare.comparison_table import verdict_text
from perfrun.compare.differences import Difference
from perfrun.reports.figures import ratio_text, value_text
from perfrun.reports.table import Column, Table, markdown_text
from perfrun.shown import markdown, markdown_command

if TYPE_CHECKING:
    from perfrun.analysis.two_sets import Comparison, Verdict

# The first line: nobody sees it, and no text from outside can look like it.
MARKER = "<!-- perfrun compare -->"
_MOST = 60_000  # characters; GitHub takes 65,536 in a comment
_ORDER: tuple[Verdict, ...] = ("slower", "faster", "undecided", "equivalent")
_WORDS = {"slower": "worse", "faster": "better"}
_MARKS = {"slower": "\U0001f534", "faster": "\U0001f7e2"}  # a red circle, a green one
_COLUMNS = (
    Column(heading="method"),
    Column(heading="metric"),
    Column(heading="base", right=True),
    Column(heading="new", right=True),
    Column(heading="new / base (95 %)"),
    Column(heading="verdict"),
)


def comment(
    found: Sequence[Comparison],
    differing: Sequence[Difference],
    notes: Sequence[str],
    words: Sequence[str],
) -> str:
    """Return the comment: the verdict, a table with what has changed first, and how to repeat it.

    `words` are those of the command line that made the comparison.
    """
    ordered = sorted(found, key=lambda one: _ORDER.index(one.verdict))
    count = len(ordered)
    while True:
        parts = [MARKER, f"### perfrun: {_verdict(found)}"]
        parts += [_table(ordered[:count])] if count else []
        if count < len(ordered):
            parts.append(f"{len(ordered) - count} more rows: `--format=json` has all of them.")
        parts += _list("What else differs", [one.text for one in differing], count)
        parts += _list("Notes", notes, count)
        parts += ["To repeat the comparison:", markdown_command(words)]
        text = "\n\n".join(parts) + "\n"
        if len(text) <= _MOST or not count:
            return text
        count = count * 3 // 4


def _verdict(found: Sequence[Comparison]) -> str:
    counts = Counter(one.verdict for one in found)
    texts = [
        f"{counts[verdict]} {_WORDS.get(verdict, verdict)}" for verdict in _ORDER if counts[verdict]
    ]
    first = "" if counts["slower"] else "nothing is worse: "
    return first + ", ".join(texts)


def _table(found: Sequence[Comparison]) -> str:
    rows = [
        (
            one.method,
            one.metric,
            value_text(one.base_median, one.metric),
            value_text(one.new_median, one.metric),
            _ratio(one),
            " ".join(filter(None, (_MARKS.get(one.verdict), verdict_text(one)))),
        )
        for one in found
    ]
    return markdown_text(Table(columns=_COLUMNS, rows=tuple(rows))).rstrip()


def _ratio(one: Comparison) -> str:
    if one.ratio is None:
        return "-"
    low, high = (one.interval.low, one.interval.high) if one.interval else (None, None)
    return ratio_text(one.ratio, low, high)


def _list(heading: str, texts: Sequence[str], most: int) -> list[str]:
    """Return a heading and its list, of at most so many lines and never fewer than ten."""
    if not texts:
        return []
    shown = texts[: max(most, 10)]
    rows = [f"- {markdown(text)}" for text in shown]
    if len(shown) < len(texts):
        rows.append(f"- {len(texts) - len(shown)} more")
    return [f"**{heading}**", "\n".join(rows)]
