"""Measure what a container costs a trial: its start, and the slowdown of a benchmark inside."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from overhead.processes import (
    NOOP,
    MeasurementError,
    Settings,
    finish,
    in_turns,
    perfrun,
    run_argv,
)
from overhead.table import Row

MANY = 6
WORK = {
    "computes": "CPU-bound work in a container",
    "allocates": "allocation-heavy work in a container",
}
START = "container per trial: a no-op trial in one, less one on the host"
PAIRS_PER_ROUND = 2


def containment_rows(settings: Settings) -> list[Row]:
    """Measure the start cost, and the same work inside and outside, in turns."""
    why_not = _missing(settings.image)
    if why_not or settings.image is None:
        return [Row(what=what, unit="s", skipped=why_not) for what in (START, *WORK.values())]
    return [_start_row(settings, settings.image), *_work_rows(settings, settings.image)]


def _missing(image: str | None) -> str | None:
    """Return the reason why nothing can be measured here; None when there is none."""
    if image is None:
        return "no --image"
    try:
        done = subprocess.run(
            ["docker", "image", "inspect", image], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return "no container engine here"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["the engine does not answer"])[-1]
    return None


def _start_row(settings: Settings, image: str) -> Row:
    """Return (time of a run with MANY no-ops - time with one) / (MANY - 1), inside less outside."""
    workspace = settings.scratch / "containment"
    inside = f"--image={image}"

    def whole(count: int, *words: str) -> Callable[[], float]:
        return lambda: finish(run_argv(workspace, [NOOP] * count, *words)).wall_s

    perfrun(workspace, [NOOP], inside)  # raises unless it passes
    taken = in_turns(settings.rounds, whole(1, inside), whole(MANY, inside), whole(1), whole(MANY))
    costs = [
        ((many_inside - one_inside) - (many - one)) / (MANY - 1)
        for one_inside, many_inside, one, many in zip(*taken, strict=True)
    ]
    return Row(what=START, unit="s", values=tuple(costs))


def _work_rows(settings: Settings, image: str) -> list[Row]:
    """Measure the same work by the same interpreter, inside a container and outside."""
    try:
        inside, outside = _interpreters(image, settings.scratch)
        perfrun(settings.scratch / "containment", [NOOP], f"--python={outside}")
    except (MeasurementError, OSError, subprocess.CalledProcessError) as error:
        why_not = f"the image's interpreter does not run on this host: {error}"
        return [Row(what=what, unit="s", skipped=why_not) for what in WORK.values()]
    words = (f"--image={image} --image_python={inside}".split(), [f"--python={outside}"])
    return [_work_row(settings, method, what, *words) for method, what in WORK.items()]


def _interpreters(image: str, scratch: Path) -> tuple[str, str]:
    """Return the image's interpreter, and a program that runs the very same files on this host.

    Its loader, its libraries and its standard library are copied out of the image, so that nothing
    but the container differs.
    """
    show = "import os, sys; print(os.path.realpath(sys.executable)); print(sys.base_prefix)"
    python, prefix = _docker(
        "run", "--rm", "--network=none", "--entrypoint=python3", image, "-c", show
    ).split()
    root = scratch / "image"
    root.mkdir()
    container = _docker("create", image, "none").strip()
    try:
        export = subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE)
        parts = [
            "usr/bin",
            "usr/lib",
            "usr/lib64",
            "usr/local/bin",
            "usr/local/lib",
            "lib",
            "lib64",
        ]
        tar = ["tar", "--extract", f"--directory={root}", "--exclude=*-packages", *parts]
        # tar complains of a part that the image does not have; a needed file is missed later.
        subprocess.run(tar, stdin=export.stdout, stderr=subprocess.DEVNULL, check=False)
        export.communicate()
    finally:
        _docker("rm", container)
    return python, str(_program(root, python, prefix, scratch / "python of the image"))


def _program(root: Path, python: str, prefix: str, target: Path) -> Path:
    loader = next((path for path in root.glob("lib*/ld-linux-*")), None)
    if loader is None:
        raise MeasurementError("it has no loader of glibc")
    folders = [
        *root.glob("lib/*-linux-gnu*"),
        *root.glob("usr/lib/*-linux-gnu*"),
        root / prefix[1:],
    ]
    path = ":".join(str(folder) for folder in [*folders, root / prefix[1:] / "lib"])
    words = map(shlex.quote, [str(loader), "--library-path", path, f"{root}{python}"])
    home = shlex.quote(f"{root}{prefix}")
    target.write_text(f'#!/bin/sh\nPYTHONHOME={home} exec {" ".join(words)} "$@"\n', "utf-8")
    target.chmod(0o755)
    return target


def _docker(*words: str) -> str:
    return subprocess.run(["docker", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def _work_row(
    settings: Settings, method: str, what: str, inside: Sequence[str], outside: Sequence[str]
) -> Row:
    workspace = settings.scratch / "containment"

    def work_s(words: Sequence[str]) -> Callable[[], float]:
        return lambda: _wall_s(workspace, method, words)

    values, references = in_turns(
        PAIRS_PER_ROUND * settings.rounds, work_s(inside), work_s(outside)
    )
    return Row(
        what=what,
        unit="s",
        values=values,
        reference="the same on the host",
        references=references,
    )


def _wall_s(workspace: Path, method: str, words: Sequence[str]) -> float:
    run = perfrun(workspace, [f"contained.Contained.{method}"], *words)
    return float(run.summaries[0]["benchmark_result"]["wall_time"])
