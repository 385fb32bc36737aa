"""Container images: which one to build, and the command that builds it.

Runs on a bare host as the root script `setup.py`, before anything is installed: standard library
only, Python >= 3.8. It is the only module that spells `docker build`.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Sequence

from perfrun.engine import Builder, describe_image, find_builder, find_engine
from perfrun.errors import PerfrunError, UsageError

FRAMEWORKS = ("torch", "tensorflow")
SETUPTOOLS_COMMANDS = (
    *("bdist", "bdist_egg", "bdist_rpm", "bdist_wheel", "build", "build_ext", "build_py", "check"),
    *("clean", "develop", "dist_info", "editable_wheel", "egg_info", "install", "install_lib"),
    *("register", "sdist", "test", "upload"),
)
# Build arguments that have a flag of their own.
NAMED_BUILD_ARGS = ("framework", "framework_pip_spec", "extra_pip_specs", "base_image")
BUILD_ARG_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PATH_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
IMAGE_NAME = re.compile(
    r"(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?"  # registry
    rf"{PATH_COMPONENT}(?:/{PATH_COMPONENT})*"
    r"(?::\w[\w.-]{0,127})?",  # tag
    re.ASCII,
)
DIGEST = re.compile(r"(?:@[a-z0-9]+:[0-9a-f]{32,})?")


class BuildError(PerfrunError):
    """The engine could not build the image; its own words came before this one's."""

    exit_code = 1


@dataclass(frozen=True)
class ImageSpec:
    """One image to build. Empty means: as the Dockerfile and install_framework.py have it."""

    framework: str
    framework_pip_spec: str
    extra_pip_specs: tuple[str, ...]
    base_image: str
    docker_tag: str
    extra_build_args: tuple[str, ...]
    """`name=value` each, in the order given."""


class ArgumentParser(argparse.ArgumentParser):
    """Tells what is wrong in one line, as all of perfrun does; argparse prints the usage first."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `python3 setup.py --help`")


def make_parser() -> argparse.ArgumentParser:
    """The flags of setup.py. All of them may be abbreviated, and empty means not given."""
    parser = ArgumentParser(
        prog="python3 setup.py",
        description="Build the container image that `docker compose run --rm perfrun` runs.",
        epilog="perfrun itself is installed with `pip install .`",
    )

    def add_text(flag: str, metavar: str, text: str) -> None:
        parser.add_argument(flag, metavar=metavar, default="", help=text)

    add_text("--framework", "NAME", "torch (default) or tensorflow")
    add_text("--framework_pip_spec", "SPEC", "the framework for pip, e.g. torch==2.13.0")
    add_text(
        "--tensorflow_pip_spec",
        "SPEC",
        "PerfZero's name for --framework=tensorflow --framework_pip_spec=SPEC",
    )
    add_text("--extra_pip_specs", "'SPEC;SPEC'", "more packages for the benchmarks")
    add_text("--base_image", "IMAGE", "build on this image (default: see Dockerfile)")
    add_text("--docker_tag", "NAME", "name of the image (default: perfrun/<framework>)")
    parser.add_argument(
        "--extra_docker_build_args",
        metavar="NAME=VALUE",
        nargs="*",
        action="extend",
        default=[],
        help="more --build-arg for the Dockerfile; a value may hold spaces",
    )
    parser.add_argument(
        "--dry_run", action="store_true", help="print the command and do not run it"
    )
    return parser


def refuse_setuptools_command(argv: Sequence[str]) -> None:
    """Tools and people that take the root `setup.py` for setuptools' are sent to pip."""
    if argv and argv[0] in SETUPTOOLS_COMMANDS:
        raise UsageError(
            f"setup.py builds the container image and knows no command {argv[0]!r}; "
            "to install perfrun, run `pip install .` in this folder"
        )


def parse_framework(name: str, pip_spec: str, tensorflow_pip_spec: str) -> tuple[str, str]:
    """(framework, pip spec) from the three flags that say it; PerfZero's one implies TensorFlow."""
    if tensorflow_pip_spec:
        if pip_spec:
            raise UsageError("--tensorflow_pip_spec is --framework_pip_spec: give only one of them")
        if name not in ("", "tensorflow"):
            raise UsageError(f"--tensorflow_pip_spec does not go with --framework={name}")
        name, pip_spec = "tensorflow", tensorflow_pip_spec
    name = name or FRAMEWORKS[0]
    if name not in FRAMEWORKS:
        raise UsageError(f"--framework={name}: must be one of {', '.join(FRAMEWORKS)}")
    return name, parse_line("--framework_pip_spec", pip_spec)


def parse_line(flag: str, value: str) -> str:
    """A value that goes into the Dockerfile's environment, where a line break ends it."""
    if len(value.splitlines()) > 1:
        raise UsageError(f"{flag}={value!r}: must be one line")
    return value.strip()


def parse_pip_specs(text: str) -> tuple[str, ...]:
    """The `;`-separated list of --extra_pip_specs; so `;` cannot begin an environment marker."""
    specs = (spec.strip() for spec in parse_line("--extra_pip_specs", text).split(";"))
    return tuple(spec for spec in specs if spec)


