#!/usr/bin/env python3
"""Install an ML framework, or torch and tensorflow, into the interpreter that runs this script.

On a machine without an NVIDIA driver the framework comes without CUDA: on Linux x86-64 a plain
`pip install torch` would bring several gigabytes of it. Each way to get a CPU build is tried in
turn, and what pip means to install is read (`--dry-run --report`) before anything is downloaded.
Nothing that is there already is installed again. Standard library only, Python >= 3.8.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

TORCH_SPEC = "torch==2.13.0"
TORCHVISION_SPEC = "torchvision==0.28.0"
TENSORFLOW_VERSION = "2.21.0"
TENSORFLOW_ROCM_VERSION = "2.14.0.600"  # its last release
JAX_VERSION = "0.10.2"
MINIMUM_PYTHON = (3, 10)  # of the default versions of torch and tensorflow
MINIMUM_PYTHON_OF_JAX = (3, 11)
TENSORFLOW_NAMES = (
    *("tensorflow", "tensorflow-cpu", "tensorflow-rocm"),
    *("tf-nightly", "tf-nightly-cpu", "tf-nightly-rocm"),
)
# torchvision comes without its dependencies, and absl reads the flags of benchmark classes.
TORCH_COMPANIONS = ("numpy", "pillow", "absl-py")
# The models for JAX are in Flax.
JAX_COMPANIONS = ("flax==0.12.8", "numpy", "pillow", "absl-py")

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
PIP_WITH_REPORT = (22, 2)  # the first pip that has `install --dry-run --report`

NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
EXACT = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)==(?P<public>[\w.!]+)(\+(?P<local>[\w.]+))?")
WHEEL = re.compile(r"(?P<name>[\w.]+)-(?P<version>\d[\w.!]*(\+[\w.]+)?)-([^/]+-)?[^-/]+\.whl")
ROCM_BACKEND = re.compile(r"\brocm(\d+)\.(\d+)(?:\.(\d+))?\b")
CUDA_PACKAGE = re.compile(r"(nvidia|cuda)[-_.]", re.IGNORECASE)


class InstallError(Exception):
    """The installation failed; the text says in one line why, and what to do."""


@dataclass(frozen=True)
class Route:
    """One way to install the framework: by pip, or by uv, which knows the places of CPU builds."""

    specs: tuple[str, ...]
    by_uv: bool = False

    def argv(self, uv: str = "uv", backend: str = "cpu") -> tuple[str, ...]:
        if self.by_uv:
            command = (uv, "pip", "install", "--python", sys.executable)
            return (*command, f"--torch-backend={backend}", *self.specs)
        return (*PIP, "install", *self.specs)


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    device = options.device
    if device == "auto":
        device = "cuda" if has_nvidia_driver() else "cpu"
    started = time.perf_counter()
    try:
        _check_interpreter(options)
        done = install(options, device)
    except InstallError as error:
        say(f"install_framework: {error}")
        return 1
    say(f"{done} in {sys.prefix} ({time.perf_counter() - started:.1f} s)")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--framework", required=True, choices=("torch", "tensorflow", "jax", "both"))
    devices = ("auto", "cpu", "cuda", "rocm")
    add("--device", default="auto", choices=devices, help="auto: cuda if driven")
    add("--version", default="", help="of the framework, instead of the default")
    add("--spec", default="", metavar="PIP_SPEC", help="what to install instead of the default")
    add("--extra", default="", metavar="'a;b'", help="more pip specs, separated by semicolons")
    add("--dry_run", action="store_true", help="print the commands and change nothing")
    return parser


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _check_interpreter(options: argparse.Namespace) -> None:
    oldest = MINIMUM_PYTHON_OF_JAX if options.framework == "jax" else MINIMUM_PYTHON
    if not (options.spec or options.version) and sys.version_info < oldest:
        raise InstallError(
            f"the default {options.framework} needs Python >= {oldest[0]}.{oldest[1]}, this is "
            f"{platform.python_version()}; choose an older one with --version or --spec"
        )
    marker = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    allowed = "PIP_BREAK_SYSTEM_PACKAGES" in os.environ or options.dry_run
    if sys.prefix == sys.base_prefix and marker.exists() and not allowed:
        raise InstallError(
            f"{sys.executable} belongs to the operating system; run "
            f"`{sys.executable} -m venv DIR` and use DIR/bin/python"
        )


def has_nvidia_driver() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def plain_torch_has_cuda(system: str = sys.platform, machine: str = platform.machine()) -> bool:
    """Return True when the package registry's build of torch for this platform has CUDA."""
    return system == "linux" and machine.lower() in ("x86_64", "amd64")


