"""setup.py: from its flags to the command that builds an image."""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfrun.engine import Builder
from perfrun.errors import UsageError
from perfrun.image import (
    NAMED_BUILD_ARGS,
    SETUPTOOLS_COMMANDS,
    ImageSpec,
    build_args,
    build_argv,
    build_environment,
    parse_arguments,
    render_command,
)

ROOT = Path(__file__).resolve().parents[2]
DEFAULT = ImageSpec(
    framework="torch",
    framework_pip_spec="",
    extra_pip_specs=(),
    base_image="",
    docker_tag="perfrun/torch",
    extra_build_args=(),
)


def parse(*argv: str) -> ImageSpec:
    return parse_arguments(argv)[0]


def run_setup(
    *argv: str, python_flags: tuple[str, ...] = ("-S",), **environment: str
) -> subprocess.CompletedProcess[str]:
    """`python3 setup.py ...` as on a bare host: another folder, and nothing installed."""
    return subprocess.run(
        [sys.executable, *python_flags, str(ROOT / "setup.py"), *argv],
        cwd="/",
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_flags_mean_torch_and_leave_the_rest_to_the_dockerfile() -> None:
    assert parse() == DEFAULT
    assert build_args(DEFAULT) == ("framework=torch",)


def test_empty_flags_mean_the_same_as_none() -> None:
    flags = [f"--{name}=" for name in (*NAMED_BUILD_ARGS, "tensorflow_pip_spec", "docker_tag")]

    assert parse(*flags, "--extra_docker_build_args", "") == DEFAULT


def test_the_tag_follows_the_framework() -> None:
    assert parse("--framework=tensorflow").docker_tag == "perfrun/tensorflow"
    assert parse("--framework=tensorflow", "--docker_tag=mine").docker_tag == "mine"


def test_perfzeros_tensorflow_pip_spec_means_tensorflow() -> None:
    spec = parse("--tensorflow_pip_spec=tensorflow-cpu==2.21.0")

    assert (spec.framework, spec.framework_pip_spec) == ("tensorflow", "tensorflow-cpu==2.21.0")
    assert parse("--framework=tensorflow", "--tensorflow_pip_spec=tf").framework_pip_spec == "tf"


def test_flags_may_be_abbreviated() -> None:
    assert parse("--docker=a/b", "--base=c").docker_tag == "a/b"


@pytest.mark.parametrize(
    ("text", "specs"),
    [
        ("numpy==1.16.4;scipy==1.3.1", ("numpy==1.16.4", "scipy==1.3.1")),
        (" numpy ; scipy[all] >= 1 ;; ", ("numpy", "scipy[all] >= 1")),
        (";", ()),
    ],
)
def test_extra_pip_specs_are_separated_by_semicolons(text: str, specs: tuple[str, ...]) -> None:
    spec = parse("--extra_pip_specs", text)

    assert spec.extra_pip_specs == specs
    expected = (f"extra_pip_specs={';'.join(specs)}",) if specs else ()
    assert build_args(spec)[1:] == expected


def test_a_build_arg_with_spaces_stays_one_word() -> None:
    spec = parse("--extra_docker_build_args", "one=1", "two=with a space", "", "three=a=b")
    argv = build_argv(spec, ROOT, Builder.CLASSIC)

    for pair in ("one=1", "two=with a space", "three=a=b"):
        assert argv[argv.index(pair) - 1] == "--build-arg"
    assert argv.count("--build-arg") == 4  # and the framework


def test_build_args_may_be_given_in_several_flags() -> None:
    spec = parse("--extra_docker_build_args", "a=1", "--extra_docker_build_args", "b=2", "c=3")

    assert spec.extra_build_args == ("a=1", "b=2", "c=3")


def test_the_command_ends_with_the_dockerfile_and_the_checkout() -> None:
    checkout = Path("/home/me/my 'own' check out")

    argv = build_argv(parse("--base_image=b"), checkout, Builder.CLASSIC)

    assert argv == (
        *("docker", "build", "--tag", "perfrun/torch", "--force-rm"),
        *("--build-arg", "framework=torch", "--build-arg", "base_image=b"),
        *("--file", f"{checkout}/Dockerfile", str(checkout)),
    )


def test_each_builder_is_asked_in_its_own_way() -> None:
    words = {builder: build_argv(DEFAULT, ROOT, builder) for builder in Builder}

    assert [builder for builder in Builder if "--load" in words[builder]] == [Builder.BUILDX]
    assert [builder for builder in Builder if "--force-rm" in words[builder]] == [Builder.CLASSIC]
    assert build_environment(Builder.BUILT_IN) == {"DOCKER_BUILDKIT": "1"}
    assert build_environment(Builder.BUILDX) == build_environment(Builder.CLASSIC) == {}


@given(st.lists(st.text(st.characters(blacklist_characters="\0", codec="utf-8")), max_size=6))
def test_a_rendered_command_reads_back_as_the_same_words(argv: list[str]) -> None:
    line = render_command(argv, {"NAME": "a value"})

    assert shlex.split(line) == ["NAME=a value", *argv]


@pytest.mark.parametrize(
    "name",
    ["perfrun", "perfrun/torch:2.13.0", "host:5000/a/b-c__d.e:Tag_1", "localhost/x", "H.example/x"],
)
def test_image_names_that_the_engine_takes(name: str) -> None:
    assert parse(f"--docker_tag={name}").docker_tag == name
    assert parse(f"--base_image={name}").base_image == name


@pytest.mark.parametrize(
    "name",
    ["Perfrun", "a b", "-x", "a/", "a//b", "a:", "a\n", "a@sha256:" + "0" * 64, "é", "a:b:c"],
)
def test_image_names_that_it_would_refuse_are_refused_here(name: str) -> None:
    with pytest.raises(UsageError, match="not an image name"):
        parse(f"--docker_tag={name}")


def test_a_base_image_may_be_pinned_by_its_digest() -> None:
    name = "python:3.11@sha256:" + "0a" * 32

    assert parse(f"--base_image={name}").base_image == name
    with pytest.raises(UsageError):
        parse("--base_image=python@sha256:nothex")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--framework=jax"], "--framework=jax: must be one of torch, tensorflow"),
        (["--framework=torch", "--tensorflow_pip_spec=x"], "does not go with --framework=torch"),
        (["--framework_pip_spec=y", "--tensorflow_pip_spec=x"], "only one of them"),
        (["--framework_pip_spec=a\nb"], "must be one line"),
        (["--extra_pip_specs=a;\nb"], "must be one line"),
        (["--extra_docker_build_args", "novalue"], "'novalue': must be NAME=VALUE"),
        (["--extra_docker_build_args", "9a=b"], "must be NAME=VALUE"),
        (["--extra_docker_build_args", "base_image=b"], "there is a flag for this, --base_image"),
        (["--no_such_flag"], "unrecognized arguments: --no_such_flag"),
        (["--framew=torch"], "ambiguous option"),
        (["leftover"], "unrecognized arguments: leftover"),
    ],
)
def test_wrong_usage_is_one_line_that_names_the_culprit(argv: list[str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(*argv)

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("command", SETUPTOOLS_COMMANDS)
def test_setuptools_commands_are_sent_to_pip(command: str) -> None:
    with pytest.raises(UsageError, match=r"run `pip install \.` in this folder"):
        parse(command, "--user")


@pytest.mark.parametrize("python_flags", [("-S",), ("-I", "-S"), ("-S", "-W", "error")])
def test_setup_py_needs_nothing_but_the_standard_library(python_flags: tuple[str, ...]) -> None:
    done = run_setup("--dry_run", "--extra_pip_specs=a; b>1", python_flags=python_flags)

    assert (done.returncode, done.stderr) == (0, "")
    words = shlex.split(done.stdout)
    assert words[-1] == str(ROOT)
    assert "extra_pip_specs=a;b>1" in words


def test_setup_py_as_setuptools_ends_with_2_and_one_line() -> None:
    done = run_setup("bdist_wheel")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "perfrun: setup.py builds the container image and knows no command"
    )
    assert done.stderr.count("\n") == 1


def test_without_an_engine_setup_py_says_what_to_install(tmp_path: Path) -> None:
    done = run_setup(PATH=str(tmp_path))

    assert (done.returncode, done.stdout) == (2, "")
    assert "apt-get install docker.io" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_dry_run_needs_no_engine(tmp_path: Path) -> None:
    done = run_setup("--dry_run", PATH=str(tmp_path))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("docker build --tag perfrun/torch ")


def test_help_tells_every_flag() -> None:
    done = run_setup("--help")

    assert done.returncode == 0
    for flag in (*NAMED_BUILD_ARGS, "tensorflow_pip_spec", "docker_tag", "dry_run"):
        assert f"--{flag}" in done.stdout


@pytest.mark.parametrize(
    "name", ["setup.py", "perfrun/image.py", "perfrun/engine.py", "perfrun/errors.py"]
)
def test_what_setup_py_reads_is_python_3_8(name: str) -> None:
    ast.parse((ROOT / name).read_text("utf-8"), feature_version=(3, 8))


def test_every_flag_has_its_argument_in_the_dockerfile() -> None:
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    declared = {line.split()[1].partition("=")[0] for line in lines if line.startswith("ARG ")}

    assert set(NAMED_BUILD_ARGS) < declared
