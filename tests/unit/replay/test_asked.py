"""What a summary says of the data of its trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfrun.replay.asked import recorded_sha256
from perfrun.summary.record import SummaryRecord, record_of

DIGITS = {"/data/sub/x.csv": "1" * 64, "/data/x.csv": "2" * 64, "/data/y/z.csv": "3" * 64}


@pytest.fixture
def record() -> SummaryRecord:
    rows = [{"path": path, "sha256": digits} for path, digits in DIGITS.items()]
    rows.append({"path": "/data/folder", "sha256": None})
    result = {"name": "m.C.f", "wall_time": 1.0}
    ids = {"execution_id": "1", "execution_timestamp": 1.0}
    document = {**ids, "benchmark_result": result, "perfrun": {"data": rows}}
    return record_of(document, Path("summary.json"))


@pytest.mark.parametrize(
    ("root", "path", "digit"),
    [
        ("/data", "sub/x.csv", "1"),
        ("/data", "x.csv", "2"),  # not of the file whose path has the same end
        ("/other", "z.csv", "3"),
        ("/other", "x.csv", ""),  # one of two
        ("/data", "folder", ""),
        ("/data", "w.csv", ""),
    ],
)
def test_the_whole_path_decides_which_file_of_data_it_is(
    record: SummaryRecord, root: str, path: str, digit: str
) -> None:
    assert recorded_sha256(record, root, path) == digit * 64
