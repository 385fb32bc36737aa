"""The commands that build an image, and the same as lines for a shell."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfrun.image.build import (
    BuildError,
    build_command,
    explain_failure,
    label_command,
    render_script,
    run_build,
    write_sbom,
)
from perfrun.image.spec import ImageSpec, SiteFile

BUILT_IN = ("DOCKER_BUILDKIT=1", "docker", "build")
BUILDX = (*BUILT_IN, "--load")
DEFAULT = ImageSpec(framework="torch", docker_tag="perfrun/torch")
HOSTILE = ImageSpec(
    framework="torch",
    docker_tag="perfrun/torch",
    extra_pip_specs=("a>1", "b[c]; x"),
    extra_build_args=("one=1", "two=with a 'space' and $HOME", "three=a=b"),
)
INFO = '{"distributions": {"framework": {}, "perfrun":\n {"it\'s": "1"}}}'
# Stands between the shell and Docker: notes what the shell made of the line, and answers `run` and
# `image inspect`; a build may be made to fail.
RECORDER = """#!/bin/sh
{ for word in "$@"; do printf '%s\\0' "$word"; done
  case "$*" in *" -") cat; printf '\\0';; esac
  printf '%s\\0==end==\\0' "DOCKER_BUILDKIT=$DOCKER_BUILDKIT"; } >>"$RECORD"
case "$1" in
  run) cat "$RECORD.info";;
  image) case "$*" in
    *RepoTags*) echo 0;; *{{.Id}}*) echo sha256:0;; *) cat "$RECORD.info" 2>/dev/null;; esac;;
  build) if [ -f "$RECORD.log" ]; then cat "$RECORD.log"; exit 7; fi;;
esac
for folder in "$@"; do
  [ -d "$folder/scripts/site" ] && ls -R "$folder/scripts/site" >>"$RECORD.site"
done
[ "$1" != run ] || [ -f "$RECORD.info" ]
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
    monkeypatch.delenv("DOCKER_BUILDKIT", raising=False)
    (tmp_path / "record.info").write_text(f"{INFO}\n")
    return tmp_path / "record"


def calls(record: Path) -> list[list[str]]:
    return [each.split("\0")[:-1] for each in record.read_text().split("==end==\0")[:-1]]


def test_the_command_ends_with_the_dockerfile_and_the_checkout() -> None:
    checkout = Path("/home/me/my 'own' check out")

    assert shlex.split(build_command(DEFAULT, checkout, BUILDX, {})) == [
        *(*BUILDX, "--tag", "perfrun/torch", "--progress", "plain"),
        *("--build-arg", "framework=torch"),
        *("--file", f"{checkout}/Dockerfile", str(checkout)),
    ]


def test_a_build_arg_with_spaces_stays_one_word() -> None:
    line = build_command(HOSTILE, Path("/c"), BUILT_IN, {"harness_hash": "abc", "x": ""})
    argv = shlex.split(line)

    for pair in (*HOSTILE.extra_build_args, "extra_pip_specs=a>1;b[c]; x", "harness_hash=abc"):
        assert argv[argv.index(pair) - 1] == "--build-arg"
    assert argv.count("--build-arg") == 6  # and the framework


def test_a_build_without_network_says_so() -> None:
    offline = ImageSpec(framework="torch", docker_tag="t", is_offline=True)

    argv = shlex.split(build_command(offline, Path("/c"), BUILT_IN, {}))

    assert argv[argv.index("--network") + 1] == "none"
    assert "--network" not in build_command(DEFAULT, Path("/c"), BUILT_IN, {})


def test_a_dockerfile_of_ones_own_is_built_in_the_same_context(tmp_path: Path) -> None:
    spec = ImageSpec(framework="torch", docker_tag="t", dockerfile=tmp_path / "Docker file")

    argv = shlex.split(build_command(spec, Path("/c"), BUILDX, {}))

    assert argv[-3:] == ["--file", str(tmp_path / "Docker file"), "/c"]


LINES = st.text(st.characters(blacklist_characters="\0", codec="utf-8"))


