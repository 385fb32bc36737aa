"""`perfrun submit SUITE.toml`: run a suite on an engine, in shards."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfrun.errors import Interrupted, PerfrunError, UsageError
from perfrun.fleet.engines import (
    NAMES,
    Engine,
    EngineFlag,
    OnNodes,
    Options,
    Previewing,
    engine_named,
)
from perfrun.fleet.planning import copy_code, make_plan, with_sweep
from perfrun.fleet.submissions import (
    bring_in,
    engines_of,
    find_plan,
    look,
    missing_of,
    name_of,
    remember_engine,
    used_by,
)
from perfrun.locks import FileLock
from perfrun.nightly.check import check_sweep
from perfrun.nightly.suite import Suite
from perfrun.nightly.suite_file import read_suite
from perfrun.options.parsers import CommandParser, parse_whole, parse_workspace
from perfrun.options.plan import split_items
from perfrun.options.store_address import parse_address
from perfrun.options.sweeps import parse_sweep
from perfrun.reports.table import Column, Table
from perfrun.reports.terminal import Terminal
from perfrun.shards.places import ShardPlace
from perfrun.shards.plan import Plan, ShardState
from perfrun.shards.plan_file import LOCK, write_plan
from perfrun.shards.standing import show
from perfrun.shards.status import by_files, statuses
from perfrun.shards.telling import SHARD_COLUMNS, shard_cells, shard_text
from perfrun.shown import line, say, write_json, write_lines
from perfrun.text import redact_words
from perfrun.untrusted import remove_tree

_ABOUT = "Run the benchmarks of a suite on several machines, in shards."
_EPILOG = """\
  perfrun submit suite.toml --engine=ssh --hosts=lab1,lab2 --rounds=3
  perfrun submit suite.toml --sweep 'batch=1,8,32' 'dtype=fp32,bf16' --dry_run
  perfrun submit --resume

A shard is one method in one environment, in one round, with one setting of a sweep. `perfrun fleet`
shows what ran and what is missing.

Exit status: 0 all that was asked for ran, or was handed to a scheduler; 1 a benchmark failed, or a
shard has no result; 2 something that is wrong before anything runs, 3 internal error,
130 interrupted. All of it is in docs/guides/fleet.md.
"""


def submit_parser() -> CommandParser:
    """Return the parser of `perfrun submit`."""
    made = CommandParser("perfrun submit", _ABOUT, _EPILOG)
    made.add_argument("suite", metavar="SUITE.toml", nargs="?", help="the suite to run")
    made.flag("--engine", "|".join(NAMES), "where the shards run (default local)")
    made.add_argument(
        "--sweep",
        metavar="NAME=VALUES",
        nargs="+",
        action="extend",
        default=[],
        help="flags of the benchmark with several values each: every combination is run; a name of "
        "the suite's [sweep] gets these values instead of its own",
    )
    rounds = "run everything so often, in other processes (default 1)"
    made.flag("--rounds", "N", rounds, parse_whole, 1)
    nodes = "run everything on each of these nodes, or on all that the engine knows"
    made.flag("--per_node", "all|NODE,...", nodes)
    made.switch("--dry_run", "print the shards, and submit nothing")
    resume = "go on with a submission, or with the newest one: submit what has no result"
    made.add_argument("--resume", metavar="ID", nargs="?", const="last", default=None, help=resume)
    made.switch("--retry_failed", "with --resume: run again what failed by its own fault, too")
    made.flag("--workspace", "DIR", "with --resume: whose submission (default ./workspace)")
    made.add_format()
    for flag, names in _engine_flags().items():
        made.flag(f"--{flag.name}", flag.metavar, f"{', '.join(names)}: {flag.text}")
    return made


def _engine_flags() -> dict[EngineFlag, list[str]]:
    """Return the flags of all engines, each with the engines that take it."""
    found: dict[str, tuple[EngineFlag, list[str]]] = {}
    for name in NAMES:
        for flag in engine_named(name).flags:
            found.setdefault(flag.name, (flag, []))[1].append(name)
    return dict(found.values())


def _options(given: Any, name: str) -> dict[str, str]:
    """Return the options of an engine. Raises UsageError for one of another engine."""
    options = {}
    for flag, names in _engine_flags().items():
        value = getattr(given, flag.name)
        if value and name not in names:
            raise UsageError(f"--{flag.name}: is a flag of --engine={names[0]}, not of {name}")
        if value:
            options[flag.name] = value
    return options


def submit_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun submit`; return the exit status."""
    given = submit_parser().parse_intermixed_args(list(argv))
    if given.resume is not None:
        return _resume(given)
    if not given.suite:
        raise UsageError("perfrun submit: name a suite, or an earlier submission with --resume")
    for flag in ("retry_failed", "workspace"):
        if getattr(given, flag):
            raise UsageError(f"--{flag}: is of --resume")
    name = given.engine or "local"
    engine, options = engine_named(name), _options(given, name)
    engine.check(options)
    suite = with_sweep(read_suite(Path(given.suite)), parse_sweep(given.sweep))
    _look_up_sweep(suite, is_telling=given.dry_run)
    plan = make_plan(
        suite,
        time.time(),
        rounds=given.rounds,
        engine=name,
        options=options,
        notify=say,
        nodes=_nodes(given.per_node, engine, name, options),
    )
    plan = replace(plan, store=_store_of(suite))
    everything = range(len(plan.shards))
    if given.dry_run:
        return _show_only(plan, engine, options, everything, as_json=given.format == "json")
    try:
        copy_code(suite, plan.folder)
        write_plan(plan)
    except PerfrunError:
        remove_tree(plan.folder)  # half a submission
        raise
    say(f"{plan.submission}: {len(plan.shards)} shards")
    return submit_shards(plan, engine, options, everything, None, as_json=given.format == "json")


