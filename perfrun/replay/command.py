"""`perfrun replay RESULT|CAPSULE`: run a result again, and say whether it comes out again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from perfrun.compare.command import allowed_kinds
from perfrun.compare.differences import GUARDED
from perfrun.compare.one_result import ALL, Asked, add_trust, find, refuse_without_consent
from perfrun.dataclass import asdict
from perfrun.errors import Interrupted, UsageError
from perfrun.options.parsers import CommandParser, parse_whole, parse_workspace
from perfrun.options.plan import RunPlan
from perfrun.probes.machine import Machine, machine
from perfrun.replay.asked import plan_of, recorded_sha256
from perfrun.replay.capsule import is_capsule
from perfrun.replay.judgement import (
    facts_not_matched,
    judge,
    old_value,
    refuse_other_hardware,
    unmatched_table,
)
from perfrun.replay.prediction import FEWEST
from perfrun.reports.terminal import Terminal
from perfrun.run.runner import run
from perfrun.shown import line, say, write_json, write_lines
from perfrun.summary.document import json_ready
from perfrun.summary.estimates import RunResult
from perfrun.summary.metrics import WALL_TIME
from perfrun.summary.record import SummaryRecord, read_record, record_of
from perfrun.summary.series_identity import section

TRIALS = 10
_ABOUT = "Run a result again from its summary, or from a capsule, and say whether it comes out."
_EPILOG = """\
RESULT is a folder, a summary, or a choice of the results in --workspace that names one trial, as
for `perfrun show`; a file of `perfrun pack` is a capsule. Code, image, interpreter, data, flags and
variables are those on record. The results lie in WORKSPACE/replays.

Exit status: 0 the old value lies in today's interval, 1 it does not, 2 it cannot be replayed, 130
interrupted. All of it is in docs/guides/replaying.md.
"""


def parser() -> CommandParser:
    """Return the parser of `perfrun replay`."""
    made = CommandParser("perfrun replay", _ABOUT, _EPILOG)
    made.add_argument("result", metavar="RESULT|CAPSULE", help="what to run again")
    trials = partial(parse_whole, least=FEWEST)
    made.flag("--trials", "N", f"trials of today (default {TRIALS})", trials, TRIALS)
    made.flag("--metric", "NAME", "the metric that is held against today's (default wall_time)")
    made.flag("--python", "PATH", "interpreter to use; for a capsule, that of its environment")
    made.switch("--rebuild", "make the environment anew, by pip, with the recorded versions")
    add_trust(made)
    kinds = f"compare although these differ: {', '.join(GUARDED)}"
    made.flag("--allow_different", "LIST", kinds)
    made.add_workspace()
    made.add_format()
    return made


def replay_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun replay`: 0 reproduced, 1 not, 2 cannot."""
    given = parser().parse_args(list(argv))
    workspace = parse_workspace(given.workspace)
    as_json = given.format == "json"
    screen = Terminal(sys.stderr if as_json else sys.stdout, sys.stderr, quiet=False)
    allowed = allowed_kinds(given.allow_different)
    metric = given.metric or WALL_TIME
    with ExitStack() as held:
        asked, plan, note = _prepared(given, workspace, allowed, metric, screen, held)
        result = run(replace(plan, num_trials=given.trials), screen, check_names=True)
    if result.interrupted:
        say("interrupted; the same command begins anew")
        return Interrupted.exit_code
    new = _records(result)
    found = facts_not_matched(asked.record, new)
    if found and not as_json:
        screen.lines([""])
        screen.table(unmatched_table(found))
    judged = judge(asked.record, new, metric, allowed)
    if as_json:
        summaries = [str(one.path) for one in new]
        document = {**judged.document, "summary": str(asked.record.path), "results": summaries}
        write_json({**document, "capsule": note})
    else:
        notes = []
        if asked.record.disturbed:
            notes.append("the recorded trial was disturbed: its value may never come again")
        if judged.is_wide:
            notes.append(
                "today's trials differ so much that nearly any value would be reproduced: take "
                "more --trials, or a quiet machine"
            )
        write_lines(["", *notes, line(judged.line)])
    return 0 if judged.is_reproduced else 1


