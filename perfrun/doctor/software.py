"""git, and the Python environment under test."""

from __future__ import annotations

import shutil
import subprocess

from perfrun.doctor.check import Check, install_command, presence
from perfrun.probes.sysfs import Sysfs
from perfrun.summary.document import Environment

TIMEOUT_S = 20.0
_FRAMEWORKS = (
    "torch",
    "tensorflow",
    "tensorflow-cpu",
    "tf-nightly",
    "tf-nightly-cpu",
    "jax",
)


def git(sysfs: Sysfs) -> Check:
    """Whether git is there, and which."""
    version, value = None, "no command `git`"
    if shutil.which("git"):
        try:
            done = subprocess.run(
                ["git", "--version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
            )
            version = done.stdout.partition("version ")[2].strip() or None
            value = version or f"`git --version` ended with status {done.returncode}"
        except (OSError, subprocess.TimeoutExpired) as error:
            value = str(error)
    return Check(
        name="git",
        wanted="git",
        presence=presence(version is not None),
        value=value,
        why="--git_repos checks out with it",
        mend=None if version else install_command(sysfs, {"*": "git"}),
    )


def python(found: Environment | None, problem: str | None) -> Check:
    """Whether the interpreter under test works, and the frameworks installed beside it.

    `problem` is why it does not; both None when it could not be asked.
    """
    value = problem
    if found is not None:
        names = [name for name in _FRAMEWORKS if name in found.distributions]
        frameworks = ", ".join(f"{name} {found.distributions[name]}" for name in names)
        value = f"{found.python['version']}, {frameworks or 'no framework'}"
    return Check(
        name="python",
        wanted="Python under test",
        presence=presence(None if found is None and problem is None else found is not None),
        value=value,
        why="trials run in it; a framework is needed only by benchmarks that use it",
        mend="perfrun --python=FILE, a Python 3.8 or newer" if problem else None,
    )
