"""One bad record: it is left out with a line that names it, and every command goes on."""

from __future__ import annotations

import copy
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nested import nest

from perfrun.benchmark import main
from perfrun.compare.differences import damage, differences, mixtures
from perfrun.exchange import rows
from perfrun.exchange.rows import write as write_rows
from perfrun.nightly.junit import junit
from perfrun.nightly.markdown import markdown
from perfrun.nightly.openmetrics import openmetrics
from perfrun.nightly.prune import bytes_in, remove, remove_tree
from perfrun.nightly.report import gather, report_document
from perfrun.nightly.suite import Night, UnitDone, units
from perfrun.nightly.suite_file import read_suite
from perfrun.nightly.units import _from_report
from perfrun.show.run_again import run_again
from perfrun.show.screen import screen
from perfrun.show.view import view
from perfrun.shown import page
from perfrun.store.writing import rows_of
from perfrun.summary.record import BadSummary, parse_record
from perfrun.worker.modules import modules_in
from tests.attack.bad_summaries import FIELDS, VALUES, text_of, whole, with_value

GOOD = 4  # trials of each side that can be compared
SUMMARY = "perfzero_summary.json"
COMMANDS = {
    "index": ["index"],
    "index, as JSON": ["index", "--format=json"],
    "history": ["history", "pkg.cases.Cases.spin"],
    "history of everything, as JSON": ["history", "*", "--metric=*", "--format=json"],
    "detect": ["detect"],
    "compare": ["compare", "run:base", "run:new", "--allow_different=hardware,driver,batch_size"],
    "compare folders": ["compare", "{}/base", "{}/new", "--format=json"],
    "prune": ["prune", "--keep_per_series=1", "--dry_run"],
    "export": ["export", "--format=bmf", "run:new"],
    "export as a table": ["export", "--csv=-"],
    "plot": ["plot", "history", "pkg.cases.Cases.spin"],
    "plot a folder": ["plot", "history", "{}"],
    "show": ["show", "last"],
    "show everything, as JSON": ["show", "{}", "--format=json"],
    "report": ["report", "--output={}/page.html"],
    "report of a folder": ["report", "{}/base", "run:new", "--output=-"],
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_summary_with_any_value_in_any_field_is_a_record_or_says_why_not(field: str) -> None:
    good = parse_record(text_of(whole()).encode(), Path("good"))
    for value in VALUES.values():
        content = text_of(with_value(field, value)).encode()
        try:
            record = parse_record(content, Path("bad"))
        except BadSummary as error:
            assert len(error.line) < 300  # noqa: PT017 - both are right
            continue
        row = json.dumps(rows_of(record).trial, allow_nan=False)
        row.encode()
        assert "\\ud800" not in row  # no database would take it
        shown = screen(view(record), run_again(record, Path("ws").absolute()), blocks=True)
        assert all(one.isprintable() for one in page(shown).splitlines())
        for form in ("csv", "json"):
            write_rows(form, rows.rows_of([record], None), io.BytesIO())
        if damage(record) is None:
            differences([good], [record])
            mixtures([good, record])


@pytest.mark.parametrize(
    "content",
    [
        b'{"x": "\xed\xa0\x80"}',
        json.dumps(whole()).replace('"nightly"', '"\\ud800"').encode(),
        json.dumps(whole()).replace('"nightly"', '"\\ud800"').encode("utf-16"),
        json.dumps(whole()).replace("1795255200.0", "9" * 4000).encode(),
        b"[" * 10**6,
        b'{"perfrun":' * 5000,
        b"\0" * 1000,
    ],
    ids=["bytes", "an escape", "UTF-16", "4,000 digits", "lists", "objects", "zeros"],
)
def test_a_text_that_is_hardly_json_is_a_record_or_says_why_not(content: bytes) -> None:
    try:
        record = parse_record(content, Path("bad"))
    except BadSummary as error:
        assert "\n" not in error.line  # noqa: PT017 - both are right
    else:
        assert "\ud800" not in record.label


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workspace with good trials of two runs, and every bad one between them."""
    workspace = tmp_path_factory.mktemp("bad")
    output = workspace / "output"
    number = 0

    def put(document: Any, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / SUMMARY).write_text(text_of(document))

    for run in ("base", "new"):
        for _ in range(GOOD):
            number += 1
            document = copy.deepcopy(whole(number))
            document["perfrun"]["run_id"] = run
            put(document, output / f"good-{number}")
            put(document, workspace / run / f"good-{number}")
    for field in FIELDS[::2]:
        for name in ("a number of 400 digits", "half of a surrogate pair", "a list of lists"):
            number += 1
            document = with_value(field, VALUES[name], number)
            if field != "perfrun" and isinstance(document["perfrun"], dict):
                document["perfrun"].setdefault("run_id", "bad")
            put(document, output / f"bad-{number}")
    specials = ("fifo", "folder", "zero", "socket", "sparse", "dangling", "loop", "empty")
    for run in ("base", "new"):
        for kind in specials:
            for place in (output / f"{run}-{kind}", workspace / run / kind):
                place.mkdir()
                _special(kind, place / SUMMARY)
    (output / "deep").mkdir()
    (output / "deep" / SUMMARY).write_text('{"perfrun":' * 3000)
    (output / f"name\n{chr(27)}[2J").mkdir()
    (output / f"name\n{chr(27)}[2J" / SUMMARY).write_text("no JSON")
    yield workspace
    remove_tree(workspace)


def _special(kind: str, path: Path) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        here = Path.cwd()
        os.chdir(path.parent)  # the path of a socket is short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
        os.chdir(here)
    elif kind == "sparse":
        path.touch()
        os.truncate(path, 2**42)
    elif kind == "dangling":
        path.symlink_to("nothing")
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        path.touch()


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS.keys())
def test_every_command_goes_on_over_bad_records(
    words: list[str], results: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = [word.format(results) for word in words]
    status = main([*asked, f"--workspace={results}"])
    found = capfd.readouterr()
    if words[0] == "detect":  # no series has the nights that it takes, which is no green result
        assert status == 2
        assert "detect: no series could be judged" in found.err
    else:
        assert status in (0, 1), found.err
    assert "Traceback" not in found.err + found.out
    assert all(line.startswith("perfrun: ") for line in found.err.splitlines())
    assert all(len(line) < 5000 for line in found.err.splitlines())
    if words[0] == "index":
        assert found.err.count(" is left out: ") > 50
        assert "fifo" in found.err
        assert "integer of more than 64 bits" in found.err
    if words[0] == "history" and "--metric=*" not in words:
        assert found.out.count("good-") == 2 * GOOD
    if words[0] == "compare":
        assert "wall_time" in found.out


def test_the_report_of_a_night_goes_on_over_bad_records(results: Path) -> None:
    path = results / "suite.toml"
    path.write_text(
        f'name = "night"\nworkspace = "{results}"\n[[environments]]\nname = "here"\n'
        f'python = "{sys.executable}"\n[[methods]]\nname = "pkg.cases.Cases.spin"\n'
    )
    suite = read_suite(path)
    summaries = tuple(str(p / SUMMARY) for p in sorted((results / "output").iterdir()))
    (unit,) = units(suite)
    night = Night(
        night="night-1", suite="night", digest="", begun=1.0, deadline=None,
        units={unit.name: UnitDone(summaries=summaries)},
    )  # fmt: skip
    report = gather(suite, night, 2.0, (), ())
    assert any(method.method == "pkg.cases.Cases.spin" for method in report.methods)
    assert sum(" is left out: " in note for note in report.notes) > 50
    for text in (markdown(report), junit(report), openmetrics(report)):
        text.encode()  # a surrogate ended the night here, and each night after it
    json.dumps(report_document(report))


@pytest.mark.parametrize("text", ["", "[]", '{"results": 5}', '{"results": [[]]}', "[" * 100_000])
def test_the_report_of_a_run_that_makes_no_sense_is_an_error_of_that_run(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "report.json").write_text(text)
    done = _from_report(tmp_path / "report.json")
    assert done.error is not None
    assert "cannot be read" in done.error


@pytest.mark.parametrize("levels", [900, 1500, 5000])
def test_prune_removes_folders_however_deep_they_are(levels: int, tmp_path: Path) -> None:
    folder = tmp_path / "output" / "deep"
    (folder / "beside").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path)
    (folder / "beside" / "big").write_bytes(b"x" * 100_000)
    nest(folder, levels, "ddd")
    assert bytes_in(folder) >= 100_000
    removed, failures = remove(tmp_path, [folder])
    assert (removed, failures) == ([folder], [])
    assert [path.name for path in tmp_path.iterdir()] == ["output"]
    assert list((tmp_path / "output").iterdir()) == []


def test_prune_goes_on_where_another_was_killed(tmp_path: Path) -> None:
    for name in (".pruned", ".pruned-1234"):
        (tmp_path / name).mkdir()
        nest(tmp_path / name, 20)
    assert remove(tmp_path, []) == ([], [])
    assert list(tmp_path.iterdir()) == []


def test_a_repository_cannot_hold_up_the_list_of_its_benchmarks(tmp_path: Path) -> None:
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    (tmp_path / "loop.py").symlink_to("loop.py")
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "sparse.py").touch()
    os.truncate(tmp_path / "sparse.py", 2**40)
    for number in range(1500):  # each file derives its class from the next one's
        text = (
            f"from chain{number + 1} import C{number + 1}\nclass C{number}(C{number + 1}): pass\n"
        )
        (tmp_path / f"chain{number}.py").write_text(text)
    (tmp_path / "spaces.py").write_text("class x(" * 50_000 + "from . import " * 50_000)
    nest(tmp_path, 1200, "ddd")
    (tmp_path / "good.py").write_text("class GoodBenchmark:\n    def report_benchmark(self): ...\n")
    (tmp_path / "linked.py").symlink_to("good.py")  # as repositories do
    assert modules_in(str(tmp_path), []) == ["good", "linked"]
    done = subprocess.run(
        [sys.executable, "-m", "perfrun", "list", f"--python_path={tmp_path}",
         f"--workspace={tmp_path / 'w'}", "good"],
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    remove_tree(tmp_path / "ddd")
