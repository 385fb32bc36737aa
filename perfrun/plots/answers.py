"""The answers of `perfrun ab` and `perfrun versus` as they lie in a workspace, for pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfrun.analysis.directions import direction_of, unit_of
from perfrun.compare.baselines import LAST
from perfrun.compare.selection import Results, exists
from perfrun.errors import UsageError
from perfrun.plots.data import MOST_RATIO, Bar, Paired, PairsData, VersusData, is_drawable
from perfrun.shown import cell, say
from perfrun.summary.metrics import WALL_TIME
from perfrun.summary.record import SummaryRecord, read_record
from perfrun.summary.series_identity import is_number, objects, section, text
from perfrun.untrusted import Refused, parse_json, read_file

_LIMIT_BYTES = 64 * 2**20
_MOST_FILES = 1000  # of a workspace that are looked through
_ARMS = ("a", "b")


def pairs(workspace: Path, word: str, metric: str | None = None) -> tuple[PairsData, ...]:
    """Return the pairs of an answer of `perfrun ab`, by method. Raises UsageError for none."""
    path, document = _answer(workspace / "ab", word, _is_ab, _by_trials(workspace, word))
    wanted = metric or WALL_TIME
    judged = objects(document.get("comparisons"))
    trials = objects(document.get("trials"))
    metrics = [text(one.get("metric")) for one in judged]
    if wanted not in metrics and metrics and not metric:
        wanted = metrics[0]
    methods = list(dict.fromkeys(text(one.get("method")) for one in trials))
    found = [
        made
        for method in methods
        if (made := _pairs_of(document, method, wanted, judged, trials)) is not None
    ]
    if not found:
        known = ", ".join(dict.fromkeys(cell(one) for one in metrics[:8])) or "none"
        raise UsageError(
            f"{path}: no pair of it has a ratio of {cell(wanted)}; metrics in it: {known} "
            "(--metric=NAME)"
        )
    return tuple(found)


def _is_ab(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("trials"), list) and "comparisons" in document


def _by_trials(workspace: Path, word: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return the test that an answer has trials that the word names, as a label or a date does."""

    def has(document: Mapping[str, Any]) -> bool:
        return any(
            text(one.get(arm)) in paths for one in objects(document.get("trials")) for arm in _ARMS
        )

    paths = {str(record.path) for record in _of_arms(workspace, word)}
    return has


def _of_arms(workspace: Path, word: str) -> Iterator[SummaryRecord]:
    if word == LAST or _is_path(word):
        return
    for arm in _ARMS:
        try:
            yield from Results(workspace / "ab" / arm, say).select(word)
        except UsageError:
            continue  # the other arm, or the name of a run, may have it


def _pairs_of(
    document: Mapping[str, Any],
    method: str,
    metric: str,
    judged: Sequence[Mapping[str, Any]],
    trials: Sequence[Mapping[str, Any]],
) -> PairsData | None:
    own = [
        one
        for one in judged
        if (text(one.get("method")), text(one.get("metric"))) == (method, metric)
    ]
    comparison = own[0] if own else {}
    decides = text(next((one.get("metric") for one in judged if one.get("method") == method), ""))
    found = []
    for one in trials:
        if text(one.get("method")) != method:
            continue
        records = [_record(one.get(arm)) for arm in _ARMS]
        values: Any = [record.values.get(metric) if record else None for record in records]
        if None in values and metric == decides:  # the summaries are gone; the answer is left
            values = one.get("values")
        number = one.get("pair")
        if not (isinstance(values, list) and len(values) == 2 and isinstance(number, int)):
            continue
        if all(is_number(value) and 0 < value < 1e300 for value in values):
            found.append(
                Paired(
                    number=number,
                    ratio=values[1] / values[0],
                    first="b" if one.get("first") == "b" else "a",
                    disturbed=any(record is not None and record.disturbed for record in records),
                )
            )
    found = [one for one in found if _is_ratio(one.ratio)]
    if not found:
        return None
    ends = [_positive(comparison.get(key)) for key in ("ratio", "low", "high")]
    ratio, low, high = (end if end is not None and _is_ratio(end) else None for end in ends)
    return PairsData(
        method=method,
        metric=metric,
        about=tuple(_differences(document)),
        pairs=tuple(sorted(found, key=lambda one: one.number)),
        ratio=ratio,
        low=low,
        high=high,
        verdict=text(comparison.get("verdict")),
        direction=direction_of(metric),
    )


def _is_ratio(ratio: float) -> bool:
    return 1 / MOST_RATIO < ratio < MOST_RATIO


