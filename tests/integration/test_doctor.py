"""`perfrun doctor` on this machine, whole and with parts of it hidden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemas
from worlds import ROOT, Finished, World, strict

KEYS = {"name", "wanted", "status", "needed", "value", "why", "mend"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    (tmp_path / "code").mkdir()
    return made


def checks(done: Finished) -> dict[str, dict[str, Any]]:
    assert "Traceback" not in done.stderr
    document = strict(done.stdout)
    schemas.check("doctor", document)
    return {check["name"]: check for check in document["checks"]}


def test_every_check_says_what_it_found_and_why_it_matters(world: World) -> None:
    done = world.run("doctor", "--format=json")
    document = strict(done.stdout)
    assert (done.code, document["for"], document["ok"]) == (0, ["local"], True)
    found = checks(done)
    assert len(found) == len(document["checks"])
    for check in found.values():
        assert set(check) == KEYS
        assert check["status"] in ("found", "missing", "unknown")
        assert check["why"]
        assert check["mend"] is None or check["status"] == "missing"
        page = (ROOT / "docs" / "guides" / "doctor.md").read_text(encoding="utf-8")
        assert f"| `{check['name']}` |" in page
    assert found["git"]["status"] == found["python"]["status"] == "found"
    assert {name for name, check in found.items() if check["needed"]} == {"python", "workspace"}
    assert not world.workspace.exists()
    assert list(world.temporary.iterdir()) == []


def test_the_table_has_a_line_a_check_and_the_commands_whole(world: World) -> None:
    # Without tools, so that there is something to mend, and no engine that answers now and then.
    done = world.run("doctor", PATH="")
    found = checks(world.run("doctor", "--format=json", PATH=""))
    lines = done.stdout.splitlines()
    assert done.code == 0
    assert [line.split("  ")[0] for line in lines[2 : 2 + len(found)]] == [
        check["wanted"] for check in found.values()
    ]
    mends = {check["name"]: check["mend"] for check in found.values() if check["mend"]}
    assert {"git", "engine", "compose"} <= mends.keys()
    for name, mend in mends.items():
        if name not in ("load", "memory", "swap", "disk", "clock_synchronised"):  # come and go
            assert any(line.endswith(mend) for line in lines)
    assert lines[-1] == "A local run has what it needs."


def test_with_nothing_on_the_path_the_tools_are_missing_and_the_rest_is_told(world: World) -> None:
    done = world.run("doctor", "--format=json", PATH="")
    found = checks(done)
    assert done.code == 0
    for name in ("git", "engine", "compose"):
        assert found[name]["status"] == "missing"
    assert found["memory"]["status"] in ("found", "missing")


@pytest.mark.parametrize(
    ("words", "lacking"),
    [
        (["--for=container"], "container engine"),
        (["--for=compose"], "container engine, Compose version 2"),
        (["--for=nightly"], "git"),
        (["--image=some/image"], "container engine"),
        (["--image=some/image", "--gpus=all"], "container engine, GPU, GPU in containers"),
        (["--git_repos=file:///some/where.git"], "git"),
        (["--for=container,gpu"], "container engine, GPU, GPU in containers"),
        (["--for=local", "--for=gpu"], "GPU"),
    ],
)
def test_what_the_asked_run_needs_and_lacks_is_exit_status_1(
    words: list[str], lacking: str, world: World
) -> None:
    if "gpu" in words[-1] and Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    done = world.run("doctor", *words, PATH="")
    assert done.code == 1
    assert done.stdout.splitlines()[-1].endswith(f"needs what is missing: {lacking}.")
    assert "missing, needed" in done.stdout


def test_the_interpreter_of_an_image_is_not_asked(world: World) -> None:
    done = world.run("doctor", "--image=some/image", "--format=json", PATH="")
    found = checks(done)["python"]
    assert (found["status"], found["needed"], found["mend"]) == ("unknown", False, None)


def test_an_interpreter_that_does_not_work_is_a_line_of_the_table(world: World) -> None:
    broken = world.folder / "a python"
    broken.write_text("#!/bin/sh\necho 'not today' >&2; exit 3\n")
    broken.chmod(0o755)
    done = world.run("doctor", f"--python={broken}", "--format=json")
    found = checks(done)["python"]
    assert (done.code, found["status"], found["needed"]) == (1, "missing", True)
    assert "not today" in found["value"]


def test_a_workspace_that_cannot_be_is_exit_status_1(world: World) -> None:
    (world.folder / "workspace").touch()
    done = world.run("doctor", "--format=json")
    assert (done.code, checks(done)["workspace"]["status"]) == (1, "missing")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--for=space"], "--for=space: must be one of local, container, compose, gpu, nightly"),
        (["--nonsense"], "unknown flag --nonsense"),
        (["container"], "'container' is not a flag"),
        (["--python=/no/such/python"], "--python=/no/such/python"),
    ],
)
def test_a_wrong_word_is_one_line(words: list[str], said: str, world: World) -> None:
    done = world.run("doctor", *words)
    assert (done.code, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.torch
def test_the_framework_of_the_environment_is_found_without_importing_it(
    world: World, torch_python: str
) -> None:
    done = world.run("doctor", f"--python={torch_python}", "--format=json")
    assert ", torch 2." in checks(done)["python"]["value"]
