"""Rows that a trial wrote: alike on both sides, and never believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfrun.explain.code_changes import SourceFile, code_changes
from perfrun.explain.profile_rows import NoRows, ProfileRow, Reading, RowKey, keyed, reading_of
from perfrun.summary.document import Status, TrialResult
from perfrun.worker.profilers.profile_recorder import MOST_ROWS


def trial(folder: Path, rows: Any, steps: Any = 10) -> TrialResult:
    """A profile trial that left these rows."""
    (folder / "profile").mkdir(exist_ok=True)
    text = rows if isinstance(rows, str) else json.dumps(rows)
    (folder / "profile" / "rows.json").write_text(text, encoding="utf-8")
    profile = {"tool": "cProfile", "windows": [{"steps": steps}], "notes": [], "error": None}
    own = {"profiles": [profile], "outcome": {"reason": None}, "order": {"profile": "cprofile"}}
    return TrialResult(
        name="m",
        trial_id=1,
        status=Status.PASSED,
        summary=str(folder / "profile_summary.json"),
        document={"perfrun": own},
    )


def test_figures_are_those_of_one_step(tmp_path: Path) -> None:
    said = {"name": "f", "where": "/r/a.py:7", "calls": 20, "self_s": 5.0}
    said["native"] = [["<built-in method sum>", 40, 1.0]]
    [row] = reading_of("cprofile", trial(tmp_path, [said])).rows
    assert (row.value, row.calls, row.line) == (0.5, 2.0, 7)
    assert row.native == (("<built-in method sum>", 4.0, 0.1),)
    [whole] = reading_of("cprofile", trial(tmp_path, [said], steps=None)).rows
    assert whole.value == 5.0


def test_operators_are_compared_by_the_best_figure_that_all_of_them_have(tmp_path: Path) -> None:
    one = {"name": "mm", "calls": 10, "self_s": 9.0, "median_s": 5.0}
    for rows, figure, value in (
        ([one], "median_s", 0.5),
        ([one, {"name": "exp", "self_s": 1.0}], "self_s", 0.9),
        ([{**one, "device_s": 2.0}], "device_s", 0.2),
    ):
        reading = reading_of("torch", trial(tmp_path, rows))
        assert (reading.figure, reading.rows[0].value) == (figure, value)


@pytest.mark.parametrize(
    "said",
    [
        {"name": "f"},
        {"name": 7, "self_s": 1.0},
        {"name": "f", "self_s": "1.0"},
        {"name": "f", "self_s": True},
        {"name": "f", "self_s": -1.0},
        {"name": "f", "self_s": float("nan")},
        {"name": "f", "self_s": float("inf")},
        "f",
        None,
    ],
)
def test_what_is_no_row_is_none(tmp_path: Path, said: Any) -> None:
    good = {"name": "g", "where": 7, "self_s": 1.0, "native": [["x", "y", 1], 3], "calls": None}
    found = reading_of("cprofile", trial(tmp_path, [said, good])).rows
    assert [row.name for row in found] == ["g"]
    assert found[0].native == ()


@pytest.mark.parametrize("content", ["{", "[" * 5000, ""])
def test_a_file_that_is_no_json_is_a_profile_without_rows(tmp_path: Path, content: str) -> None:
    with pytest.raises(NoRows, match="its rows cannot be read"):
        reading_of("cprofile", trial(tmp_path, content))
    assert reading_of("cprofile", trial(tmp_path, '"rows"')).rows == ()


def test_neither_links_nor_too_many_rows_nor_long_names_are_taken(tmp_path: Path) -> None:
    many = [{"name": "f" * 1000, "self_s": 1.0}] * (MOST_ROWS + 5)
    found = reading_of("cprofile", trial(tmp_path, many)).rows
    assert len(found) == MOST_ROWS
    assert len(found[0].name) <= 300
    (tmp_path / "secret").write_text('[{"name": "secret", "self_s": 1}]', encoding="utf-8")
    (tmp_path / "profile" / "rows.json").unlink()
    (tmp_path / "profile" / "rows.json").symlink_to(tmp_path / "secret")
    result = trial_again(tmp_path)
    with pytest.raises(NoRows):
        reading_of("cprofile", result)


def trial_again(folder: Path) -> TrialResult:
    """The result of a trial whose files lie there already."""
    link = folder / "profile" / "rows.json"
    target = link.readlink()
    link.unlink()
    made = trial(folder, [])
    link.unlink()
    link.symlink_to(target)
    return made


def reading(*rows: tuple[str, str, int, float]) -> Reading:
    made = tuple(
        ProfileRow(name=name, path=path, line=line, value=value, calls=1.0)
        for name, path, line, value in rows
    )
    return Reading(tool="t", unit="s", figure="self_s", is_per_step=True, rows=made, notes=())


def test_a_function_is_the_same_in_another_checkout_and_on_another_line() -> None:
    base = reading(("f", "/a/site/r/m.py", 3, 1.0), ("g", "/x/lib/python3.11/json/d.py", 9, 1.0))
    new = reading(("f", "/b/site/r/m.py", 8, 2.0), ("g", "/y/lib/python3.12/json/d.py", 4, 1.0))
    sides = keyed([[base], [new]], [["/a/site"], ["/b/site"]])
    assert (
        sides[0][0].keys()
        == sides[1][0].keys()
        == {RowKey("f", "r/m.py"), RowKey("g", "json/d.py")}
    )
    assert sides[1][0][RowKey("f", "r/m.py")].value == 2.0


def test_functions_of_one_name_are_told_apart_only_where_both_sides_have_as_many() -> None:
    two = reading(("f", "/r/m.py", 3, 1.0), ("f", "/r/m.py", 9, 4.0))
    moved = reading(("f", "/r/m.py", 5, 1.0), ("f", "/r/m.py", 11, 5.0))
    sides = keyed([[two], [moved]], [["/r"], ["/r"]])
    assert [row.value for row in sides[1][0].values()] == [1.0, 5.0]
    one = reading(("f", "/r/m.py", 3, 5.0))
    sides = keyed([[two], [one]], [["/r"], ["/r"]])
    assert [[row.value for row in side[0].values()] for side in sides] == [[5.0], [5.0]]


def test_code_is_read_only_below_the_roots_and_never_through_links(tmp_path: Path) -> None:
    for side, body in (("a", "    return 1\n"), ("b", "    x = 2\n    return x\n")):
        (tmp_path / side).mkdir()
        (tmp_path / side / "m.py").write_text(f"class C:\n  def f(self):\n{body}", "utf-8")
        (tmp_path / f"{side}.py").write_text(side, "utf-8")
        (tmp_path / side / "link.py").symlink_to(tmp_path / f"{side}.py")
    roots = [[str(tmp_path / "a")], [str(tmp_path / "b")]]

    def file(name: str) -> SourceFile:
        return SourceFile(name, f"{tmp_path}/a/{name}", f"{tmp_path}/b/{name}")

    files = [file("m.py"), file("link.py"), file("../b.py"), file("gone.py")]
    files.append(SourceFile("b.py", str(tmp_path / "a.py"), str(tmp_path / "b.py")))
    [found] = code_changes(files, roots)
    assert (found.file, found.added, found.removed, found.functions) == ("m.py", 2, 1, ("C.f",))