@given(st.lists(LINES, max_size=6), LINES)
def test_a_rendered_command_reads_back_as_the_same_words(values: list[str], folder: str) -> None:
    pairs = tuple(f"name={value}" for value in values)
    spec = ImageSpec(framework="torch", docker_tag="t", extra_build_args=pairs)

    argv = shlex.split(build_command(spec, Path(f"/c/{folder}"), BUILDX, {}))

    found = [word for before, word in pairwise(argv) if before == "--build-arg"]
    assert found == ["framework=torch", *pairs]
    assert argv[-1] == str(Path(f"/c/{folder}"))


@pytest.mark.parametrize("builder", [BUILDX, BUILT_IN])
@pytest.mark.parametrize("is_pasted", [True, False])
def test_a_dry_run_pasted_into_a_shell_gives_docker_the_words_of_a_build(
    builder: tuple[str, ...], is_pasted: bool, record: Path, tmp_path: Path
) -> None:
    checkout = tmp_path / "my 'own' $check \"out\""
    harness = {"harness_hash": "abc"}
    words = shlex.split(build_command(HOSTILE, checkout, builder, harness))

    if is_pasted:
        script = render_script(HOSTILE, checkout, builder, harness)
        subprocess.run(["sh", "-c", script], check=True, cwd="/")
    else:
        info = run_build(HOSTILE, checkout, builder, harness)
        assert info == {"distributions": {"framework": {}, "perfrun": {"it's": "1"}}}

    build, info_call, label = (call for call in calls(record) if call[0] != "image")
    assert build == [*words[2:], "DOCKER_BUILDKIT=1"]
    assert info_call[:4] == ["run", "--rm", "--network", "none"]
    assert label == [
        *(*builder[2:], "--tag", "perfrun/torch", "--label", f"perfrun.lock={INFO}", "-"),
        *("FROM perfrun/torch\n", "DOCKER_BUILDKIT=1"),
    ]


def test_only_the_nameless_image_under_the_labelled_one_is_removed(record: Path) -> None:
    run_build(DEFAULT, Path("/c"), BUILT_IN, {})

    removed = [call for call in calls(record) if call[:2] == ["image", "rm"]]
    assert [call[2] for call in removed] == ["sha256:0"]


