"""Programs of this machine that are asked something: git, docker, Slurm's."""

from __future__ import annotations

import subprocess


def command_output(
    *command: str, most_s: float, unstarted: int | None = None
) -> tuple[int | None, str, str]:
    """Run a command; return its status, output and errors.

    The status is None when it did not end in time, and `unstarted` when it cannot be started.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=most_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, "", f"no answer in {most_s:g} s"
    except OSError as error:
        return unstarted, "", f"{command[0]} cannot be started: {error.strerror}"
    return done.returncode, done.stdout, done.stderr
