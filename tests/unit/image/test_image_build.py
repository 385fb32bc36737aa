"""The commands that build an image, and the same as lines for a shell."""

from __future__ import annotations

import json
import shlex
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfrun.image.build import (
    LAST_WORDS,
    Command,
    build_command,
    explain_engine,
    label_command,
    render_script,
)
from perfrun.image.engine import Builder
from perfrun.image.spec import ImageSpec, SiteFile

DEFAULT = ImageSpec(framework="torch", docker_tag="perfrun/torch")
HOSTILE = ImageSpec(
    framework="torch",
    docker_tag="perfrun/torch",
    extra_pip_specs=("a>1", "b[c]; x"),
    extra_build_args=("one=1", "two=with a 'space' and $HOME", "three=a=b"),
)
# Stands between the shell and Docker: notes what the shell made of the line, and answers `run`.
RECORDER = """#!/bin/sh
{ for word in "$@"; do printf '%s\\0' "$word"; done
  case "$*" in *" -") cat; printf '\\0';; *"--file -"*) cat; printf '\\0';; esac
  printf '%s\\0==end==\\0' "DOCKER_BUILDKIT=$DOCKER_BUILDKIT"; } >>"$RECORD"
case "$1" in run) printf 'the\\n"lock"\\n';; esac
for folder in "$@"; do
  [ -d "$folder/scripts/site" ] && ls -R "$folder/scripts/site" >>"$RECORD.site"
done
exit 0
"""


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tool = tmp_path / "bin" / "docker"
    tool.parent.mkdir()
    tool.write_text(RECORDER)
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.setenv("RECORD", str(tmp_path / "record"))
    monkeypatch.setenv("HOME", "/not/to/be/put/in")
    return tmp_path / "record"


def calls(record: Path) -> list[list[str]]:
    return [each.split("\0")[:-1] for each in record.read_text().split("==end==\0")[:-1]]


def words(command: Command) -> list[str]:
    environment = dict(command.environment).get("DOCKER_BUILDKIT", "")
    stdin = [command.stdin] if command.stdin else []
    return [*command.argv[1:], *stdin, f"DOCKER_BUILDKIT={environment}"]


def test_the_command_ends_with_the_dockerfile_and_the_checkout() -> None:
    command = build_command(DEFAULT, "/home/me/my 'own' check out", Builder.BUILDX, {})

    assert command.argv == (
        *("docker", "build", "--tag", "perfrun/torch", "--progress", "plain", "--load"),
        *("--build-arg", "framework=torch"),
        *("--file", "/home/me/my 'own' check out/Dockerfile", "/home/me/my 'own' check out"),
    )


def test_a_build_arg_with_spaces_stays_one_word() -> None:
    argv = build_command(HOSTILE, "/c", Builder.BUILT_IN, {"harness_hash": "abc", "x": ""}).argv

    for pair in (*HOSTILE.extra_build_args, "extra_pip_specs=a>1;b[c]; x", "harness_hash=abc"):
        assert argv[argv.index(pair) - 1] == "--build-arg"
    assert argv.count("--build-arg") == 6  # and the framework


def test_compose_is_told_the_same_in_a_file_of_its_own() -> None:
    spec = ImageSpec(framework="torch", docker_tag="t", is_offline=True, extra_build_args=("a=$b",))

    command = build_command(spec, "/my checkout", Builder.COMPOSE, {"harness_hash": "abc"})

    assert command.argv[:2] == ("docker", "compose")
    assert json.loads(command.stdin)["services"]["image"] == {
        "image": "t",
        "build": {
            "context": "/my checkout",
            "dockerfile": "/my checkout/Dockerfile",
            "args": {"framework": "torch", "PIP_NO_INDEX": "1", "a": "$$b", "harness_hash": "abc"},
            "network": "none",
        },
    }


def test_each_builder_is_asked_in_its_own_way() -> None:
    offline = ImageSpec(framework="torch", docker_tag="t", is_offline=True)
    found = {builder: build_command(offline, "/c", builder, {}) for builder in Builder}

    loads = [builder for builder in Builder if "--load" in found[builder].argv]
    assert loads == [Builder.BUILDX]
    assert found[Builder.BUILT_IN].environment == (("DOCKER_BUILDKIT", "1"),)
    assert found[Builder.BUILDX].environment == ()
    for builder in (Builder.BUILDX, Builder.BUILT_IN):
        argv = found[builder].argv
        assert argv[argv.index("--network") + 1] == "none"


def test_a_dockerfile_of_ones_own_is_built_in_the_same_context(tmp_path: Path) -> None:
    spec = ImageSpec(framework="torch", docker_tag="t", dockerfile=tmp_path / "Dockerfile")

    assert build_command(spec, "/c", Builder.BUILDX, {}).argv[-3:] == (
        *("--file", str(tmp_path / "Dockerfile"), "/c"),
    )