@pytest.mark.parametrize("is_pasted", [True, False])
def test_an_image_that_says_nothing_of_itself_gets_no_label(
    is_pasted: bool, record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(f"{record}.info").unlink()

    if is_pasted:
        script = render_script(DEFAULT, Path("/c"), BUILT_IN, {})
        subprocess.run(["sh", "-c", script], check=True, cwd="/")
    else:
        assert run_build(DEFAULT, Path("/c"), BUILT_IN, {}) is None
        assert "no /opt/perfrun/image.json in the image" in capsys.readouterr().err

    assert [call for call in calls(record) if "--label" in call] == []


def test_a_build_that_fails_shows_its_log_and_ends_with_the_last_words(
    record: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path(f"{record}.log").write_text("#1 one\n#2 0.5 perfrun: no room\nexit code: 1\n")

    with pytest.raises(BuildError) as caught:
        run_build(DEFAULT, Path("/c"), BUILT_IN, {})

    assert str(caught.value) == "image perfrun/torch was not built: no room"
    assert capfd.readouterr().err == Path(f"{record}.log").read_text()
    assert len(calls(record)) == 1
    Path(f"{record}.log").write_text("")
    with pytest.raises(BuildError, match="docker ended with 7"):
        run_build(DEFAULT, Path("/c"), BUILT_IN, {})


@pytest.mark.parametrize("is_pasted", [True, False])
def test_local_files_are_in_a_context_that_is_taken_away(
    is_pasted: bool, record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "my 'wheels'"
    wheels.mkdir()
    (wheels / "a.whl").write_text("")
    aside = tmp_path / "room for contexts"
    aside.mkdir()
    monkeypatch.setenv("TMPDIR", str(aside))
    monkeypatch.setattr("tempfile.tempdir", None)
    checkout = Path(__file__).resolve().parents[3]
    site = (SiteFile("wheels/0", wheels), SiteFile("framework.txt", None, "a==1\nb==2\n"))
    spec = ImageSpec(framework="torch", docker_tag="t", site=site)

    if is_pasted:
        script = render_script(spec, checkout, BUILDX, {})
        subprocess.run(["sh", "-c", script], check=True, cwd="/")
    else:
        run_build(spec, checkout, BUILDX, {})

    build = calls(record)[0]
    context = build[-2]
    assert build[-4:-1] == ["--file", f"{context}/Dockerfile", context]
    assert context.startswith(f"{aside}{os.sep}")
    listing = Path(f"{record}.site").read_text()
    assert f"{context}/scripts/site/wheels/0:\na.whl\n" in listing
    assert "framework.txt" in listing
    assert list(aside.iterdir()) == []


def test_the_label_is_what_the_image_says_of_itself() -> None:
    line = label_command("perfrun/torch", BUILT_IN)

    assert "--entrypoint cat perfrun/torch /opt/perfrun/image.json" in line
    assert '--label perfrun.lock="$lock" -' in line


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("#8 12.34 install_framework: found no cpu build of x\n", "found no cpu build of x"),
        (
            "#6 0.312 perfrun: the base image has no Python 3.9\n",
            "the base image has no Python 3.9",
        ),
        ("install_framework: plain\n", "plain"),
        ("#8 12.34 Installing perfrun: not this\n", "exit code: 1"),
    ],
)
def test_the_last_words_of_the_dockerfiles_scripts_are_why_a_build_failed(
    line: str, why: str
) -> None:
    assert explain_failure([line, "------\n", "exit code: 1\n", "\n"]) == why


MEND = "; mend its network or proxy, or bring the image with `docker load`"
NO_HOST = f"the engine cannot reach the registry r (no such host){MEND}"
NO_TIME = f"the engine cannot reach the registry h.org (no answer in time){MEND}"
ABSENT = "the registry h.org has no such image, or none for this machine; check name and tag"
REQUEST = 'failed to do request: Head "https://h.org/v2/x": dial tcp 1.2.3.4:443: i/o timeout'
DATA = "failed to resolve source metadata for h.org"


@pytest.mark.parametrize(
    ("line", "base", "why"),
    [
        (
            "failed to solve: rpc error: failed to do request: Head https://r/v2/x: no such host\n",
            "",
            f"its base image could not be fetched: {NO_HOST}",
        ),
        (
            f"ERROR: failed to solve: h/x:1: {DATA}/x:1: {REQUEST}\n",
            "h.org/x:1",
            f"h.org/x:1 could not be fetched: {NO_TIME}",
        ),
        (
            f"failed to solve: rpc error: failed to solve with frontend x: {REQUEST}\n",
            "r/x:1",
            f"r/x:1 could not be fetched: {NO_TIME}",
        ),
        (
            f"ERROR: failed to solve: x: {DATA}/x: h.org/x: not found\n",
            "h.org/x",
            f"h.org/x could not be fetched: {ABSENT}",
        ),
        ("ERROR: failed to solve: x:1: not found\n", "x", "ERROR: failed to solve: x:1: not found"),
        ("failed to solve: it did not end well\n", "x", "failed to solve: it did not end well"),
    ],
)
def test_what_the_engine_itself_says_is_told_as_it_is_or_in_words_that_help(
    line: str, base: str, why: str
) -> None:
    assert explain_failure(["#4 [1/12] FROM x:1\n", line], base) == why


@pytest.mark.parametrize("is_pasted", [True, False])
def test_the_bill_of_materials_is_copied_to_a_file(
    is_pasted: bool, record: Path, tmp_path: Path
) -> None:
    target = tmp_path / "bill 'of' materials.json"
    if is_pasted:
        script = render_script(DEFAULT, Path("/c"), BUILT_IN, {}, target)
        subprocess.run(["sh", "-c", script], check=True, cwd="/")
    else:
        write_sbom(DEFAULT, target)

    assert calls(record)[-1][-3:-1] == [DEFAULT.docker_tag, "/opt/perfrun/sbom.cdx.json"]
    before = target.read_text()
    assert json.loads(before)
    Path(f"{record}.info").unlink()  # an image of another Dockerfile has none
    with pytest.raises(BuildError, match=r"was built, but --sbom=.* not written: "):
        write_sbom(DEFAULT, target)
    assert target.read_text() == before