def _look_up_sweep(suite: Suite, *, is_telling: bool) -> None:
    """Raise UsageError for a sweep of what a benchmark does not know, where that can be told."""
    found = check_sweep(suite, say)
    *others, last = found.problems or ("",)
    for text in others:
        say(f"{suite.path}: {text}")
    if last:
        is_unknown = "Unknown" in last
        hint = "; `sweep = [...]` of a method lists the flags that it knows" if is_unknown else ""
        raise UsageError(f"{suite.path}: {last}{hint}")
    for text in found.not_checked if is_telling else ():
        say(f"not looked up: {text}")


def _resume(given: Any) -> int:
    workspace, word, store = parse_workspace(given.workspace), given.resume, None
    named = given.suite
    if not named and word.endswith(".toml"):  # `--resume SUITE.toml`: the newest of its workspace
        named, word = word, "last"
    if named:
        suite = read_suite(Path(named))
        workspace, store = suite.workspace, suite.store
    if given.sweep or given.rounds != 1 or given.per_node:
        raise UsageError("--resume: the plan has rounds, sweep and nodes; leave these flags out")
    plan = find_plan(workspace, word)
    name = given.engine or plan.engine
    engine = engine_named(name)
    asked = _options(given, name)
    options = {**plan.options, **asked} if name == plan.engine else asked
    engine.check(options)
    found = look(plan, engines_of(plan))
    again = {ShardState.FAILED} if given.retry_failed else set()
    failed = [one.shard.index for one in found if one.state in again]
    missing, as_json = sorted([*missing_of(found), *failed]), given.format == "json"
    if given.dry_run:
        return _show_only(plan, engine, options, missing, as_json=as_json)
    say(f"{plan.submission}: {len(missing)} of {len(plan.shards)} shards are submitted again")
    return submit_shards(
        *(plan, engine, options, missing, store), as_json=as_json, withdraw=failed, name=name
    )


def _store_of(suite: Suite) -> str:
    """Return the suite's store as other processes find it, wherever they are called."""
    address = parse_address(suite.store, suite.workspace)
    return str(address.file) if suite.store and address.file else suite.store or ""


