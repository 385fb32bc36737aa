"""Check git and the Python environment under test."""

from __future__ import annotations

import shutil

from perfrun.doctor.check import Check, install_command, presence
from perfrun.probes.commands import command_output
from perfrun.probes.sysfs import Sysfs
from perfrun.summary.document import Environment

TIMEOUT_S = 20.0  # an engine that takes longer, even on a busy machine, starts no containers either
_FRAMEWORKS = ("torch", "tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu", "jax")


def git(sysfs: Sysfs) -> Check:
    """Check for git, and report its version."""
    version, value = None, "no command `git`"
    if shutil.which("git"):
        status, out, errors = command_output("git", "--version", most_s=TIMEOUT_S)
        version = out.partition("version ")[2].strip() or None
        ended = f"`git --version` ended with status {status}"
        value = version or (errors if status is None else ended)
    return Check(
        name="git",
        wanted="git",
        presence=presence(version is not None),
        value=value,
        why="--git_repos checks out with it",
        mend=None if version else install_command(sysfs, {"*": "git"}),
    )


def python(found: Environment | None, problem: str | None) -> Check:
    """Check the interpreter under test, and report the frameworks installed beside it.

    `problem` is why it does not work; both are None when it was not asked.
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