def default_spec(framework: str, device: str, version: str = "") -> str:
    """Return the pip spec of one framework, of the version given or of the pinned one."""
    if framework == "torch":
        return f"torch=={version}" if version else TORCH_SPEC
    if framework == "jax":
        return f"jax{'[cuda13]' if device == 'cuda' else ''}=={version or JAX_VERSION}"
    if device == "rocm":
        # 2.13.1 has builds for several releases of ROCm: 2.13.1.540, 2.13.1.600.
        exact = version.count(".") != 2
        return f"tensorflow-rocm=={version or TENSORFLOW_ROCM_VERSION}{'' if exact else '.*'}"
    version = version or TENSORFLOW_VERSION
    if device == "cuda":
        return f"tensorflow[and-cuda]=={version}"
    # Only these platforms have a distribution named tensorflow-cpu; elsewhere `tensorflow` is it.
    slim = sys.platform in ("linux", "win32") and platform.machine() in ("x86_64", "AMD64")
    return f"{'tensorflow-cpu' if slim else 'tensorflow'}=={version}"


def choose_specs(framework: str, device: str, version: str, given: str) -> tuple[str, ...]:
    """Return the pip specs to install; of both frameworks, torch comes first."""
    specs = tuple(part.strip() for part in given.split(";") if part.strip())
    if framework == "jax" and device == "rocm" and not specs:
        raise InstallError("jax has no build for ROCm in the package index; name one with --spec")
    if framework != "both":
        return specs or (default_spec(framework, device, version),)
    if device == "rocm":
        raise InstallError("no releases of torch and tensorflow-rocm go together; choose one")
    torch = tuple(spec for spec in specs if spec_name(spec) == "torch")
    other = tuple(spec for spec in specs if spec not in torch)
    if len(torch) > 1 or len(other) > 1:
        raise InstallError(f"--spec {given}: of both, give one of torch and one of tensorflow")
    return (
        *(torch or (default_spec("torch", device),)),
        *(other or (default_spec("tensorflow", device),)),
    )


def spec_name(spec: str) -> str:
    """Return the distribution that a spec or a wheel file names; empty when only pip can tell."""
    wheel = WHEEL.fullmatch(Path(spec).name)
    return wheel["name"].replace("_", "-") if wheel else re.split(r"[^\w.-]", spec)[0]


def torchvision_spec(torch_spec: str) -> str:
    """Return the torchvision that belongs to a torch: 0.(N+15) to 2.N."""
    if torch_spec == TORCH_SPEC:
        return TORCHVISION_SPEC
    exact, wheel = EXACT.fullmatch(torch_spec), WHEEL.fullmatch(Path(torch_spec).name)
    version = exact["public"] if exact else wheel["version"] if wheel else ""
    release = re.match(r"2\.(\d+)(\.|\+|$)", version)
    return f"torchvision==0.{int(release[1]) + 15}.*" if release else "torchvision"


def routes(
    framework: str, device: str, spec: str, beside: tuple[str, ...] = ()
) -> tuple[Route, ...]:
    """Return the ways to install the framework, the best first; `beside` comes with each."""
    exact = EXACT.fullmatch(spec)
    if framework in ("tensorflow", "jax") or (device == "cpu" and _is_file_or_url(spec)):
        return (Route((spec, *beside)),)
    if device == "cuda":
        # Where pip also sees a CPU build (+cpu), `==` takes that one, and only `===` does not.
        literal = (Route((spec.replace("==", "==="), *beside)),) if exact else ()
        return (Route((spec, *beside)), *literal)
    by_uv = Route((spec, torchvision_spec(spec), *beside), by_uv=True)
    if device == "rocm":
        return (Route((spec, *beside)), by_uv)
    found = []
    if exact and not exact["local"]:
        found.append(Route((f"{spec}+cpu", *beside)))
    if not plain_torch_has_cuda() or (exact and exact["local"]):
        found.append(Route((spec, *beside)))
    return (*found, by_uv)


def _is_file_or_url(spec: str) -> bool:
    return "/" in spec or "@" in spec or spec.endswith(".whl")


