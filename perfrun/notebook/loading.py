"""`perfrun.load`: results of a workspace, a folder, a summary or an index, for Python."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from perfrun.compare.selection import Notify, read_folder
from perfrun.compare.selection import Results as Choice
from perfrun.errors import UsageError
from perfrun.notebook.results import Results
from perfrun.options.store_address import parse_address
from perfrun.shown import line
from perfrun.summary.record import SummaryRecord
from perfrun.untrusted import Refused, opened

_SQLITE = b"SQLite format 3\0"  # begins such a file


def load(
    source: str | os.PathLike[str] = "workspace", selection: str | Sequence[str] | None = None
) -> Results:
    """Return results as trials that can be compared and made a data frame of.

    `source` is a workspace, an output folder, a result folder, a summary, the file of an index, or
    the address of a store (`postgresql+psycopg://USER@HOST/DATABASE`). `selection` chooses some of
    its results, in the words of `perfrun compare`: a run, label, execution id, commit, date,
    FROM..TO, baseline, or `last`; several words choose all of them together. Without it all results
    are read, and each summary is then in memory: choose, where there are ten thousands.

    Summaries that cannot be read are left out with a warning. Raises UsageError (a
    `perfrun.errors.PerfrunError`) when nothing is left or `source` is not there.
    """
    words = [selection] if isinstance(selection, str) else list(selection or ())
    notes: list[str] = []
    try:
        return Results(_chosen(os.fspath(source), words, notes.append))
    finally:
        for note in notes:
            warnings.warn(line(note), stacklevel=2)


def _chosen(name: str, words: Sequence[str], notify: Notify) -> Iterable[SummaryRecord]:
    is_address = "://" in name
    if not is_address and not Path(name).exists():
        raise UsageError(f"{name}: is not there; name a workspace, a folder, a summary or an index")
    if is_address or _is_index(Path(name)):
        return _of_index(name, words, notify)
    if not words:
        return read_folder(Path(name), notify)
    if not Path(name).is_dir():
        raise UsageError(f"{name}: is one summary; a selection chooses from a workspace")
    choice = Choice(Path(name), notify)
    return [record for word in words for record in choice.select(word)]


def _of_index(name: str, words: Sequence[str], notify: Notify) -> list[SummaryRecord]:
    from perfrun.store.index import open_store  # SQLAlchemy

    workspace = Path("workspace")  # nothing is written there: the address names another place
    address = parse_address(name, workspace)
    if address.file is not None and not address.file.exists():
        raise UsageError(f"{address.shown}: there is no such index")
    if words:
        choice = Choice(workspace, notify, name)
        return [record for word in words for record in choice.select(word)]
    with open_store(address) as store:
        found = list(store.trials())
    if not found:
        raise UsageError(f"{address.shown}: holds no results")
    return found


def _is_index(path: Path) -> bool:
    """Return True for a file of SQLite."""
    try:
        with opened(path.resolve()) as (number, _):
            return os.pread(number, len(_SQLITE), 0) == _SQLITE
    except (OSError, Refused):
        return False