def parse_build_arg(text: str) -> str:
    """One NAME=VALUE of --extra_docker_build_args, for a name that has no flag."""
    name, separator, _ = text.partition("=")
    if not separator or not BUILD_ARG_NAME.fullmatch(name):
        raise UsageError(f"--extra_docker_build_args {text!r}: must be NAME=VALUE")
    if name in NAMED_BUILD_ARGS:
        raise UsageError(f"--extra_docker_build_args {text!r}: there is a flag for this, --{name}")
    return text


def parse_image_name(flag: str, name: str, may_have_digest: bool = False) -> str:
    """An image name as the engine will take it, so that a wrong one is known before the build."""
    plain, at_sign, digest = name.partition("@") if may_have_digest else (name, "", "")
    if not IMAGE_NAME.fullmatch(plain) or not DIGEST.fullmatch(at_sign + digest):
        raise UsageError(f"{flag}={name}: not an image name in lower case, like perfrun/torch:2.13")
    return name


def parse_arguments(argv: Sequence[str]) -> tuple[ImageSpec, bool]:
    """What to build, and whether only to show how; UsageError for what cannot be right."""
    refuse_setuptools_command(argv)
    flags = make_parser().parse_args(argv)
    framework, pip_spec = parse_framework(
        flags.framework, flags.framework_pip_spec, flags.tensorflow_pip_spec
    )
    if flags.base_image:
        parse_image_name("--base_image", flags.base_image, may_have_digest=True)
    spec = ImageSpec(
        framework=framework,
        framework_pip_spec=pip_spec,
        extra_pip_specs=parse_pip_specs(flags.extra_pip_specs),
        base_image=flags.base_image,
        docker_tag=parse_image_name("--docker_tag", flags.docker_tag or f"perfrun/{framework}"),
        extra_build_args=tuple(
            parse_build_arg(text) for text in flags.extra_docker_build_args if text
        ),
    )
    return spec, flags.dry_run


def build_args(spec: ImageSpec) -> tuple[str, ...]:
    """The build arguments as `name=value`; what was left empty is left to the Dockerfile."""
    values = {
        "framework": spec.framework,
        "framework_pip_spec": spec.framework_pip_spec,
        "extra_pip_specs": ";".join(spec.extra_pip_specs),
        "base_image": spec.base_image,
    }
    given = (f"{name}={value}" for name, value in values.items() if value)
    return (*given, *spec.extra_build_args)


def build_argv(spec: ImageSpec, checkout: Path, builder: Builder) -> tuple[str, ...]:
    """The command that builds the image from a checkout of perfrun."""
    argv = ["docker", "build", "--tag", spec.docker_tag]
    if builder is Builder.BUILDX:
        argv.append("--load")  # some of its drivers would keep the image to themselves
    elif builder is Builder.CLASSIC:
        argv.append("--force-rm")  # of a failed build it would keep the container
    for pair in build_args(spec):
        argv += ["--build-arg", pair]
    return (*argv, "--file", str(checkout / "Dockerfile"), str(checkout))


def build_environment(builder: Builder) -> dict[str, str]:
    """What the command needs in its environment besides what is there."""
    return {"DOCKER_BUILDKIT": "1"} if builder is Builder.BUILT_IN else {}


def render_command(argv: Sequence[str], environment: dict[str, str]) -> str:
    """The command as a line for a POSIX shell."""
    assignments = (f"{name}={shlex.quote(value)}" for name, value in environment.items())
    return " ".join([*assignments, *map(shlex.quote, argv)])


def build(spec: ImageSpec, checkout: Path) -> str:
    """Builds the image, with the engine's own output as it comes; returns the result line."""
    engine = find_engine()
    argv = build_argv(spec, checkout, engine.builder)
    environment = build_environment(engine.builder)
    kind = "rootless" if engine.is_rootless else "rootful"
    sys.stderr.write(f"engine {engine.version}, {kind}, {engine.builder.value} builder\n")
    sys.stderr.write(f"+ {render_command(argv, environment)}\n")
    start_s = time.monotonic()
    # The engine's output is progress; standard output is kept for the result.
    status = subprocess.run(
        argv, env={**os.environ, **environment}, stdout=sys.stderr, check=False
    ).returncode
    if status:
        raise BuildError(f"image {spec.docker_tag} was not built: docker ended with {status}")
    took_s = time.monotonic() - start_s
    return f"built {spec.docker_tag} ({describe_image(spec.docker_tag)}) in {took_s:.0f} s"


def preview(spec: ImageSpec, checkout: Path) -> str:
    """The command that `build` would run here; needs neither an engine nor a client."""
    builder = find_builder() if shutil.which("docker") else Builder.BUILDX
    return render_command(build_argv(spec, checkout, builder), build_environment(builder))


def main(argv: Sequence[str]) -> int:
    """The script setup.py: one line of result on standard output, the exit status returned."""
    checkout = Path(__file__).resolve().parent.parent
    try:
        spec, is_dry_run = parse_arguments(argv)
        result = preview(spec, checkout) if is_dry_run else build(spec, checkout)
    except PerfrunError as error:
        sys.stderr.write(f"perfrun: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("perfrun: interrupted; finished steps of the build are kept\n")
        return 130
    sys.stdout.write(result + "\n")
    return 0