def is_satisfied(spec: str, device: str = "cpu") -> bool:
    """Return True when an exact or bare spec is installed; False when only pip can tell."""
    if NAME.fullmatch(spec):
        return installed_version(spec) is not None
    exact = EXACT.fullmatch(spec)
    if not exact:
        return False
    public, _, local = (installed_version(exact["name"]) or "").partition("+")
    if public != exact["public"] or exact["local"] not in (None, local):
        return False
    if device == "rocm":
        return "rocm" in exact["name"] or local.startswith("rocm")
    return device == "cpu" or local != "cpu"


def installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def install(options: argparse.Namespace, device: str) -> str:
    """Install what is missing; return one line about what is installed now."""
    dry_run = options.dry_run
    specs = choose_specs(options.framework, device, options.version, options.spec)
    extras = tuple(part.strip() for part in options.extra.split(";") if part.strip())
    for spec in specs:
        _refuse_rival(spec)
    first, *beside = specs
    complete = all(is_satisfied(spec, device) for spec in specs)
    if not complete:
        ways = routes(options.framework, device, first, tuple(beside))
        _install_framework(ways, first, device, dry_run)
    if options.framework == "jax":
        extras = (*JAX_COMPANIONS, *extras)
    elif options.framework != "tensorflow":
        extras = (*TORCH_COMPANIONS, *extras)
        if not is_satisfied(torchvision_spec(first)):
            complete = False
            # Its dependency is the torch it was built for, which may be the CUDA one.
            _pip(("--no-deps", torchvision_spec(first)), dry_run)
    missing = tuple(extra for extra in extras if not is_satisfied(extra))
    if missing:
        complete = False
        _install_extras(missing, device, dry_run)
    done = "would be installed" if dry_run else "installed"
    return f"{'nothing to do, there already' if complete else done}: {_present(specs, extras)}"


def _refuse_rival(spec: str) -> None:
    """Refuse a second distribution of TensorFlow: it would overwrite files, and pip allows it."""
    name = spec_name(spec)
    for rival in TENSORFLOW_NAMES if name in TENSORFLOW_NAMES else ():
        version = installed_version(rival)
        if version and rival != name:
            raise InstallError(
                f"{rival} {version} is installed in {sys.prefix} and {name} would overwrite its "
                f"files; use a fresh environment, or --spec {rival}=={version}"
            )


def _install_framework(ways: tuple[Route, ...], spec: str, device: str, dry_run: bool) -> None:
    """Install by the first way that works; InstallError says why none does."""
    if dry_run:
        for route in ways:
            say(f"would try: {shlex.join(route.argv())}")
        return
    _need_recent_pip()
    reasons = []
    for route in ways:
        reason = _by_uv(route, device) if route.by_uv else _by_pip(route, device)
        if reason is None:
            return
        reasons.append(reason)
    wanted = f"{spec}+rocm..." if device == "rocm" else ways[0].specs[0]
    raise InstallError(
        f"found no {device} build of {spec} ({'; '.join(reasons)}); set PIP_FIND_LINKS or "
        f"PIP_EXTRA_INDEX_URL to a place that has {wanted}, or choose another --spec"
    )


def _by_pip(route: Route, device: str) -> str | None:
    """Install by pip, unless its plan is not for this device; return why not, or None."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder, "plan.json")
        failure = _quietly(
            (*PIP, "install", "--dry-run", "--quiet", "--report", str(plan), *route.specs)
        )
        if failure:
            return f"pip: {failure}"
        refusal = objection(json.loads(plan.read_text(encoding="utf-8")), device)
    if refusal:
        return f"pip: {route.specs[0]} would bring {refusal}"
    _pip(route.specs, dry_run=False)
    return None


def objection(report: dict[str, Any], device: str) -> str | None:
    """Return what in pip's installation report is not for this device, or None."""
    planned = {
        entry["metadata"]["name"]: entry["metadata"]["version"] for entry in report["install"]
    }
    if device == "cpu":
        cuda = sorted(name for name in planned if CUDA_PACKAGE.match(name))
        return f"{len(cuda)} CUDA packages, {cuda[0]} first" if cuda else None
    version = planned.get("torch") or installed_version("torch") or ""
    if device == "rocm":
        # torch's builds say so in their version; tensorflow-rocm does in its name.
        return f"torch {version}, no build for ROCm" if version and "+rocm" not in version else None
    return f"the CPU build {version}" if version.endswith("+cpu") else None


