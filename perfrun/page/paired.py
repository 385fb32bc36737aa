"""Paired trials of two builds: those of `perfrun ab`, and those that confirmed a change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfrun import schema
from perfrun.page.document import ChangeShown, PairsShown
from perfrun.page.kept_documents import names_in, read_checked
from perfrun.page.packed import packed
from perfrun.summary.record import SUMMARY, SummaryRecord, parse_record, read_content
from perfrun.summary.series_identity import section

_MOST_FILES = 20  # comparisons by `perfrun ab`, the newest
_MOST_SHOWN = 30
_MOST_PAIRS = 200  # of a plot
_MOST_TRIALS = 4000  # of an arm that are looked at, the newest
_figure = schema.maybe(schema.number(0, 1e300))
_COMPARISON = schema.table(
    {
        "method": schema.text(),
        "metric": schema.text(),
        "ratio": _figure,
        "low": _figure,
        "high": _figure,
        "verdict": schema.text(),
    },
    needs=("method", "metric"),
    absent={"ratio": None, "low": None, "high": None, "verdict": ""},
)
_TRIAL = schema.table(
    {"method": schema.text(), "values": schema.maybe(schema.listed(schema.number(), 2))},
    needs=("method",),
    absent={"values": None},
)
_AB = schema.table(
    {
        "comparisons": schema.listed(_COMPARISON, 1000),
        "trials": schema.listed(_TRIAL, 100_000),
    },
    absent={"comparisons": [], "trials": []},
)


def ab_pairs(workspace: Path) -> Iterator[PairsShown]:
    """Yield the pairs of the last calls of `perfrun ab`, with the metric that decided."""
    folder = workspace / "ab"
    files = [name for name in names_in(folder) if name.endswith(".json")]
    for name in sorted(files, reverse=True)[:_MOST_FILES]:
        document = read_checked(folder, name, _AB)
        if document is None:
            continue
        decided: dict[str, Mapping[str, Any]] = {}
        for one in document["comparisons"]:  # the first of a method is of the deciding metric
            decided.setdefault(one["method"], one)
        for method, found in decided.items():
            values = [one["values"] for one in document["trials"] if one["method"] == method]
            pairs = [(both[0], both[1]) for both in values if both and len(both) == 2]
            if pairs:
                title = f"a against b: {found['verdict'] or 'undecided'}, run {name[:-5]}"
                yield _shown(method, found["metric"], title, pairs, found)


def _shown(
    method: str,
    metric: str,
    title: str,
    pairs: Sequence[tuple[float, float]],
    judged: Mapping[str, Any],
) -> PairsShown:
    return PairsShown(
        series=None,
        method=method,
        metric=metric,
        title=title,
        base=packed([a for a, _ in pairs[:_MOST_PAIRS]]),
        new=packed([b for _, b in pairs[:_MOST_PAIRS]]),
        ratio=judged["ratio"],
        low=judged["low"],
        high=judged["high"],
    )


def confirming_pairs(
    workspace: Path, changes: Iterable[tuple[ChangeShown, str, Mapping[str, Any]]]
) -> Iterator[PairsShown]:
    """Yield the pairs that decided about changes, given with their methods and confirmations.

    The arms are ordinary runs with one seed; a pair has one number in both.
    """
    wanted = {(method, change.metric) for change, method, _ in changes}
    if not wanted:
        return
    arms = [_trials(workspace / "ab" / name, f"confirm/{name}", wanted) for name in "ab"]
    for change, method, judged in changes:
        runs = [_values(arm, method, change.metric) for arm in arms]
        pairs = _matching(runs[0], runs[1], judged.get("pairs") or 0)
        if pairs:
            title = f"{method}: before against after {change.night}, {change.status}"
            yield _shown(method, change.metric, title, pairs, judged)


_Values = dict[tuple[Any, int], tuple[float, float]]  # seed and number: time, value


def _trials(workspace: Path, label: str, wanted: Iterable[tuple[str, str]]) -> list[SummaryRecord]:
    methods = {method for method, _ in wanted}
    # Only those that name one are taken apart; what is not ASCII may be written in several ways.
    names = [json.dumps(method)[1:-1].encode() for method in methods if method.isascii()]
    is_plain = len(names) == len(methods)
    output = workspace / "output"
    found = []
    for name in names_in(output)[-_MOST_TRIALS:]:
        try:
            content = read_content(output / name / SUMMARY)
            if is_plain and not any(one in content for one in names):
                continue
            record = parse_record(content, output / name / SUMMARY)
        except (OSError, ValueError):
            continue
        if record.label == label and record.method in methods:
            found.append(record)
    return found


def _values(arm: Sequence[SummaryRecord], method: str, metric: str) -> _Values:
    found: _Values = {}
    for record in arm:
        value = record.values.get(metric)
        seed = section(section(record.document, "perfrun"), "order").get("seed")
        if record.method == method and value is not None and isinstance(seed, int):
            found[seed, record.trial_id] = (record.timestamp, value)
    return found


def _matching(base: _Values, new: _Values, wanted: int) -> list[tuple[float, float]]:
    """Return the pairs of the newest run that has as many as the confirmation says."""
    runs: dict[Any, list[tuple[float, float, float]]] = {}
    for key in sorted(base.keys() & new.keys(), key=lambda key: key[1]):
        (time, a), (_, b) = base[key], new[key]
        runs.setdefault(key[0], []).append((time, a, b))
    fitting = [own for own in runs.values() if len(own) == wanted]
    newest = max(fitting, key=lambda own: own[0][0], default=[])
    return [(a, b) for _, a, b in newest]
