"""Keep what the scan of a series said, so that the next search judges only new observations.

`scan` judges an observation by itself and those before it, in its series and in no other. So what
it said holds for as long as the observations before stay the same and in the same order. What
depends on other series (the discoveries of a night, nights in which many changed, limits, canaries)
is decided anew in every search, from all that was said.

Of most observations there is nothing to be said. Those that no rule looks at are not kept; they
count as having a p-value of 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfrun.analysis.noise import MOST_BEFORE
from perfrun.analysis.scan import MOST_AFTER, ScanResult, SeriesToScan, scan_series

# No rule looks at an observation whose score has a larger p-value: an alarm needs 0.005, and the
# family of a night only those below its share of false discoveries (0.05), whatever the others are.
NOTED = 0.05
ROWS = np.dtype(
    [
        ("place", "i8"),  # counted in its series; the other columns are those of `ScanResult`
        ("p_values", "f8"),
        ("score_p_values", "f8"),
        ("energy_p_values", "f8"),
        ("separation", "?"),
        ("splits", "i8"),
    ]
)
_DIGEST_BYTES = 16
_READ_AROUND = MOST_BEFORE + MOST_AFTER  # observations before one that its verdict rests on


class KnownScan(NamedTuple):
    """What was said of the first observations of a series at one of its levels."""

    length: int  # the number of these observations
    digest: bytes  # of their logarithms, and which repeat the one before, in their order
    rows: NDArray[Any]  # `ROWS`, of those observations at which a rule looks


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A series to scan, what is known of it, and the first observation to judge."""

    one: SeriesToScan
    key: bytes
    known: KnownScan | None
    judged_from: int
    digest: bytes  # of all its observations


class KeptScans:
    """Scans series as `scan_series` does, and remembers what was said; that may be of a file."""

    def __init__(self, known: Mapping[bytes, KnownScan] | None = None) -> None:
        self.known = dict(known or {})
        self.used: set[bytes] = set()
        self.judged = 0  # observations, anew
        self.is_changed = False

    def scan(self, several: Sequence[SeriesToScan], names: Sequence[str]) -> ScanResult:
        """Judge the observations of series that have names; one named '' is not remembered."""
        asked = [self._asked(one, name) for one, name in zip(several, names, strict=True)]
        sizes = [len(one.logs) for one in several]
        begins = (np.cumsum(sizes) - sizes).astype(np.int64)
        result = ScanResult.of_nothing(sum(sizes))
        _enter_known(result, asked, begins)
        is_new = [own.judged_from < len(own.one.logs) for own in asked]
        new = [own for own, is_it in zip(asked, is_new, strict=True) if is_it]
        self.judged += sum(len(own.one.logs) - own.judged_from for own in new)
        if new:
            _enter_judged(result, new, begins[np.array(is_new)])
            self._remember(result, new, begins[np.array(is_new)])
        return result

    def _asked(self, one: SeriesToScan, name: str) -> _Asked:
        key, known = b"", None
        if name:
            key = _key(one, name)
            self.used.add(key)
            known = self.known.get(key)
        if known is not None and not one.since <= known.length <= len(one.logs):
            known = None
        first = one.since if known is None else known.length
        content = blake2b(_content(one, 0, first), digest_size=_DIGEST_BYTES)
        if known is not None and content.digest() != known.digest:
            known = None
        content.update(_content(one, first, len(one.logs)))
        since = one.since if known is None else first
        return _Asked(one=one, key=key, known=known, judged_from=since, digest=content.digest())

    def _remember(
        self, result: ScanResult, new: Sequence[_Asked], begins: NDArray[np.int64]
    ) -> None:
        noted = np.flatnonzero((result.score_p_values <= NOTED) | result.separation)
        rows = np.empty(len(noted), ROWS)
        for name, column in zip(ScanResult._fields, result, strict=True):
            rows[name] = column[noted]
        ends = begins + [len(own.one.logs) for own in new]
        firsts, lasts = noted.searchsorted(begins).tolist(), noted.searchsorted(ends).tolist()
        for own, begin, first, last in zip(new, begins.tolist(), firsts, lasts, strict=True):
            if own.key:
                some = rows[first:last]
                some["place"] = noted[first:last] - begin
                self.known[own.key] = KnownScan(len(own.one.logs), own.digest, some)
                self.is_changed = True


def _content(one: SeriesToScan, begin: int, end: int) -> bytes:
    """Return the observations from `begin` to `end`, each with whether it is a repeat."""
    rows = np.zeros((end - begin, 2))
    rows[:, 0] = one.logs[begin:end]
    if one.repeats is not None:
        rows[:, 1] = one.repeats[begin:end]
    return rows.tobytes()


def _key(one: SeriesToScan, name: str) -> bytes:
    """Return what the scans of a series at one of its levels have in common."""
    levels = one.levels[: one.start].tobytes()
    words = f"{name}\0{one.start}\0{one.since}\0".encode("utf-8", "surrogatepass")
    return blake2b(words + levels, digest_size=_DIGEST_BYTES).digest()


def _enter_known(result: ScanResult, asked: Sequence[_Asked], begins: NDArray[np.int64]) -> None:
    parts = [np.empty(0, ROWS) if own.known is None else own.known.rows for own in asked]
    rows = np.concatenate([np.empty(0, ROWS), *parts])
    at = rows["place"] + np.repeat(begins, [len(part) for part in parts])
    for name, column in zip(ScanResult._fields, result, strict=True):
        column[at] = rows[name]


def _enter_judged(result: ScanResult, new: Sequence[_Asked], begins: NDArray[np.int64]) -> None:
    tails = [_tail(own.one, own.judged_from) for own in new]
    found = scan_series(tails)
    # Where each tail begins, among all tails, and by how much it lies further on in the result.
    sizes = np.array([len(one.logs) for one in tails])
    firsts = np.cumsum(sizes) - sizes
    left_out = np.array([len(own.one.logs) for own in new]) - sizes
    counts = sizes - [one.since for one in tails]
    places = _ranges(firsts + sizes - counts, counts)
    moved = places + np.repeat(begins + left_out - firsts, counts)
    for column, own_column in zip(result, found, strict=True):
        column[moved] = own_column[places]
    result.splits[moved] += np.repeat(left_out, counts)


def _ranges(begins: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the whole numbers from each begin on, so many of each."""
    before = np.cumsum(counts) - counts
    ranges: NDArray[np.int64] = np.arange(counts.sum()) + np.repeat(begins - before, counts)
    return ranges


def _tail(one: SeriesToScan, since: int) -> SeriesToScan:
    """Return the end of a series, as much of it as the verdicts from `since` on rest on."""
    begin = max(0, since - _READ_AROUND)
    return SeriesToScan(
        one.logs[begin:],
        one.levels[begin:],
        max(0, one.start - begin),
        since - begin,
        None if one.repeats is None else one.repeats[begin:],
    )
