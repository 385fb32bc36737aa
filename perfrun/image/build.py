"""The build of an image, as lines for a POSIX shell: `--dry_run` prints what a build runs.

There are two builds: the Dockerfile's, then one on top, without a layer, that adds the label
`perfrun.lock`. The installed versions are known only after the first, and a Dockerfile cannot
compute a label.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path
from shlex import quote
from typing import Any, Mapping, Optional, Sequence

from perfrun.errors import PerfrunError
from perfrun.image.context import context_commands
from perfrun.image.engine import explain_fetch, query
from perfrun.image.lock import is_image_info
from perfrun.image.spec import ImageSpec, build_args

IMAGE_INFO = "/opt/perfrun/image.json"
SBOM = "/opt/perfrun/sbom.cdx.json"
LOCK_LABEL = "perfrun.lock"
LOG_LINES = 200
SHOW_LIMIT_S = 300  # for a container that prints one file
# Beginnings of the last line of a script of the Dockerfile that has failed.
SCRIPTS = ("perfrun: ", "install_framework: ")
# BuildKit's words for an image that it could not fetch.
FETCHING = (
    *("failed to do request", "pull access denied", "source metadata for", "failed to authorize"),
    *("failed to resolve reference", "failed to fetch"),
)


class BuildError(PerfrunError):
    """The engine could not build the image; its own output came before."""

    exit_code = 1


def build_command(
    spec: ImageSpec, checkout: Path, builder: Sequence[str], harness: Mapping[str, str]
) -> str:
    """Return the command of the Dockerfile's build, with credentials.

    Files of this machine are in a copy of the checkout, which `$context` names.
    """
    context = '"$context"' if spec.site else quote(str(checkout))
    dockerfile = quote(str(spec.dockerfile)) if spec.dockerfile else f"{context}/Dockerfile"
    pairs = (*build_args(spec), *(f"{name}={value}" for name, value in harness.items() if value))
    options = ["--tag", spec.docker_tag, "--progress", "plain"]
    options += ["--network", "none"] if spec.is_offline else []
    options += [word for pair in pairs for word in ("--build-arg", pair)]
    return f"{_join(builder, options)} --file {dockerfile} {context}"


def label_command(tag: str, builder: Sequence[str]) -> str:
    """Return the command that adds `image.json` of an image, if it has one, as a label."""
    label = f'{_join(builder, ("--tag", tag))} --label {LOCK_LABEL}="$lock" -'
    return f'if lock="$({_show(tag, IMAGE_INFO)})"; then\n  echo FROM {quote(tag)} | {label}\nfi'


def sbom_command(tag: str, target: Path) -> str:
    """Return the command that copies an image's bill of materials to a file of this machine.

    What the file was before stays, unless there is a whole new one.
    """
    return f'sbom="$({_show(tag, SBOM)})" && printf \'%s\\n\' "$sbom" > {quote(str(target))}'


def _show(tag: str, path: str) -> str:
    """Return the command that prints a file of an image."""
    return _join(("docker", "run", "--rm", "--network", "none", "--entrypoint", "cat", tag, path))


def _join(*words: Sequence[str]) -> str:
    return " ".join(quote(word) for group in words for word in group)


def render_script(
    spec: ImageSpec,
    checkout: Path,
    builder: Sequence[str],
    harness: Mapping[str, str],
    sbom: Optional[Path] = None,
) -> str:
    """Return all commands of a build as lines to paste into a shell."""
    lines = [
        *context_commands(checkout, spec.site),
        build_command(spec, checkout, builder, harness),
        label_command(spec.docker_tag, builder),
        *([sbom_command(spec.docker_tag, sbom)] if sbom else []),
    ]
    if not spec.site:
        return " && \\\n".join(lines)
    return " && \\\n".join(('context="$(mktemp -d)"', *lines)) + '\nrm -rf "$context"'


def run_build(
    spec: ImageSpec, checkout: Path, builder: Sequence[str], harness: Mapping[str, str]
) -> dict[str, Any] | None:
    """Build and label an image; return its `image.json`, None when it has none."""
    lines = context_commands(checkout, spec.site)
    lines.append(build_command(spec, checkout, builder, harness))
    with tempfile.TemporaryDirectory(prefix="perfrun-context-") as context:
        _run(" && \\\n".join(lines), spec, context)
    unlabelled = _inspect(spec.docker_tag, "{{.Id}}")
    _run(label_command(spec.docker_tag, builder), spec)
    # The unlabelled image is removed, unless somebody else has given it a name.
    if _inspect(unlabelled, "{{len .RepoTags}}") == "0":
        query("image", "rm", unlabelled)
    info = _parse(_inspect(spec.docker_tag, f'{{{{index .Config.Labels "{LOCK_LABEL}"}}}}'))
    if info is None:
        sys.stderr.write(f"no {IMAGE_INFO} in the image, so it has no label {LOCK_LABEL}\n")
    return info


def write_sbom(spec: ImageSpec, target: Path) -> None:
    """Copy the image's bill of materials to a file. Raises BuildError."""
    try:
        done = subprocess.run(
            ("sh", "-c", sbom_command(spec.docker_tag, target)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=False,
            timeout=SHOW_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        why = f"the engine has not shown it in {SHOW_LIMIT_S} s"
    else:
        if not done.returncode:
            return
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = said[-1] if said else f"docker ended with {done.returncode}"
    raise BuildError(f"image {spec.docker_tag} was built, but --sbom={target} not written: {why}")


def _inspect(image: str, template: str) -> str:
    return query("image", "inspect", "--format", template, image).stdout.strip()


def _parse(text: str) -> dict[str, Any] | None:
    try:
        info = json.loads(text)
    except ValueError:
        return None
    return info if is_image_info(info) else None


def _run(script: str, spec: ImageSpec, context: str = "") -> None:
    """Run a build, with its output on standard error. Raises BuildError."""
    log: deque[str] = deque(maxlen=LOG_LINES)
    with subprocess.Popen(
        ("sh", "-c", script),
        env={**os.environ, "context": context},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stderr.write(line)
            log.append(line)
    if process.returncode:
        why = explain_failure(log, spec.base_image) or f"docker ended with {process.returncode}"
        raise BuildError(f"image {spec.docker_tag} was not built: {why}")


def explain_failure(log: Sequence[str], base: str = "") -> str:
    """Return why a build failed: the last line of the Dockerfile's scripts, else of the log."""
    for line in reversed(log):
        # BuildKit puts its step number and seconds first.
        said = line.split(" ", 2)[-1] if line.startswith("#") else line
        if said.startswith(SCRIPTS):
            return said.partition(": ")[2].strip()
    last = next((line.strip() for line in reversed(log) if line.strip()), "")
    if any(words in last for words in FETCHING):
        return f"{base or 'its base image'} could not be fetched: {explain_fetch(last, base)}"
    return last