def _nodes(text: str | None, engine: Engine, name: str, options: Options) -> Sequence[str]:
    """Return the nodes of --per_node; none without it. Raises PerfrunError."""
    if not text:
        return ()
    if not isinstance(engine, OnNodes):
        raise UsageError(f"--per_node: --engine={name} cannot choose a node; ssh and slurm can")
    known = engine.nodes(options)
    if text == "all":
        return known
    chosen = list(dict.fromkeys(split_items(text)))
    if unknown := [one for one in chosen if one not in known]:
        shown = ", ".join(known[:10]) + (f" and {len(known) - 10} more" if known[10:] else "")
        raise UsageError(f"--per_node: {line(unknown[0], 100)} is not one of {shown}")
    return chosen


def submit_shards(
    plan: Plan,
    engine: Engine,
    options: Options,
    indices: Sequence[int],
    store: str | None,
    *,
    as_json: bool,
    withdraw: Sequence[int] = (),
    name: str = "",
) -> int:
    """Hand shards to an engine, collect what there is, and show the whole; return the status.

    Those of `withdraw` are run again although their benchmarks failed. `name` is that of the
    engine, where it is not the plan's.
    """
    name = name or plan.engine
    try:
        with FileLock(plan.folder / LOCK) as lock:
            if not lock.try_own():
                raise UsageError(
                    f"{plan.submission}: another perfrun submits its shards{lock.holder}; "
                    "let it end"
                )
            if withdraw:
                _withdraw(plan, withdraw, store)
            # Another one may have been at work between the look and the lock.
            open_still = [one for one in indices if not by_files(plan, plan.shards[one]).is_over]
            if open_still:
                remember_engine(plan, name)
                engine.submit(plan, open_still, options)
    except Interrupted:
        bring_in(plan, statuses(plan), store)
        again = f"`perfrun submit --resume {name_of(plan)}` goes on"
        raise Interrupted(f"{plan.submission} interrupted; {again}") from None
    except PerfrunError:
        bring_in(plan, statuses(plan), store)
        raise
    others = [engine_named(one) for one in used_by(plan) if one != name]
    found = look(plan, [*others, engine])
    bring_in(plan, found, store)
    show(plan, found, name_of(plan), as_json=as_json)
    if engine.stays:
        return 0 if all(one.state is ShardState.DONE for one in found) else 1
    return 1 if any(one.state is ShardState.FAILED for one in found) else 0


def _withdraw(plan: Plan, indices: Sequence[int], store: str | None) -> None:
    """Let failed results count no more: their trials come in first, as later nothing finds them."""
    bring_in(plan, statuses(plan), store)
    for index in indices:
        if by_files(plan, plan.shards[index]).state is ShardState.FAILED:
            ShardPlace(plan, index).withdraw()


def _show_only(
    plan: Plan, engine: Engine, options: Options, indices: Sequence[int], *, as_json: bool
) -> int:
    """Show what would be submitted: the engine's own text, or else the shards."""
    if isinstance(engine, Previewing) and not as_json:
        write_json(engine.preview(plan, indices, options))
    else:
        _show_shards(plan, indices, as_json=as_json)
    return 0


def _show_shards(plan: Plan, indices: Sequence[int], *, as_json: bool) -> None:
    chosen = [plan.shards[index] for index in indices]
    if as_json:
        write_json(
            {
                "submission": plan.submission,
                "engine": plan.engine,
                "shards": [
                    {
                        "index": shard.index,
                        "method": shard.method,
                        "environment": shard.environment,
                        "round": shard.round,
                        "setting": dict(shard.setting),
                        "node": shard.node,
                        "words": redact_words(list(shard.words)),
                    }
                    for shard in chosen
                ],
            }
        )
        return
    nodes = (Column(heading="node"),) if any(one.node for one in chosen) else ()
    columns = (*SHARD_COLUMNS, *nodes)
    rows = tuple((*shard_cells(one), one.node)[: len(columns)] for one in chosen)
    if rows:
        Terminal(sys.stdout, sys.stderr, quiet=True).table(Table(columns=columns, rows=rows))
    counted = Counter(shard_text(shard) for shard in chosen)
    write_lines([f"{len(chosen)} shards ({len(counted)} different); nothing was submitted"])
