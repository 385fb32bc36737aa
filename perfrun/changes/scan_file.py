"""What searches for changes have said of series, kept in a file beside the index.

The file may be deleted at any time. It counts as none when it is damaged, foreign, or of another
program, library or processor. What it says of a series holds for the very observations whose digest
it has. Of several commands at a time the last one's file stays: what others have judged meanwhile
is judged again.
"""

from __future__ import annotations

import contextlib
import importlib
import platform
from collections.abc import Iterator
from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from perfrun.analysis import kept_scans as analysis
from perfrun.analysis import noise, scan
from perfrun.analysis.kept_scans import ROWS, KeptScans, KnownScan
from perfrun.store.array_file import read_arrays, write_arrays

_FORMAT = "2"
_KEPT_DAYS = 30  # that a series is kept which nobody has searched
_SCANS = np.dtype(
    [("key", "V16"), ("digest", "V16"), ("count", "i8"), ("rows", "i8"), ("day", "i4")]
)


@contextlib.contextmanager
def kept_scans(path: Path | None) -> Iterator[KeptScans | None]:
    """Open the file at a path; write it anew when there was more to judge. None without a path."""
    by = method() if path is not None else ""
    if path is None or not by:
        yield None
        return
    today = date.today().toordinal()
    known, days = _load(path, by)
    kept = KeptScans(known)
    yield kept
    if kept.is_changed:
        days |= dict.fromkeys(kept.used, today)
        with contextlib.suppress(OSError):  # a folder that is full or read-only: judged again then
            _save(path, by, kept, days, today)


def _load(path: Path, by: str) -> tuple[dict[bytes, KnownScan], dict[bytes, int]]:
    found = read_arrays(path, {"scans": _SCANS, "rows": ROWS})
    if found is None or found["about"].tolist() != [_FORMAT, by]:
        return {}, {}
    scans, rows = found["scans"], found["rows"]
    counts, sizes = scans["count"], scans["rows"]
    if len(scans) and (min(counts.min(), sizes.min()) < 0 or sizes.max() > len(rows)):
        return {}, {}
    if sizes.sum() != len(rows) or not _is_sound(rows, np.repeat(counts, sizes)):
        return {}, {}
    ends = np.cumsum(sizes)
    columns = (
        (scans[name].tolist() for name in ("key", "digest", "count", "day")),
        (ends - sizes).tolist(),
        ends.tolist(),
    )
    (keys, digests, firsts, days), begins, lasts = columns
    parts = zip(keys, digests, firsts, begins, lasts, strict=True)
    known = {
        key: KnownScan(count, digest, rows[begin:end]) for key, digest, count, begin, end in parts
    }
    return known, dict(zip(keys, days, strict=True))


def _is_sound(rows: NDArray[Any], counts: NDArray[Any]) -> bool:
    """Return True for places within their series and probabilities."""
    places, splits = rows["place"], rows["splits"]
    within = (places >= 0) & (places < counts) & (splits >= 0) & (splits <= places)
    for name in ("p_values", "score_p_values", "energy_p_values"):
        within &= (rows[name] >= 0) & (rows[name] <= 1)  # false for what is no number
    return bool(within.all())


def _save(path: Path, by: str, kept: KeptScans, days: dict[bytes, int], today: int) -> None:
    held = [
        (key, own)
        for key, own in kept.known.items()
        if today - _KEPT_DAYS <= days.get(key, 0) <= today
    ]
    scans = np.array(
        [(key, own.digest, own.length, len(own.rows), days[key]) for key, own in held], _SCANS
    )
    rows = np.concatenate([np.empty(0, ROWS), *(own.rows for _, own in held)])
    write_arrays(path, (_FORMAT, by), {"scans": scans, "rows": rows})


def method() -> str:
    """Return what verdicts rest on besides observations: the program, its libraries, the processor.

    Another one gives other last digits, and what was kept is thrown away. '' where it is unknown.
    """
    digest = blake2b(digest_size=16)
    words = (np.__version__, scipy.__version__, platform.machine(), *_processor())
    digest.update("\0".join(words).encode())
    try:
        for file in (scan.__file__, noise.__file__, analysis.__file__):
            digest.update(Path(file).read_bytes())
    except OSError:  # the program lies in an archive
        return ""
    return digest.hexdigest()


def _processor() -> Iterator[str]:
    """Yield the instructions that numpy uses here."""
    for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
        try:
            features = importlib.import_module(name).__cpu_features__
        except (ImportError, AttributeError):
            continue
        yield from sorted(str(feature) for feature, is_there in features.items() if is_there)
        return
    yield platform.processor()