def _record(path: Any) -> SummaryRecord | None:
    try:
        return read_record(Path(text(path)))
    except (OSError, ValueError):
        return None


def _positive(value: Any) -> float | None:
    return float(value) if is_number(value) and value > 0 and is_drawable(value) else None


def _differences(document: Mapping[str, Any]) -> Iterator[str]:
    for one in objects(document.get("environment_differences"))[:3]:
        yield text(one.get("text"))


def versus(workspace: Path, word: str, metric: str | None = None) -> tuple[VersusData, ...]:
    """Return the figures of a comparison of frameworks, by platform. Raises UsageError for none."""
    from perfrun.versus.saved_comparison import is_comparison, saved_comparison

    path, document = _answer(workspace / "versus", word, is_comparison, lambda _: False)
    saved = saved_comparison(path, document)
    names = list(dict.fromkeys(name for cell_ in saved.cells for name in cell_.figures))
    wanted = metric or "latency_s"
    if wanted not in names:
        known = ", ".join(cell(one) for one in names) or "none"
        raise UsageError(
            f"{path}: it has no {cell(wanted)}; figures in it: {known} (--metric=NAME)"
        )
    cases: dict[str, list[Bar]] = {}
    for one in saved.cells:
        found = one.figures.get(wanted)
        value = found.median if found and is_number(found.median) else None
        cases.setdefault(f"{one.case.phase}, batch {one.case.batch_size}", []).append(
            Bar(
                label=text(one.label),
                value=value if value is not None and value >= 0 and is_drawable(value) else None,
                low=_positive(found.low) if found else None,
                high=_positive(found.high) if found else None,
                failure=text(one.failure or ""),
            )
        )
    model = text(saved.model) if saved.model else ""
    machine = text(section({"machine": saved.machine}, "machine").get("cpu_model"))
    data = VersusData(
        title=f"perfrun versus: {model}" if model else "perfrun versus",
        metric=wanted,
        unit=unit_of(wanted),
        direction=direction_of(wanted),
        about=(saved.platform_name, machine),
        cases={case: tuple(bars) for case, bars in cases.items()},
    )
    return (data,)


def _is_path(word: str) -> bool:
    return bool(word) and exists(Path(word))


def _answer(
    folder: Path,
    word: str,
    is_one: Callable[[Mapping[str, Any]], bool],
    is_chosen: Callable[[Mapping[str, Any]], bool],
) -> tuple[Path, Mapping[str, Any]]:
    """Return the newest answer that a word names, and its file.

    The word is `last`, a file, a folder of such files, a workspace, a run of one of the arms, or
    what chooses its trials.
    """
    place = Path(word)
    if _is_path(word):
        if place.is_file():
            document = _document(place)
            if document is None or not is_one(document):
                raise UsageError(f"{place}: was not written by `perfrun {folder.name}`")
            return place.resolve(), document
        folder = place / folder.name if (place / folder.name).is_dir() else place
        word = LAST
    if word == f"run:{LAST}":
        word = LAST
    found = 0
    for path in _newest_first(folder):
        document = _document(path)
        if document is None or not is_one(document):
            continue
        found += 1
        if word == LAST or _has_run(document, path, word.removeprefix("run:")):
            return path, document
        if is_chosen(document):
            return path, document
    if not found:
        raise UsageError(f"{folder}: holds no answer of `perfrun {folder.name}`")
    raise UsageError(
        f"{cell(word)!r} names none of the answers of `perfrun {folder.name}` in {folder}: say "
        "last, a run, or the file"
    )


def _newest_first(folder: Path) -> list[Path]:
    try:
        paths = [path for path in folder.iterdir() if path.suffix == ".json"]
    except OSError:
        return []
    return sorted(paths, key=lambda path: path.name, reverse=True)[:_MOST_FILES]


def _document(path: Path) -> Mapping[str, Any] | None:
    try:
        document = parse_json(read_file(path.resolve(), _LIMIT_BYTES))
    except (OSError, Refused):
        return None
    return document if isinstance(document, dict) else None


def _has_run(document: Mapping[str, Any], path: Path, word: str) -> bool:
    run_ids = document.get("run_ids")
    runs = run_ids.values() if isinstance(run_ids, dict) else ()
    own = [run for one in objects(document.get("contenders")) for run in _runs(one)]
    return word in (path.stem, *runs, *own)


def _runs(contender: Mapping[str, Any]) -> Sequence[Any]:
    runs = contender.get("run_ids")
    return list(runs.values()) if isinstance(runs, dict) else []