def _by_uv(route: Route, device: str) -> str | None:
    """Install by a uv of our own that is thrown away afterwards; return why not, or None."""
    with tempfile.TemporaryDirectory() as folder:
        failure = _quietly((*PIP, "install", "--quiet", "--target", folder, "uv"))
        uv = shutil.which("uv", path=str(Path(folder, "bin")))
        if failure or not uv:
            return f"uv could not be had: {failure or 'its wheel has no program'}"
        for backend in _rocm_backends(uv) if device == "rocm" else ("cpu",):
            say(f"+ {shlex.join(route.argv(backend=backend))}")
            failure = _quietly(route.argv(uv, backend), _uv_environment())
            if not failure:
                return None
    return f"uv: {failure or 'knows no build for ROCm'}"


def _rocm_backends(uv: str) -> tuple[str, ...]:
    """Return the releases of ROCm for which this uv knows builds, from its help, newest first."""
    argv = (uv, "pip", "install", "--help")
    text = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    found = {tuple(int(part or 0) for part in match) for match in ROCM_BACKEND.findall(text)}
    return tuple(
        f"rocm{major}.{minor}" + (f".{patch}" if patch else "")
        for major, minor, patch in sorted(found, reverse=True)
    )


def _uv_environment() -> dict[str, str]:
    """Return an environment with the pip settings that uv needs in a closed network."""
    settings = subprocess.run((*PIP, "config", "list"), capture_output=True, text=True, check=False)
    environment = dict(os.environ)
    for setting, variable in (("index-url", "UV_DEFAULT_INDEX"), ("cert", "SSL_CERT_FILE")):
        values = dict(re.findall(rf"(?m)^(\S+)\.{setting}='(.*)'$", settings.stdout))
        value = values.get(":env:") or values.get("install") or values.get("global")
        if value:
            environment.setdefault(variable, value)
    return environment


def _quietly(argv: tuple[str, ...], environment: dict[str, str] | None = None) -> str | None:
    """Run a command without showing it; return its error, or None."""
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    errors = re.findall(r"(?mi)^error: *(.+)$", done.stderr)
    causes = re.findall(r"(?m)^ *cause: *(.+)$", done.stderr)  # uv's; the last is the deepest
    return ": ".join((*errors[-1:], *causes[-1:])) or f"exit status {done.returncode}"


def _need_recent_pip() -> None:
    done = subprocess.run((*PIP, "--version"), capture_output=True, text=True, check=False)
    version = re.match(r"pip (\d+)\.(\d+)", done.stdout)
    if not version:
        raise InstallError(f"{sys.prefix} has no pip; run `{sys.executable} -m ensurepip`")
    if (int(version[1]), int(version[2])) < PIP_WITH_REPORT:
        _pip(("--upgrade", "pip"), dry_run=False)


def _pip(arguments: tuple[str, ...], dry_run: bool) -> None:
    argv = (*PIP, "install", *arguments)
    say(f"{'would run:' if dry_run else '+'} {shlex.join(argv)}")
    if not dry_run and subprocess.run(argv, stdout=sys.stderr, check=False).returncode:
        raise InstallError(f"pip could not install {' '.join(arguments)}; its output is above")


def _install_extras(specs: tuple[str, ...], device: str, dry_run: bool) -> None:
    """Install extras beside the framework, whose version and build must stay."""
    with tempfile.TemporaryDirectory() as folder:
        fixed = Path(folder, "framework.txt")
        pinned = ("torch", "torchvision", "jax", "jaxlib", *TENSORFLOW_NAMES)
        found = {name: installed_version(name) for name in pinned}
        lines = [f"{name}=={version}\n" for name, version in found.items() if version]
        fixed.write_text("".join(lines), encoding="utf-8")
        wanted = ("--constraint", str(fixed), *specs)
        if device == "cpu" and not dry_run:
            plan = Path(folder, "plan.json")
            argv = (*PIP, "install", "--dry-run", "--quiet", "--report", str(plan), *wanted)
            # If there can be no plan, the installation fails and shows why.
            failure = _quietly(argv)
            refusal = None if failure else objection(json.loads(plan.read_text("utf-8")), device)
            if refusal:
                raise InstallError(f"{' '.join(specs)} would bring {refusal}; leave them out")
        _pip(wanted, dry_run)


def _present(specs: tuple[str, ...], extras: tuple[str, ...]) -> str:
    importlib.invalidate_caches()
    wanted = map(spec_name, (*specs, "torch", "torchvision", *extras))
    versions = {name: installed_version(name) for name in wanted if NAME.fullmatch(name)}
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)


if __name__ == "__main__":
    sys.exit(main())
