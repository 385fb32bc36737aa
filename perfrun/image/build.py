"""The commands that build an image, and their run. The only module that spells `docker build`.

Two commands: the build itself, then a layerless build on top that adds the label `perfrun.lock`.
What is installed is only known after the build, and a Dockerfile cannot compute a label.
Standard library only, Python >= 3.8.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping

from perfrun.errors import PerfrunError
from perfrun.image.context import CONTEXT, make_context
from perfrun.image.engine import Builder, explain_fetch, query
from perfrun.image.lock import is_image_info
from perfrun.image.spec import ImageSpec, build_args

IMAGE_INFO = "/opt/perfrun/image.json"
LOCK_LABEL = "perfrun.lock"
LOCK_VARIABLE = "PERFRUN_LOCK"
# Stands for the folder of a context that does not exist yet. The space makes shlex quote any word
# that holds it, so that it can be replaced by a shell variable.
CONTEXT_TO_COME = "{the context}"
# What the scripts of a build say when they give up, behind BuildKit's step number and seconds.
LAST_WORDS = re.compile(r"^(?:#\d+ +)?(?:\d+\.\d+ )?(?:perfrun|install_framework): (.+)$")
# What the engine itself says then.
ENGINES_WORDS = re.compile(r"^(?:ERROR: )?failed to solve(?: with frontend \S+)?: (.+)$")
# Of these words, those that are about an image that the Dockerfile is built on, and its name.
FETCHING = re.compile(
    r"failed to do request|pull access denied|source metadata for|failed to authorize|"
    r"failed to resolve reference|failed to fetch"
)
LOADING = re.compile(r"^#\d+ \[internal\] load metadata for (\S+)$")
FETCHED = re.compile(r"(?:metadata for|denied for|resolve reference) \"?([^\s\",]+?)\"?(?:[:,] |$)")


class BuildError(PerfrunError):
    """The engine could not build the image; its own words came before this one's."""

    exit_code = 1


@dataclass(frozen=True)
class Command:
    """A program to run: its words, what it reads, and what it needs in its environment."""

    argv: tuple[str, ...]
    stdin: str = ""
    environment: tuple[tuple[str, str], ...] = ()

    def render(self) -> str:
        """The command as a line for a POSIX shell; credentials included, as they are run."""
        pipe = f"printf %s {shlex.quote(self.stdin)} | " if self.stdin else ""
        assignments = (f"{name}={shlex.quote(value)}" for name, value in self.environment)
        line = pipe + " ".join([*assignments, *map(shlex.quote, self.argv)])
        return line.replace(CONTEXT_TO_COME, "'\"$context\"'")


def build_command(
    spec: ImageSpec, context: str, builder: Builder, harness: Mapping[str, str]
) -> Command:
    """The command that builds the image from a context: a checkout, or a copy of one."""
    dockerfile = str(spec.dockerfile) if spec.dockerfile else f"{context}/Dockerfile"
    pairs = (*build_args(spec), *(f"{name}={value}" for name, value in harness.items() if value))
    if builder is Builder.COMPOSE:
        build: dict[str, Any] = {"context": context, "dockerfile": dockerfile}
        build["args"] = dict(pair.split("=", 1) for pair in pairs)
        if spec.is_offline:
            build["network"] = "none"
        return compose_build(spec.docker_tag, build, context)
    argv = ["docker", "build", "--tag", spec.docker_tag, "--progress", "plain"]
    if builder is Builder.BUILDX:
        argv.append("--load")  # some of its drivers would keep the image to themselves
    if spec.is_offline:
        argv += ["--network", "none"]
    for pair in pairs:
        argv += ["--build-arg", pair]
    return Command((*argv, "--file", dockerfile, context), environment=_environment(builder))


def compose_build(tag: str, build: dict[str, Any], context: str) -> Command:
    """A build by Compose, of a file that holds nothing else; JSON is YAML too."""
    document = {"services": {"image": {"image": tag, "build": _literal(build)}}}
    argv = ("docker", "compose", "--project-name", "perfrun", "--project-directory", context)
    options = ("--env-file", os.devnull, "--file", "-", "--progress", "plain", "build")
    return Command((*argv, *options), stdin=json.dumps(document))


def _literal(value: Any) -> Any:
    """Compose replaces variables in what it reads: a dollar sign is written twice."""
    if isinstance(value, dict):
        return {name: _literal(each) for name, each in value.items()}
    return value.replace("$", "$$") if isinstance(value, str) else value


def label_command(spec: ImageSpec, context: str, builder: Builder, lock: str) -> Command:
    """The command that gives the built image its lock as a label; adds no layer."""
    if builder is Builder.COMPOSE:
        build = {"context": context, "dockerfile_inline": f"FROM {spec.docker_tag}\n"}
        return compose_build(spec.docker_tag, {**build, "labels": {LOCK_LABEL: lock}}, context)
    load = ("--load",) if builder is Builder.BUILDX else ()
    argv = ("docker", "build", "--tag", spec.docker_tag, *load, "--label", f"{LOCK_LABEL}={lock}")
    return Command(
        (*argv, "-"), stdin=f"FROM {spec.docker_tag}\n", environment=_environment(builder)
    )


