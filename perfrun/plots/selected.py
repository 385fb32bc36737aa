"""What a word of the command line selects: the histories or the trials of methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from perfrun.compare.selection import Results, each_of_folder
from perfrun.errors import UsageError
from perfrun.options.parsers import parse_workspace
from perfrun.options.store_address import parse_address
from perfrun.plots.data import HistoryData
from perfrun.plots.histories import histories
from perfrun.shown import cell, say
from perfrun.store.command import bring_up_to_date, opened
from perfrun.summary.record import SummaryRecord, read_record

if TYPE_CHECKING:
    from perfrun.store.index import Store

_MOST_NAMES = 8
_MOST_LOOKED_AT = 50  # trials of a method, some of which may have no samples
Data = TypeVar("Data")


def selected_histories(given: Any, metric: str) -> tuple[HistoryData, ...]:
    """Return the histories of a metric. Raises UsageError where there is none.

    A method's name selects its history, a folder the histories of the summaries in it, and any
    other word those of the methods of the trials that it selects.
    """
    word = given.selection
    clones = dict(given.clone)
    if _is_folder(word):
        return _of_folder(Path(word), metric, clones)
    with opened(given) as store:
        bring_up_to_date(store, given)
        found = histories(store, word, metric, clones) if "." in word or "*" in word else ()
        if not found:
            found = _of_trials(store, given, metric, clones)
    return found


def _is_folder(word: str) -> bool:
    try:
        return bool(word) and Path(word).exists()
    except (OSError, ValueError):
        return False


def _of_folder(folder: Path, metric: str, clones: dict[str, Path]) -> tuple[HistoryData, ...]:
    """Read the folder into an index that is gone afterwards: nothing is written into the folder."""
    from perfrun.store.index import open_store

    with TemporaryDirectory(prefix="perfrun-plot-") as place:
        address = parse_address(str(Path(place) / "index.sqlite"), folder)
        with open_store(address) as store:
            store.refresh([folder.absolute()])
            methods = sorted({one.method for one in each_of_folder(folder, say)})
            return _of_methods(store, methods, metric, clones, str(folder))


def _of_trials(
    store: Store, given: Any, metric: str, clones: dict[str, Path]
) -> tuple[HistoryData, ...]:
    is_method = any(True for _ in store.series(given.selection))
    if is_method:
        methods = [given.selection]
    else:
        workspace = parse_workspace(given.workspace)
        records = Results(workspace, say, given.store).select(given.selection)
        methods = sorted({one.method for one in records})
    return _of_methods(store, methods, metric, clones, store.address.shown)


def _of_methods(
    store: Store, methods: list[str], metric: str, clones: dict[str, Path], where: str
) -> tuple[HistoryData, ...]:
    found = [one for method in methods for one in histories(store, method, metric, clones)]
    if not found:
        others = {one.key.metric for method in methods for one in store.series(method)}
        known = ", ".join(cell(one) for one in sorted(others)[:_MOST_NAMES]) or "no metric"
        more = f", and {len(others) - _MOST_NAMES} more" if len(others) > _MOST_NAMES else ""
        raise UsageError(
            f"{where}: its results have no {cell(metric)}; they have {known}{more} (--metric=NAME)"
        )
    return tuple(found)


def selected_trials(given: Any) -> tuple[SummaryRecord, ...]:
    """Return the trials of a method, or those that another word selects, the oldest first.

    Those of a method are as the index has them. Raises UsageError where there is none.
    """
    word = given.selection
    found: tuple[SummaryRecord, ...] = ()
    if ("." in word or "*" in word) and not _is_folder(word):
        from perfrun.store.query import Selector

        with opened(given) as store:
            bring_up_to_date(store, given)
            found = tuple(store.trials(Selector(methods=(word,))))
    if not found:
        found = Results(parse_workspace(given.workspace), say, given.store).select(word)
    return tuple(sorted(found, key=lambda one: (one.timestamp, one.execution_id)))


def newest_of_each(
    records: Sequence[SummaryRecord],
    data_of: Callable[[SummaryRecord], Data],
    most: int,
    most_methods: int,
) -> list[Data]:
    """Return the data of the newest trials of each method, at most so many, the oldest first.

    Once so many methods have data, no summary of another is read. `data_of` raises UsageError for a
    trial without the data. Raises its error where all are.
    """
    methods: dict[str, list[SummaryRecord]] = {}
    for one in records:
        methods.setdefault(one.method, []).append(one)
    found: list[Data] = []
    lacking: list[UsageError] = []
    with_data = 0
    for own in methods.values():
        if with_data == most_methods:
            say(
                f"{len(methods)} methods are there; the first {most_methods} with data are drawn: "
                "select fewer"
            )
            break
        drawn: list[Data] = []
        looked_at = own[::-1][:_MOST_LOOKED_AT]
        for one in looked_at:
            if len(drawn) == most:
                break
            try:
                drawn.append(data_of(read_again(one)))
            except UsageError as error:
                lacking.append(error)
        if drawn and len(own) > len(drawn):
            say(f"{cell(own[0].method)}: {len(drawn)} of {len(own)} trials are drawn, the newest")
        with_data += bool(drawn)
        found += drawn[::-1]
    if not found:
        raise lacking[0]
    return found


def read_again(record: SummaryRecord) -> SummaryRecord:
    """Return a trial from its summary, which has more than the index, where that is at hand."""
    try:
        again = read_record(record.path)
    except (OSError, ValueError):
        return record
    return again if again.uid == record.uid else record
