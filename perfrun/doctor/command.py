"""Run `perfrun doctor`: check what this machine offers and lacks for benchmarking."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from perfrun.doctor import software
from perfrun.doctor.check import Check, Presence, checks_table, remedies
from perfrun.doctor.containers import ask_docker, device_checks, engine_checks, image_check
from perfrun.doctor.memory_and_disk import storage_checks
from perfrun.doctor.processor import processor_checks
from perfrun.doctor.system import system_checks
from perfrun.errors import UsageError
from perfrun.launchers.local import LocalLauncher
from perfrun.options.command_line import parse
from perfrun.options.plan import RunPlan
from perfrun.probes.machine import accelerators
from perfrun.probes.sysfs import Sysfs
from perfrun.reports.terminal import Terminal
from perfrun.run.environment import Paths, Service, describe
from perfrun.shown import write_json, write_lines

# The names of the checks that each kind of run needs.
NEEDS = {
    "local": ("python", "workspace"),
    "container": ("engine", "workspace"),
    "compose": ("engine", "compose", "workspace"),
    "gpu": ("gpu",),
    "nightly": ("workspace", "git"),
}


def doctor_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun doctor`; return 1 when something is missing that the run needs."""
    plan = parse(argv, command="doctor")
    asked = kinds(plan)
    needed = needs(plan, asked)
    checks = examine(plan)
    lacking = [c for c in checks if c.name in needed and c.presence is Presence.MISSING]
    if plan.output_format == "json":
        write_json(doctor_document(checks, asked, needed))
    else:
        _print(checks, needed)
        write_lines(["", _verdict(asked, lacking)])
    return 1 if lacking else 0


def kinds(plan: RunPlan) -> tuple[str, ...]:
    """Return the kinds of run asked for: by `--for`, else by the flags of the run itself."""
    named = [kind for words in plan.names for kind in words.split(",") if kind]
    for kind in named:
        if kind not in NEEDS:
            raise UsageError(f"--for={kind}: must be one of {', '.join(NEEDS)}")
    if named:
        return tuple(dict.fromkeys(named))
    return ("container" if plan.container else "local",)


def needs(plan: RunPlan, asked: Sequence[str]) -> frozenset[str]:
    """Return the names of the checks that must not be missing."""
    needed = {name for kind in asked for name in NEEDS[kind]}
    if plan.repos:
        needed.add("git")
    if plan.container:
        needed.add("image")
    if plan.container and plan.container.gpus:
        needed.add("gpu")
    if "gpu" in needed and "engine" in needed:
        needed.add("gpu_toolkit")
    return frozenset(needed)


def examine(plan: RunPlan, sysfs: Sysfs | None = None) -> tuple[Check, ...]:
    """Make all checks; what cannot be examined is unknown, never an error."""
    tree = sysfs or Sysfs()
    with ThreadPoolExecutor(max_workers=3) as pool:  # each thread waits for a process
        docker, python = pool.submit(ask_docker), pool.submit(_python, plan)
        git = pool.submit(software.git, tree)
        devices = accelerators()
        of_machine = processor_checks(tree)
        of_storage, of_system = storage_checks(tree, plan.workspace), system_checks(tree)
        answer = docker.result()
        return (
            python.result(),
            git.result(),
            *of_storage,
            *of_machine,
            *of_system,
            *engine_checks(tree, answer),
            *((image_check(plan.container.image, answer),) if plan.container else ()),
            *device_checks(tree, answer, devices),
        )


def _python(plan: RunPlan) -> Check:
    """Check the interpreter under test in a process of its own, as a run does.

    That of an image is not checked: it would take a container.
    """
    if plan.container:
        return software.python(None, None)
    try:
        with Service(
            LocalLauncher(plan.python, dict(plan.env)), {"action": "describe"}, Paths()
        ) as service:
            return software.python(describe(service), None)
    except UsageError as error:
        return software.python(None, str(error))
    except OSError as error:  # no folder for temporary files: nothing is known of the interpreter
        return software.python(None, f"could not be asked: {error}")


def doctor_document(
    checks: Sequence[Check], asked: Sequence[str], needed: frozenset[str]
) -> dict[str, object]:
    """Return the document of `--format=json`."""
    return {
        "for": list(asked),
        "ok": not any(c.name in needed and c.presence is Presence.MISSING for c in checks),
        "checks": [
            {
                "name": check.name,
                "wanted": check.wanted,
                "status": check.presence.value,
                "needed": check.name in needed,
                "value": check.value,
                "why": check.why,
                "mend": check.mend,
            }
            for check in checks
        ],
    }


def _print(checks: Sequence[Check], needed: frozenset[str]) -> None:
    Terminal(sys.stdout, sys.stderr, quiet=True).table(checks_table(checks, needed))
    write_lines(remedies(checks))


def _verdict(asked: Sequence[str], lacking: Sequence[Check]) -> str:
    kind = " and ".join(asked)
    if not lacking:
        return f"A {kind} run has what it needs."
    return f"A {kind} run needs what is missing: {', '.join(c.wanted for c in lacking)}."
