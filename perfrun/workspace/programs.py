"""Programs that make an environment: interpreters, venv, pip. Each ends within a limit."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfrun.errors import UsageError
from perfrun.text import redact

_QUICK_S = 120.0  # an interpreter on a busy network disk
INSTALL_S = 3600.0  # gigabytes of a framework
_SHOWN = 300  # characters of a program's last line
_ABOUT = "import sys; print('%d.%d %s' % (*sys.version_info[:2], sys.implementation.name))"


class ProgramError(UsageError):
    """A program that ended with an error."""

    def __init__(self, message: str, said: str = "") -> None:
        super().__init__(message)
        self.said = said  # all that it printed about it


def carry_out(words: Sequence[str], what: str, limit_s: float, env: Mapping[str, str]) -> str:
    """Run a program to its end and return its output. Raises UsageError with its last line."""
    try:
        process = subprocess.Popen(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=dict(env),
            start_new_session=True,
        )
    except OSError as error:
        raise UsageError(f"{what}: {words[0]} cannot be started: {error.strerror}") from None
    with process:
        try:
            output, errors = process.communicate(timeout=limit_s)
        except BaseException as error:
            # pip runs itself again for another interpreter: both must end.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise UsageError(f"{what}: no end within {limit_s:g} s") from None
            raise
    if process.returncode:
        lines = [one.strip() for one in (errors or output).splitlines() if one.strip()]
        told = [one for one in lines if one.startswith("ERROR:")] or lines
        why = redact(told[-1])[:_SHOWN] if told else f"exit status {process.returncode}"
        raise ProgramError(f"{what}: {why}", said=errors)
    return output


def variables(*, isolated: bool = False) -> dict[str, str]:
    """Return the variables of such a program: nothing that changes an interpreter's path.

    `isolated` takes pip's settings away, too: nothing but what it is given then counts.
    """
    hidden = ("PYTHON", "PIP_", "VIRTUAL_ENV") if isolated else ("PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "LC_ALL": "C.UTF-8"}
    return {**kept, **quiet, **({"PIP_CONFIG_FILE": os.devnull} if isolated else {})}


def kind_of(python: str) -> str:
    """Return an interpreter's kind, as `3.11 cpython`. Raises UsageError when it does not run."""
    return carry_out([python, "-c", _ABOUT], python, _QUICK_S, variables()).strip()


def fitting_python(version: str, implementation: str, named: str) -> str:
    """Return an interpreter of a version (3.11) and implementation, the one named if there is one.

    Raises UsageError: compiled wheels of one version do not work in another.
    """
    wanted = f"{version} {implementation}"
    if named:
        found = kind_of(named)
        if found != wanted:
            raise UsageError(f"--python={named}: is {found}; the result is of {wanted}")
        return named
    there = [sys.executable, shutil.which(f"python{version}"), shutil.which("python3")]
    for python in filter(None, there):
        with contextlib.suppress(UsageError):  # a broken one is not the only one
            if kind_of(python) == wanted:
                return python
    raise UsageError(f"there is no Python {version} ({implementation}) on PATH; --python names one")


def make_venv(folder: Path, python: str) -> Path:
    """Make a virtual environment without pip; return its interpreter. Raises UsageError."""
    words = [python, "-m", "venv", "--clear", "--without-pip", str(folder)]
    carry_out(words, "the environment cannot be made", _QUICK_S, variables())
    return folder / "bin" / "python"


def pip_words(python: Path, wheel: Path | None) -> list[str]:
    """Return the words that run pip for an environment: pip's wheel, or that of perfrun's own."""
    if wheel is not None:
        return [str(python), str(wheel / "pip")]  # a wheel of pip runs without being installed
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "--python", str(python)]
    words = [str(python), "-m", "ensurepip"]
    carry_out(words, "there is no pip, neither here nor in the capsule", _QUICK_S, variables())
    return [str(python), "-m", "pip"]


def install_from(
    wheels: Path, python: Path, pip: Path | None, pinned: Mapping[str, tuple[str, str]]
) -> None:
    """Install distributions (name to version and SHA-256) from a folder, and from nowhere else."""
    requirements = wheels.parent / "requirements.txt"
    lines = [f"{name}=={each} --hash=sha256:{sum_}" for name, (each, sum_) in pinned.items()]
    requirements.write_text("".join(f"{one}\n" for one in lines), encoding="utf-8")
    words = [
        *pip_words(python, pip),
        *("install", "--quiet", "--isolated", "--no-index", "--find-links", str(wheels)),
        *("--no-deps", "--no-cache-dir", "--require-hashes", "--no-warn-script-location"),
        *("--requirement", str(requirements)),
    ]
    carry_out(words, "the capsule's environment", INSTALL_S, variables(isolated=True))
