"""The program behind setup.py: build or load a container image on a bare host."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Optional, Sequence

from perfrun.errors import PerfrunError
from perfrun.image.build import BuildError, build_command, render_script, run_build, write_sbom
from perfrun.image.engine import Engine, EngineError, describe_image, find_builder, find_engine
from perfrun.image.env_file import write_settings
from perfrun.image.gpus import GpuSupport, Vendor, read_gpu_support
from perfrun.image.lock import differences
from perfrun.image.saved import load_image, render_load
from perfrun.image.setup_flags import Request, parse_arguments
from perfrun.image.site_packages import copy_site_packages
from perfrun.image.spec import ImageSpec
from perfrun.text import redact

VENDORS = {"cuda": Vendor.NVIDIA, "rocm": Vendor.AMD}


def say(line: str) -> None:
    """Print progress and notes on standard error; standard output is for the result."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def harness_arguments(checkout: Path) -> dict[str, str]:
    """Return perfrun's commit as build arguments for `harness_info`; {} without git or checkout."""
    if not (checkout / ".git").exists():
        return {}

    def ask(*words: str) -> str:
        # The checkout may belong to the caller of sudo, and its index must stay theirs.
        whose = ("--no-optional-locks", "-C", str(checkout), "-c", "safe.directory=*")
        argv = ("git", *whose, *words)
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip()

    commit = ask("rev-parse", "--verify", "--quiet", "HEAD")
    if not commit:
        return {}
    return {
        "harness_url": redact(ask("config", "--get", "remote.origin.url")),
        "harness_branch": ask("rev-parse", "--abbrev-ref", "HEAD"),
        "harness_hash": commit,
        "harness_modified": "yes" if ask("status", "--porcelain", "-uno") else "",
    }


def gpu_notes(device: str, gpus: GpuSupport) -> list[str]:
    """Return notes on the chosen device. A missing GPU is no error: images are used elsewhere."""
    vendor = VENDORS.get(device)
    if vendor is None:
        if gpus.vendor is None:
            return []
        other = "cuda" if gpus.vendor is Vendor.NVIDIA else "rocm"
        return [f"note: this machine has a GPU; --device={other} builds an image that uses it"]
    if gpus.vendor is not vendor:
        name = vendor.value.upper()
        return [f"warning: no {name} GPU was found here; the image is built for use elsewhere"]
    if gpus.access is None:
        return [f"warning: containers cannot use the GPU of this machine: {gpus.why_not}"]
    return [f"GPU {gpus.vendor.value}, containers get it by {gpus.access.value}"]


def notes(spec: ImageSpec, gpus: GpuSupport) -> list[str]:
    """Return the notes to print before a build."""
    lines = gpu_notes(spec.device, gpus)
    if spec.device == "rocm" and spec.framework == "tensorflow" and not spec.base_image:
        lines.append("warning: tensorflow-rocm needs a --base_image that has the ROCm libraries")
    urls = (spec.index_url, spec.extra_index_url, *spec.find_links)
    if any(redact(url) != url for url in urls):
        lines.append("warning: the password in a package url can be read in the image's history")
    return lines


def build(spec: ImageSpec, checkout: Path, engine: Engine, sbom: Optional[Path] = None) -> str:
    """Build the image and show the engine's output as it comes; return the result line."""
    builder = find_builder()
    gpus = read_gpu_support(engine.info)
    harness = harness_arguments(checkout)
    say(f"engine {engine.version}, {engine.kind}")
    for line in notes(spec, gpus):
        say(line)
    say(f"+ {redact(build_command(spec, checkout, builder, harness))}")
    start_s = time.monotonic()
    info = run_build(spec, checkout, builder, harness)
    took_s = time.monotonic() - start_s
    if spec.lock is not None and info is not None:
        others = differences(spec.lock, info["distributions"])
        if others:
            raise BuildError(
                f"image {spec.docker_tag} was built, but not as locked: {'; '.join(others)}"
            )
    if sbom is not None:
        write_sbom(spec, sbom)
    for line in write_settings(checkout, spec, gpus):
        say(line)
    return f"built {spec.docker_tag} ({describe_image(spec.docker_tag)}) in {took_s:.0f} s"


def preview(request: Request, checkout: Path) -> str:
    """Return the commands that `carry_out` would run; needs neither an engine nor a client."""
    lines = [
        f"# {source} -> {request.workspace}/site-packages/{name}"
        for source, name in request.site_packages
    ]
    if request.saved_image is not None:
        lines.append(render_load(request.saved_image, request.load_as))
    if request.spec is not None:
        try:
            builder = find_builder()
        except EngineError:  # the commands are for another machine
            builder = ("DOCKER_BUILDKIT=1", "docker", "build")
        harness = harness_arguments(checkout)
        lines.append(render_script(request.spec, checkout, builder, harness, request.sbom))
    return "\n".join(lines)


def carry_out(request: Request, checkout: Path) -> str:
    """Do the work in PerfZero's order: copies first, then the image."""
    results = []
    if request.site_packages:
        results += copy_site_packages(request.site_packages, request.workspace)
    if request.saved_image is not None:
        engine = find_engine()
        say(f"engine {engine.version}, {engine.kind}")
        results.append(
            load_image(
                request.saved_image, request.load_as, request.workspace, request.ca_certificate
            )
        )
    if request.spec is not None:
        results.append(build(request.spec, checkout, find_engine(), request.sbom))
    return "\n".join(results) or "nothing to do: --dockerfile_path is empty"


def main(argv: Sequence[str]) -> int:
    """Print one line for each result; return the exit status."""
    checkout = Path(__file__).resolve().parent.parent.parent
    try:
        request = parse_arguments(argv, checkout)
        result = preview(request, checkout) if request.is_dry_run else carry_out(request, checkout)
    except PerfrunError as error:
        sys.stderr.write(f"perfrun: {error.line}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("perfrun: interrupted; finished steps of the build are kept\n")
        return 130
    except OSError as error:
        sys.stderr.write(f"perfrun: {os.fspath(error.filename or '')}: {error.strerror}\n")
        return 3
    sys.stdout.write(result + "\n")
    return 0