def info_command(tag: str) -> Command:
    """The command that prints what an image was built from and with."""
    words = ("--rm", "--network", "none", "--entrypoint", "cat", tag, IMAGE_INFO)
    return Command(("docker", "run", *words))


def _environment(builder: Builder) -> tuple[tuple[str, str], ...]:
    return (("DOCKER_BUILDKIT", "1"),) if builder is Builder.BUILT_IN else ()


def render_script(
    spec: ImageSpec, checkout: Path, builder: Builder, harness: Mapping[str, str]
) -> str:
    """All that a build runs, as lines to paste into a POSIX shell."""
    context = CONTEXT_TO_COME if spec.site else str(checkout)
    lines = []
    if spec.site:
        names = " ".join(shlex.quote(str(checkout / name)) for name in CONTEXT)
        lines.append(f'context="$(mktemp -d)" && cp -R {names} "$context"')
    for file in spec.site:
        target = shlex.quote(f"{CONTEXT_TO_COME}/scripts/site/{file.name}")
        lines.append(f'mkdir -p "$(dirname {target})"')
        what = f"printf %s {shlex.quote(file.text)} >"
        lines.append(f"cp -R {shlex.quote(str(file.source))}" if file.source else what)
        lines[-1] += f" {target}"
    lines.append(build_command(spec, context, builder, harness).render())
    info = f'"$({info_command(spec.docker_tag).render()})"'
    label = label_command(spec, context, builder, f"${LOCK_VARIABLE}").render()
    label = label.replace(f"'{LOCK_LABEL}=${LOCK_VARIABLE}'", f'{LOCK_LABEL}="${LOCK_VARIABLE}"')
    label = label.replace(f"$${LOCK_VARIABLE}", f"${LOCK_VARIABLE}")
    lines += [f"{LOCK_VARIABLE}={info}", f"export {LOCK_VARIABLE}", label]
    script = " && \\\n".join(lines).replace(CONTEXT_TO_COME, "'\"$context\"'")
    return script + ('\nrm -rf "$context"' if spec.site else "")


def run_build(
    spec: ImageSpec, checkout: Path, builder: Builder, harness: Mapping[str, str]
) -> dict[str, Any] | None:
    """Builds and labels; returns what the image says it was built with, None if it says nothing."""
    if not spec.site:
        return _run_build(spec, str(checkout), builder, harness)
    with tempfile.TemporaryDirectory(prefix="perfrun-context-") as folder:
        make_context(checkout, spec.site, Path(folder))
        return _run_build(spec, folder, builder, harness)


def _run_build(
    spec: ImageSpec, context: str, builder: Builder, harness: Mapping[str, str]
) -> dict[str, Any] | None:
    _run(build_command(spec, context, builder, harness), spec.docker_tag)
    unlabelled = query("image", "inspect", "--format", "{{.Id}}", spec.docker_tag).stdout.strip()
    answer = query(*info_command(spec.docker_tag).argv[1:])
    info = _parse(answer.stdout)
    if info is None:
        sys.stderr.write(f"no {IMAGE_INFO} in the image, so it gets no label {LOCK_LABEL}\n")
        return None
    _run(label_command(spec, context, builder, answer.stdout.strip()), spec.docker_tag)
    _remove_nameless(unlabelled)
    return info


def _parse(text: str) -> dict[str, Any] | None:
    try:
        info = json.loads(text)
    except ValueError:
        return None
    return info if is_image_info(info) else None


def _remove_nameless(image: str) -> None:
    """Removes the image under the labelled one, unless it has a name of somebody else's giving."""
    if query("image", "inspect", "--format", "{{len .RepoTags}}", image).stdout.strip() == "0":
        query("image", "rm", image)


def explain_engine(line: str, base: str = "") -> str:
    """Why the engine gave up, from a line of its progress; empty for any other line.

    `base` is the image that it was at, as earlier lines tell: the last one of old engines does not.
    """
    found = ENGINES_WORDS.match(line)
    said = found[1].strip() if found else ""
    if not FETCHING.search(said):
        return said
    image = FETCHED.search(said)
    name = image[1] if image else base
    return f"{name or 'its base image'} could not be fetched: {explain_fetch(said, name)}"


def _run(command: Command, tag: str) -> None:
    """Runs a build; what it says is progress, and its scripts' last words are the error."""
    with subprocess.Popen(
        command.argv,
        env={**os.environ, **dict(command.environment)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin:
            process.stdin.write(command.stdin)
        last_words = engines_words = base = ""
        for line in process.stdout:
            sys.stderr.write(line)
            found = LAST_WORDS.match(line)
            last_words = found[1].strip() if found else last_words
            fetched = LOADING.match(line)
            base = fetched[1] if fetched else base
            engines_words = explain_engine(line, base) or engines_words
    if process.returncode:
        why = last_words or engines_words or f"docker ended with {process.returncode}"
        raise BuildError(f"image {tag} was not built: {why}")