def _prepared(
    given: Any,
    workspace: Path,
    allowed: Sequence[str],
    metric: str,
    screen: Terminal,
    held: ExitStack,
) -> tuple[Asked, RunPlan, dict[str, Any] | None]:
    """Return the result, the plan of its trials, and what is known of a capsule.

    Nothing that the result names has run before the user's consent is known. What others must not
    change while the trials run is held until `held` is closed.
    """
    path = Path(given.result)
    if is_capsule(path):
        from perfrun.replay.opening import open_capsule

        if given.rebuild:
            raise UsageError("--rebuild: a capsule has its own environment")
        opened = open_capsule(path, workspace, given.trust, screen.note, held)
        _refuse_early(opened.asked.record, metric, allowed)
        plan = opened.plan(given.python or "", screen.note)
        return opened.asked, plan, {"sha256": opened.digest, "folder": str(opened.folder)}
    asked = find(given.result, workspace)
    _refuse_early(asked.record, metric, allowed)
    replays, digest = workspace / "replays", sha256(asked.content).hexdigest()
    place = replays / digest[:16]
    python = given.python or ""
    if given.rebuild:
        from perfrun.replay.environments import rebuilt
        from perfrun.replay.opening import hold

        # Versions that a stranger chose are code of theirs, too: the consent comes before pip.
        if not asked.is_own and given.trust != ALL:
            raise UsageError(
                f"--rebuild: {asked.record.path} was imported, and pip would install what it "
                "names; --trust=all consents to that"
            )
        hold(replays, digest, screen.note, held)
        python = str(rebuilt(asked.record.document, place / "venv", python, screen.note))
    plan = _plan(asked, place, python)
    refuse_without_consent(asked, plan, workspace, given.trust, "replay it", python)
    return asked, plan, None


def _plan(asked: Asked, place: Path, python: str) -> RunPlan:
    more = [f"--python={python}"] if python else []
    if python and section(section(asked.record.document, "perfrun"), "container"):
        raise UsageError("--python: the result is of a container, whose image has the interpreter")
    plan = plan_of(asked, place, more=more, without=["python"] if python else [])
    return _with_hashes(plan, asked.record)


def _with_hashes(plan: RunPlan, record: SummaryRecord) -> RunPlan:
    """Ask for each file of data by the SHA-256 that is on record."""
    data = []
    for item in plan.data:
        known = item.sha256 or recorded_sha256(record, plan.root_data_dir, item.relative_path)
        data.append(replace(item, sha256=known or None))
    return replace(plan, data=tuple(data))


def _refuse_early(record: SummaryRecord, metric: str, allowed: Sequence[str]) -> None:
    """Refuse what no trial could answer, before any: no old value, other hardware."""
    old_value(record, metric)
    document = dict(record.document)
    here = machine()
    document["system_info"] = {**section(document, "system_info"), **_system_info(here)}
    own = dict(section(document, "perfrun"))
    own["machine"] = json_ready(asdict(here))
    document["perfrun"] = own
    found = facts_not_matched(record, [record_of(document, record.path)])
    refuse_other_hardware(found, allowed)


def _system_info(here: Machine) -> dict[str, Any]:
    devices = here.accelerators
    return {
        "cpu_model": here.cpu_model,
        "physical_cpu_count": here.physical_cpu_count,
        "logical_cpu_count": here.logical_cpu_count,
        "hostname": here.hostname,
        "accelerator_driver_version": devices.driver_version if devices else None,
        "accelerator_model": devices.model if devices else None,
        "accelerator_count": devices.count if devices else None,
    }


def _records(result: RunResult) -> list[SummaryRecord]:
    return [read_record(Path(trial.summary)) for trial in result.trials]
