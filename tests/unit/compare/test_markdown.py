"""A comparison as a comment of a pull request: verdict first, found again by its marker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfrun.compare.command import compare_command
from tests.github_markdown import rendered
from tests.summaries import trials, write

HOSTILE = 'x <!-- perfrun compare --> | `a` ```\n@team <script> [l](http://evil/) \x1b[2J"'


def comment(
    folder: Path, capsys: pytest.CaptureFixture[str], *words: str, **facts: Any
) -> tuple[int, str]:
    code = compare_command([str(folder / "base"), str(folder / "new"), "--format=markdown", *words])
    return code, capsys.readouterr().out


def timed(*parts: tuple[str, float]) -> list[dict[str, Any]]:
    """Five trials of each method, about so slow."""
    return [
        one
        for method, level in parts
        for one in trials([level * (1 + n / 500) for n in range(5)], method=f"pkg.c.C.{method}")
    ]


def test_what_is_worse_comes_first_and_the_exit_status_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = timed(("same", 1.0), ("slow", 1.0), ("fast", 1.0))
    new = timed(("same", 1.0), ("slow", 2.0), ("fast", 0.5))
    write(tmp_path / "base", *base)
    write(tmp_path / "new", *new)
    code, text = comment(tmp_path, capsys, "--metrics=wall_time")
    assert code == 1
    lines = text.splitlines()
    assert lines[0] == "<!-- perfrun compare -->"
    assert lines[2] == "### perfrun: 1 worse, 1 better, 1 equivalent"
    rows = [line for line in lines if line.startswith("| pkg")]
    assert [row.split(" | ")[0] for row in rows] == [
        f"| pkg.c.C.{n}" for n in ("slow", "fast", "same")
    ]
    assert "| 1 s | 2.008 s |" in rows[0] or "| 1.004 s | 2.008 s |" in rows[0]
    assert "2.000 (" in rows[0] or "2.00 (" in rows[0]
    command = lines[lines.index("```sh") + 1]
    assert command.startswith("perfrun compare /")
    assert command.endswith("--format=markdown --metrics=wall_time")


def test_text_from_outside_can_neither_forge_the_marker_nor_leave_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts: dict[str, Any] = {"method": f"pkg.c.C.{HOSTILE}", "metrics": {HOSTILE: 1.0}}
    write(tmp_path / "base", *trials([1.0] * 4, distributions={HOSTILE: "1"}, **facts))
    write(tmp_path / "new", *trials([1.0] * 4, distributions={HOSTILE: HOSTILE}, **facts))
    code, text = comment(tmp_path, capsys, f"--methods=C|{HOSTILE[:3]}```")
    assert code == 0
    assert text.count("<!--") == 1
    body = text.partition("\n")[2]
    page = rendered(body)
    for tag in ("<script", "<a ", "<img", "<!--"):
        assert tag not in page
    assert page.count("<pre") == 1
    assert page.count("<h3>") == 1
    assert "nothing is worse" in page
    assert "@team" not in text.replace("```", "").partition("To repeat")[0]


def test_a_comment_is_not_longer_than_a_server_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = {f"{'m' * 150}{number}": 1.0 for number in range(400)}
    for side in ("base", "new"):
        write(tmp_path / side, *trials([1.0, 1.0, 1.0], metrics=metrics))
    _, text = comment(tmp_path, capsys)
    assert len(text) <= 60_000
    assert "more rows: `--format=json` has all of them." in text
    assert "To repeat the comparison:" in text
