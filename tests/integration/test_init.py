"""What `perfrun init` writes runs as it is, in a folder of any name, and replaces nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from worlds import ENTRY, Finished, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    folder = tmp_path / 'it\'s $my 100% "first"'
    folder.mkdir()
    return World(folder)


def perfrun(world: World, *words: str) -> Finished:
    return world.run_words([sys.executable, ENTRY, *words], PERFRUN_PYTHON="")


def test_class_suite_and_schedule_run_as_they_are(world: World) -> None:
    done = perfrun(world, "init", f"--python={sys.executable}")
    assert (done.code, done.stderr) == (0, "")
    written = done.stdout.partition(": ")[2].splitlines()[0].split(", ")
    assert sorted(written) == sorted(
        str(path.relative_to(world.folder))
        for path in world.folder.rglob("*")
        if path.is_file() and world.temporary not in path.parents
    )
    commands = [line.strip() for line in done.stdout.splitlines() if line.startswith("    perfrun")]
    assert commands == [
        "perfrun run sorting.py",
        "perfrun nightly suite.toml --check",
        "perfrun nightly suite.toml",
    ]
    run, check = (perfrun(world, *command.split()[1:]) for command in commands[:2])
    assert (run.code, "sorting.Sorting.million_numbers" in run.stdout) == (0, True)
    assert (check.code, check.stderr) == (0, "")
    assert check.stdout == "default: 5 trials of\n  sorting.Sorting.million_numbers\n"
    # Fewer trials and numbers will do for a test; the line is as cron would give it to the shell.
    for name, many, few in (("suite.toml", "= 5", "= 1"), ("sorting.py", "1_000_000", "1_000")):
        text = (world.folder / name).read_text()
        (world.folder / name).write_text(text.replace(many, few))
    line = (world.folder / "schedule" / "crontab").read_text().splitlines()[-1]
    command = line.split(maxsplit=5)[5].replace("\\%", "%")
    subprocess.run(["sh", "-c", command], env=world.environment(), cwd="/", check=True, timeout=240)
    assert "all well" in (world.folder / "last-night.md").read_text()
    assert len(world.summary_files()) == 2


def test_the_units_are_what_systemd_reads(world: World) -> None:
    perfrun(world, "init")
    units = sorted((world.folder / "schedule").glob("perfrun-*"))
    assert [unit.suffix for unit in units] == [".service", ".timer"]
    suite = str(world.folder / "suite.toml").replace("%", "%%").replace("$", "$$")
    quoted = suite.replace('"', '\\"')
    assert f'"nightly" "--quiet" "{quoted}"\n' in units[0].read_text()
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", *map(str, units)], capture_output=True, text=True
        )
        assert "schedule/" not in done.stderr


def test_nothing_is_replaced_without_being_told(world: World) -> None:
    mine = world.folder / "sorting.py"
    elsewhere = world.folder / "elsewhere"
    elsewhere.write_text("mine")
    mine.symlink_to(elsewhere)
    done = perfrun(world, "init")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr == (
        f"perfrun init: sorting.py in {world.folder}: is there already, and nothing was written; "
        "name another folder, or add --overwrite\n"
    )
    assert not (world.folder / "suite.toml").exists()
    assert perfrun(world, "init", "--overwrite").code == 0
    assert "class Sorting" in mine.read_text()
    assert elsewhere.read_text() == "mine"  # the link was replaced, not what it leads to
    other = perfrun(world, "init", "new/one")
    assert "\n    cd '" in other.stdout
    assert (world.folder / "new" / "one" / "schedule").is_dir()
    for words, said in (
        (["init", "--python=no_such"], "perfrun init: --python=no_such: is no program"),
        (["init", "/dev/null/x"], "perfrun init: /dev/null/x: Not a directory"),
        (["init", "a\nb"], "no schedule can name this folder"),
    ):
        wrong = perfrun(world, *words)
        assert wrong.code == 2
        assert said in wrong.stderr
        assert wrong.stderr.count("\n") == 1
