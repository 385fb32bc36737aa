"""Say what was found about nodes: as rows for programs, as a table and lines for people."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from perfrun.nodes.fleet_results import FleetResults, NodeFacts
from perfrun.reports.table import Column, Table, TableCell, coloured
from perfrun.store.quarantine import Period, Quarantine, is_name
from perfrun.text import counted

if TYPE_CHECKING:
    from perfrun.analysis.nodes import NodeFindings, Verdict
    from perfrun.summary.fingerprint import Fingerprint

SLOW: tuple[Verdict, ...] = ("slow", "slow_in_some", "became_slow")
_ORDER: tuple[Verdict, ...] = (*SLOW, "noisy", "fast", "alone", "like_others")
_STYLES: Mapping[Verdict, str] = {**dict.fromkeys(SLOW, "red"), "noisy": "yellow", "fast": "cyan"}
_COLUMNS = (
    Column(heading="node"),
    Column(heading="hardware"),
    Column(heading="software"),
    Column(heading="trials", right=True),
    Column(heading="slower by", right=True),
    Column(heading="95 % interval", right=True),
    Column(heading="verdict", prose=True),
)
_MOST_METHODS = 3  # that are named


def ordered(found: Iterable[NodeFindings]) -> list[NodeFindings]:
    """Return the nodes: odd ones first, within a kind the slowest first."""
    return sorted(
        found, key=lambda one: (_ORDER.index(one.verdict), -(one.effect or 0.0), one.node)
    )


def named(found: Iterable[NodeFindings], quarantine: Quarantine) -> list[NodeFindings]:
    """Return the nodes that are odd and that nobody has put into quarantine."""
    fine = ("like_others", "alone", "fast")
    return [one for one in found if one.verdict not in fine and quarantine.of(one.node) is None]


def node_row(one: NodeFindings, results: FleetResults, quarantine: Quarantine) -> dict[str, Any]:
    """Return what `--format=json` says of a node; ratios are of times, 1.08 is 8 % slower."""
    facts = results.nodes[one.node]
    period = quarantine.of(one.node)
    return {
        "node": one.node,
        "verdict": one.verdict,
        "effect": _ratio(one.effect),
        "low": _ratio(one.low),
        "high": _ratio(one.high),
        "p_value": one.p_value,
        "trials": facts.trials,
        "compared": one.trials,
        "methods": _methods(one, results),
        "method_effect": _ratio(one.group_effect),
        "noise_ratio": one.noise_ratio,
        "canary_effect": _ratio(one.later),
        "hardware": facts.hardware.hardware_digest,
        "software": _software(facts),
        "newest": facts.newest,
        "quarantine": None if period is None else period_row(period),
    }


def period_row(period: Period) -> dict[str, Any]:
    """Return a time in quarantine as `--format=json` has it."""
    return {
        "node": period.node,
        "at": period.at,
        "because": period.because or None,
        "since": period.since,
        "until": period.until,
    }


def fingerprint_rows(results: FleetResults) -> list[dict[str, Any]]:
    """Return the fingerprints of all nodes, each with its facts and the nodes that have it."""
    nodes: dict[Fingerprint, list[str]] = {}
    for facts in results.nodes.values():
        for one in facts.fingerprints:
            nodes.setdefault(one, []).append(facts.name)
    return [
        {
            "fingerprint": one.digest,
            "hardware": dict(one.hardware),
            "software": dict(one.software),
            "nodes": sorted(own),
        }
        for one, own in sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0].digest))
    ]


def table_of(found: Sequence[NodeFindings], results: FleetResults, quarantine: Quarantine) -> Table:
    """Return the table of all nodes."""
    return Table(
        columns=_COLUMNS, rows=tuple(_cells(one, results, quarantine) for one in ordered(found))
    )


def _cells(
    one: NodeFindings, results: FleetResults, quarantine: Quarantine
) -> tuple[str | TableCell, ...]:
    facts = results.nodes[one.node]
    interval = "-"
    if one.low is not None and one.high is not None:
        interval = f"{percent(one.low)} to {percent(one.high)}"
    text = verdict_text(one, results)
    period = quarantine.of(one.node)
    if period is not None:
        text += f"; in quarantine since {_day(period.at)}"
        text += f": {period.because}" if period.because else ""
    style = _STYLES.get(one.verdict)
    return (
        one.node,
        facts.hardware.hardware_digest,
        " ".join(_software(facts)),
        str(facts.trials),
        "-" if one.effect is None else percent(one.effect),
        interval,
        text if style is None or period is not None else coloured(text, style),
    )


def verdict_text(one: NodeFindings, results: FleetResults) -> str:
    """Return a verdict in words."""
    if one.verdict == "slow_in_some":
        names = _methods(one, results)
        shown = ", ".join(name.rpartition(".")[2] for name in names[:_MOST_METHODS])
        more = f" and {len(names) - _MOST_METHODS} more" if len(names) > _MOST_METHODS else ""
        return f"slow in some methods ({percent(one.group_effect or 0.0)}): {shown}{more}"
    if one.verdict == "became_slow":
        return f"became slow while it measured: canaries {percent(one.later or 0.0)}"
    if one.verdict == "noisy":
        return f"{one.noise_ratio or 0.0:.2g} times the noise of the others"
    words = {"slow": "slow", "fast": "fast", "alone": "has no equals to be compared with"}
    return words.get(one.verdict, "like the others")


def lines_about(
    found: Sequence[NodeFindings], results: FleetResults, quarantine: Quarantine, error: float
) -> list[str]:
    """Return the lines below the table."""
    odd = named(found, quarantine)
    like = sum(one.verdict in ("like_others", "fast") for one in found)
    alone = sum(one.verdict == "alone" for one in found)
    lines = [
        f"{like} of {counted(len(found), 'node')} {'is' if like == 1 else 'are'} like the others"
    ]
    lines[0] += f"; the error is {100 * error:.2g} % over all nodes together"
    if alone:
        lines.append(
            f"{counted(alone, 'node')} without equals: a method counts on a night on which four "
            "nodes of one fingerprint have run it (--across=software compares more)"
        )
    if results.disturbed:
        lines.append(f"{counted(results.disturbed, 'disturbed trial')} left out")
    if results.nameless:
        lines.append(f"{counted(results.nameless, 'trial')} without a host name left out")
    lines += _fingerprint_lines(results)
    # The names are those of summaries, and the line is made to be copied into a shell.
    slow = [one.node for one in odd if one.verdict in SLOW and is_name(one.node)]
    if slow:
        flags = " ".join(shlex.quote(f"--quarantine={node}") for node in slow[:_MOST_METHODS])
        lines.append(f"leave out what they measure: perfrun nodes {flags}")
    return lines


def _fingerprint_lines(results: FleetResults) -> list[str]:
    """Return a line for each kind of hardware, and one for each software that differs."""
    hardware: dict[str, str] = {}
    software: dict[str, dict[str, str]] = {}
    for facts in results.nodes.values():
        for one in facts.fingerprints:
            hardware[one.hardware_digest] = ", ".join(_fact_text(*fact) for fact in one.hardware)
            software[one.software_digest] = dict(one.software)
    names = [name for own in software.values() for name in own]
    differing = [
        name
        for name in dict.fromkeys(names)
        if len({own.get(name, "") for own in software.values()}) > 1
    ]
    lines = [f"hardware {digest}: {text}" for digest, text in sorted(hardware.items())]
    for digest, own in sorted(software.items()) if differing else ():
        text = ", ".join(f"{name} {own[name]}" for name in differing if name in own)
        lines.append(f"software {digest}: {text or 'nothing known'}")
    return lines


def _fact_text(name: str, value: str) -> str:
    units = {"cores": "cores", "threads": "threads", "sockets": "sockets"}
    if name in units:
        return f"{value} {units[name]}"
    if name == "numa_nodes":
        return f"{value} NUMA nodes"
    return f"{value} GiB" if name == "memory_gib" else value


def quarantine_lines(quarantine: Quarantine) -> list[str]:
    """Return a line for each time in quarantine."""
    lines = []
    for one in quarantine.periods:
        begin = "all of its results" if one.since is None else f"results since {_day(one.since)}"
        if one.until is None:
            what = f"{begin} are left out"
        else:
            what = f"{begin} until {_minute(one.until)} are left out; later ones count"
        lines.append(f"{one.node}: {what}" + (f" ({one.because})" if one.because else ""))
    return lines or ["no node is in quarantine"]


def _methods(one: NodeFindings, results: FleetResults) -> list[str]:
    return sorted({results.groups[name].method for name in one.groups})


def _software(facts: NodeFacts) -> list[str]:
    return sorted({one.software_digest for one in facts.fingerprints})


def _ratio(effect: float | None) -> float | None:
    return None if effect is None else math.exp(min(effect, 700.0))


def percent(effect: float) -> str:
    """Return an effect in percent: `+8.1 %` is slower."""
    return f"{100 * math.expm1(min(effect, 700.0)):+.1f} %"


def _day(timestamp: float) -> str:
    return _minute(timestamp)[:10]


def _minute(timestamp: float) -> str:
    try:
        return f"{datetime.fromtimestamp(timestamp):%Y-%m-%d %H:%M}"
    except (OverflowError, OSError, ValueError):  # beyond Python's calendar
        return "-"
