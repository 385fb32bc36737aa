"""From the trials to what is shown and saved: cells, ratios, and what else there is to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfrun.blocks import Block
from perfrun.differences import Difference
from perfrun.pairing import log_ratios
from perfrun.summary_record import SummaryRecord
from perfrun.versus.cells import Cell, cell
from perfrun.versus.contenders import Contender
from perfrun.versus.notes import (
    count_notes,
    described_notes,
    difference_texts,
    disturbance_note,
    shared_differences,
)
from perfrun.versus.parsing import Asked, Case
from perfrun.versus.trials import JUDGED, Trials, pairs_of, rule_of

if TYPE_CHECKING:
    from perfrun.analysis.pairs import Rule

DECIDING = "latency_s"


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A contender against the base in a case: its figure over the base's, of pairs of trials."""

    platform_name: str
    case: Case
    base: str
    label: str
    figure: str  # as in a cell
    ratio: float | None
    low: float | None  # 95 %, corrected for looks and for all figures that are judged
    high: float | None
    verdict: str  # faster, slower, equivalent, undecided; also where it is no time
    reason: str | None  # why undecided
    pairs: int
    margin: float  # what equivalent means
    p_value: float | None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came out."""

    platform_name: str
    machine: Mapping[str, Any]
    cells: tuple[Cell, ...]
    ratios: tuple[Ratio, ...]
    differences: Mapping[str, tuple[Difference, ...]]  # of each rival, around it
    notes: tuple[str, ...]


def answer_of(asked: Asked, trials: Trials) -> Answer:
    """Sum up and judge."""
    platform, machine = _platform(asked, trials)
    cells = []
    for case in asked.cases:
        for contender in asked.contenders:
            price = asked.prices.of(contender.label, contender.framework, platform)
            cells.append(
                cell(
                    contender,
                    case,
                    readings_of(trials.blocks.get(case.name, ()), contender.label),
                    platform_name=platform,
                    price_per_hour=price,
                    why_not=trials.not_run.get(contender.label),
                )
            )
    differing = _differences(asked.contenders, trials)
    return Answer(
        platform_name=platform,
        machine=machine,
        cells=tuple(cells),
        ratios=tuple(_ratios(asked, trials, platform)),
        differences=differing,
        notes=(
            *count_notes(cells),
            *_environment_notes(cells, asked.contenders, differing),
            *disturbance_note(cells),
        ),
    )


def readings_of(blocks: Sequence[Block], label: str) -> list[SummaryRecord]:
    """The trials of a contender in a case."""
    return [block.readings[label] for block in blocks if label in block.readings]


def _platform(asked: Asked, trials: Trials) -> tuple[str, dict[str, Any]]:
    """The platform's name (that of the host where none was given), and its machine."""
    for blocks in trials.blocks.values():
        for block in blocks:
            for reading in block.readings.values():
                return _platform_of(reading, asked.platform_name)
    return asked.platform_name or "this machine", {}


def _platform_of(reading: SummaryRecord, name: str | None) -> tuple[str, dict[str, Any]]:
    system = reading.document.get("system_info") or {}
    machine = (reading.document.get("perfrun") or {}).get("machine") or {}
    names = ("cpu_model", "physical_cpu_count", "logical_cpu_count", "hostname")
    accelerators = ("accelerator_model", "accelerator_count")
    facts = {key: system[key] for key in (*names, *accelerators) if system.get(key) is not None}
    for key in ("usable_cpu_count", "memory_bytes", "operating_system", "kernel"):
        if machine.get(key) is not None:
            facts[key] = machine[key]
    return name or str(facts.get("hostname") or "this machine"), facts


def _ratios(asked: Asked, trials: Trials, platform: str) -> list[Ratio]:
    rule = rule_of(asked, trials.blocks)
    base, *rivals = (contender.label for contender in asked.contenders)
    found = []
    for case in asked.cases:
        blocks = trials.blocks.get(case.name, ())
        stopped_by = trials.stopped_by.get(case.name, "")
        for rival in rivals:
            found += [
                _ratio(platform, case, (base, rival), name, blocks, rule, stopped_by)
                for name in JUDGED
            ]
    return found


def _ratio(
    platform: str,
    case: Case,
    labels: tuple[str, str],
    name: str,
    blocks: Sequence[Block],
    rule: Rule,
    stopped_by: str,
) -> Ratio:
    from perfrun.analysis import pairs as rules

    ratios = log_ratios(pairs_of(blocks, *labels), JUDGED[name])
    judged = rules.judge(ratios, "lower", rule)
    undecided = judged.verdict == "undecided"
    return Ratio(
        platform_name=platform,
        case=case,
        base=labels[0],
        label=labels[1],
        figure=name,
        ratio=judged.ratio,
        low=judged.interval.low if judged.interval else None,
        high=judged.interval.high if judged.interval else None,
        verdict=judged.verdict,
        reason=_reason(judged.pairs, rule, stopped_by) if undecided else None,
        pairs=judged.pairs,
        margin=rule.min_effect,
        p_value=judged.p_value,
    )


def _reason(pairs: int, rule: Rule, stopped_by: str) -> str:
    """Why nothing is decided, and what would decide it."""
    from perfrun.analysis import pairs as rules

    if pairs == 0:
        return "no pair has this figure"
    if not rules.can_decide(rule):
        return f"too few rounds: {rule.max_pairs}, and {enough(rule)} can decide"
    return {
        "max_pairs": "all rounds are spent",
        "time_budget": "the time is spent",
        "interrupted": "interrupted",
        "failed": "too few pairs, since trials failed",
    }.get(stopped_by, "the interval leaves it open")


def enough(rule: Rule) -> int:
    """The fewest rounds that can decide so many figures."""
    from dataclasses import replace

    from perfrun.analysis import pairs as rules

    return next(
        count
        for count in range(rule.max_pairs, 10_000)
        if rules.can_decide(replace(rule, max_pairs=count))
    )


def _differences(
    contenders: Sequence[Contender], trials: Trials
) -> dict[str, tuple[Difference, ...]]:
    every = {
        one.label: [r for blocks in trials.blocks.values() for r in readings_of(blocks, one.label)]
        for one in contenders
    }
    base, *rivals = contenders
    return {
        rival.label: shared_differences(
            every[base.label],
            every[rival.label],
            same_framework=rival.class_path == base.class_path,
        )
        for rival in rivals
        if every[base.label] and every[rival.label]
    }


def _environment_notes(
    cells: Sequence[Cell],
    contenders: Sequence[Contender],
    differing: Mapping[str, Sequence[Difference]],
) -> list[str]:
    found = [f"Environment: {text}." for text in described_notes(cells)]
    base = contenders[0].label
    for rival, differences in differing.items():
        texts = "; ".join(difference_texts(differences))
        found += [f"Environment: {base} -> {rival}: {texts}."] if texts else []
    if len(differing) and not found:
        found = ["Environment: settings, Python and machine are the same for all."]
    return found
