"""The result that is to be replayed: its plan, and the hashes of its data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfrun.compare.one_result import Asked
from perfrun.errors import UsageError
from perfrun.options.command_line import parse
from perfrun.options.plan import RunPlan
from perfrun.summary.reconstruction import reconstruct
from perfrun.summary.record import SummaryRecord
from perfrun.summary.series_identity import objects, section, text

_SHA256_DIGITS = 64


def recorded_sha256(record: SummaryRecord, root: str, relative_path: str) -> str:
    """Return the SHA-256 of a file of data as it is on record; empty when it is not known.

    The whole path decides. Where no path is the whole one, the file that alone has its end does.
    """
    rows = objects(section(record.document, "perfrun").get("data"))
    place = str(Path(root) / relative_path)
    own = [one for one in rows if text(one.get("path")) == place]
    alike = [one for one in rows if text(one.get("path")).endswith(f"/{relative_path}")]
    sums = {text(one.get("sha256")) for one in own or alike}
    found = sums.pop() if len(sums) == 1 else ""
    return found if len(found) == _SHA256_DIGITS else ""


def plan_of(
    asked: Asked,
    place: Path,
    trials: int = 1,
    *,
    more: Sequence[str] = (),
    without: Sequence[str] = (),
) -> RunPlan:
    """Return the plan that runs the trial again, with its results in `place`.

    `more` are flags in the place of those named in `without`. Raises UsageError for what is not on
    record.
    """
    made = reconstruct(asked.record.document)
    if made.lost:
        raise UsageError(f"{asked.record.path}: not on record: {'; '.join(made.lost)}")
    kept = [word for word in made.words if not word.startswith(tuple(f"--{n}=" for n in without))]
    after = ("--", *made.benchmark_flags) if made.benchmark_flags else ()
    return parse(
        [
            *kept,
            *more,
            f"--workspace={place}",
            f"--benchmark_methods={asked.record.method}",
            f"--benchmark_num_trials={trials}",
            "--execution_label=replay",
            *after,
        ]
    )