@given(st.lists(st.text(st.characters(blacklist_characters="\0", codec="utf-8")), max_size=6))
def test_a_rendered_command_reads_back_as_the_same_words(argv: list[str]) -> None:
    line = Command(tuple(argv), environment=(("NAME", "a value"),)).render()

    assert shlex.split(line) == ["NAME=a value", *argv]


@pytest.mark.parametrize("builder", [Builder.BUILDX, Builder.BUILT_IN, Builder.COMPOSE])
def test_a_dry_run_pasted_into_a_shell_gives_docker_the_same_words(
    builder: Builder, record: Path, tmp_path: Path
) -> None:
    checkout = tmp_path / "my 'own' $check \"out\""
    script = render_script(HOSTILE, checkout, builder, {"harness_hash": "abc"})

    subprocess.run(["sh", "-c", script], check=True, cwd="/")

    build, info, label = calls(record)
    assert build == words(build_command(HOSTILE, str(checkout), builder, {"harness_hash": "abc"}))
    assert info[:4] == ["run", "--rm", "--network", "none"]
    wanted = words(label_command(HOSTILE, str(checkout), builder, 'the\n"lock"'))
    if builder is Builder.COMPOSE:
        assert json.loads(label[-2])["services"]["image"]["build"]["labels"] == {
            "perfrun.lock": "$PERFRUN_LOCK"  # which Compose fills in from the environment
        }
        assert label[:-2] == wanted[:-2]
    else:
        assert label == wanted


@pytest.mark.parametrize("builder", [Builder.BUILDX, Builder.COMPOSE])
def test_a_dry_run_with_local_files_makes_the_context_and_takes_it_away(
    builder: Builder, record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "my 'wheels'"
    wheels.mkdir()
    (wheels / "a.whl").write_text("")
    aside = tmp_path / "room for contexts"
    aside.mkdir()
    monkeypatch.setenv("TMPDIR", str(aside))
    checkout = Path(__file__).resolve().parents[3]
    site = (SiteFile("wheels/0", wheels), SiteFile("framework.txt", None, "a==1\nb==2\n"))
    spec = ImageSpec(framework="torch", docker_tag="t", site=site)

    subprocess.run(["sh", "-c", render_script(spec, checkout, builder, {})], check=True, cwd="/")

    build = calls(record)[0]
    given = build[-2] if builder is Builder.BUILDX else json.loads(build[-2])["services"]["image"]
    context = given if isinstance(given, str) else given["build"]["context"]
    assert context.startswith(f"{aside}/")
    listing = Path(f"{record}.site").read_text()
    assert f"{context}/scripts/site/wheels/0:\na.whl\n" in listing
    assert "framework.txt" in listing
    assert list(aside.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("#8 12.34 install_framework: found no cpu build of x\n", "found no cpu build of x"),
        (
            "#6 0.312 perfrun: the base image has no Python 3.9\n",
            "the base image has no Python 3.9",
        ),
        ("install_framework: plain\n", "plain"),
        ("#8 12.34 Installing perfrun: not this\n", None),
    ],
)
def test_the_last_words_of_a_build_are_found_in_its_progress(line: str, why: str | None) -> None:
    found = LAST_WORDS.match(line)

    assert (found[1] if found else None) == why


MEND = "; mend its network or proxy, or bring the image with `docker load`"
NO_HOST = f"the engine cannot reach the registry r (no such host){MEND}"
NO_TIME = f"the engine cannot reach the registry h.org (no answer in time){MEND}"
ABSENT = "the registry h.org has no such image, or none for this machine; check name and tag"
REQUEST = 'failed to do request: Head "https://h.org/v2/x": dial tcp 1.2.3.4:443: i/o timeout'
DATA = "failed to resolve source metadata for h.org"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "failed to solve: rpc error: failed to do request: Head https://r/v2/x: no such host\n",
            f"its base image could not be fetched: {NO_HOST}",
        ),
        (
            f"ERROR: failed to solve: h/x:1: {DATA}/x:1: {REQUEST}\n",
            f"h.org/x:1 could not be fetched: {NO_TIME}",
        ),
        (
            f"ERROR: failed to solve: x: {DATA}/x: h.org/x: not found\n",
            f"h.org/x could not be fetched: {ABSENT}",
        ),
        ("ERROR: failed to solve: x:1: not found\n", "x:1: not found"),
        ("ERROR: failed to solve: process did not end well\n", "process did not end well"),
        ("#4 [1/12] FROM x:1\n", ""),
    ],
)
def test_what_the_engine_itself_says_is_told_in_words_that_help(line: str, why: str) -> None:
    assert explain_engine(line) == why


def test_the_image_is_named_by_the_progress_of_an_engine_whose_error_does_not() -> None:
    line = f"failed to solve: rpc error: failed to solve with frontend x: {REQUEST}\n"
    assert explain_engine(line, "r/x:1") == f"r/x:1 could not be fetched: {NO_TIME}"
