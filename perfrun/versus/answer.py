"""The result of a comparison, computed from its trials: cells, ratios and notes.

A cell is a row of the table: one arm in one case. A ratio compares an arm with the base, and the
notes name what else differs between the arms. All functions are pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfrun.analysis import pairs as rules
from perfrun.analysis.costs import Figure, cost_per_million, figure
from perfrun.analysis.pairs import PairRule
from perfrun.compare.differences import Difference, differences
from perfrun.compare.paired_runs import Block, log_ratios
from perfrun.summary.metrics import PEAK_RSS, THROUGHPUT, WALL_TIME
from perfrun.summary.record import SummaryRecord
from perfrun.versus.equality import extra_of
from perfrun.versus.options import Arm, Case, VersusPlan
from perfrun.versus.trials import JUDGED, Trials, pairs_of, rule_of

# Figure of the table -> names in a summary, of which the first that exists counts.
MEASURED = {
    "latency_s": (WALL_TIME,),
    "throughput_per_s": (THROUGHPUT, "examples_per_second"),
    "peak_memory_bytes": (PEAK_RSS,),
    "cold_start_s": ("cold_start_s",),
    "framework_import_s": ("framework_import_s",),
    "first_call_s": ("first_call_s",),
    "compile_s": ("compile_s",),
    "achieved_flops_per_second": ("achieved_flops_per_second",),
    "model_flops_utilisation": ("model_flops_utilisation",),
}
DEVICE_MEMORY = "peak_device_memory_bytes"
# Figures that should be the same in all trials of an arm.
COUNTED = ("parameters", "trainable_parameters", "flops_per_example", "macs_per_example")
# Extras of a report that describe its settings.
DESCRIBED = (
    *("model", "model_library", "input_shape", "input_layout", "channels_last", "data"),
    *("dtype", "device", "threads", "inter_threads", "compile", "global_batch_size", "warmup"),
    *("flops_counted_by", "seed", "keras_backend", "matmul_allow_tf32", "cudnn_allow_tf32"),
)
# Kinds of differences (`perfrun.compare.differences`) that matter between any two arms. Installed
# software differs by design unless both have the same class; labels and flags name the arms.
_SHARED = ("hardware", "driver", "machine", "container", "python", "variable", "perfrun")
_INSTALLED = ("framework", "distribution", "git", "source")
_MOST_TEXTS = 12  # in a line; the saved document has all of them
_LIBRARIES = ("torchvision_version", "timm_version", "keras_version", "flax_version")
# The backend of Keras is in an arm's name, and a variable of its environment.
_SHOWN_ELSEWHERE = ("keras_backend", "flops_counted_by", "compile", "model_library", "seed")
# These counts have no noise, so any difference is one between the models.
_COUNTS = {
    "parameters": "Parameters",
    "trainable_parameters": "Trainable parameters",
    "flops_per_example": "FLOPs per example",
}
DECIDING = "latency_s"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A row of the table: an arm in a case on a platform. Unknown figures are absent."""

    platform_name: str
    case: Case
    label: str
    framework: str
    method: str
    trials: int
    ran: int  # that came to their end
    disturbed: int  # of those
    failure: str | None  # why other trials, or all, have no figures
    figures: Mapping[str, Figure] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)
    described: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)  # python, framework and model library
    price_per_hour: float | None = None
    cost_per_million: Figure | None = None


def cell_of(
    arm: Arm,
    case: Case,
    records: Sequence[SummaryRecord],
    *,
    platform_name: str,
    price_per_hour: float | None = None,
    why_not: str | None = None,
) -> Cell:
    """Return the cell of an arm's trials; `why_not` is the reason why there are none."""
    figures = {
        name: found
        for name, sources in MEASURED.items()
        if (found := figure(_values(records, sources))) is not None
    }
    device = figure([peak for record in records if (peak := _device_memory(record))])
    if device is not None:
        figures[DEVICE_MEMORY] = device
    throughput = figures.get("throughput_per_s")
    cost = None
    if price_per_hour is not None and throughput is not None:
        cost = cost_per_million(price_per_hour, throughput)
    return Cell(
        platform_name=platform_name,
        case=case,
        label=arm.label,
        framework=arm.framework,
        method=arm.method(case.phase),
        trials=len(records),
        ran=sum(record.ran for record in records),
        disturbed=sum(record.ran and record.disturbed for record in records),
        failure=why_not or failure_of(records),
        figures=figures,
        counts=_counts(records),
        described=_described(records),
        software=software(records),
        price_per_hour=price_per_hour,
        cost_per_million=cost,
    )


def _values(records: Sequence[SummaryRecord], sources: Sequence[str]) -> list[float]:
    found = []
    for record in records:
        values = [record.values[name] for name in sources if name in record.values]
        found += values[:1]
    return found


def failure_of(records: Sequence[SummaryRecord]) -> str | None:
    """Return why trials have no figures, and how many; None when all have them."""
    failed = [record for record in records if not record.ran]
    if not failed:
        without = sum(WALL_TIME not in record.values for record in records)
        return f"no time was reported in {without} of {len(records)} trials" if without else None
    status, count = Counter(record.status for record in failed).most_common(1)[0]
    why = next((one.reason for one in failed if one.status is status and one.reason), "")
    text = f"{status.value} in {count} of {len(records)} trials"
    return f"{text}: {' '.join(str(why).split())}" if why else text


def _device_memory(record: SummaryRecord) -> float | None:
    """Return the sum over accelerators of the peak that the framework had allocated."""
    own = record.document.get("perfrun") or {}
    peaks: dict[str, float] = {}
    for item in (own.get("memory") or {}).get("device") or ():
        peak = (item.get("peak") or {}).get("bytes")
        if item.get("what") in ("allocated", "process") and peak:
            peaks[item["device"]] = max(peaks.get(item["device"], 0), peak)
    return sum(peaks.values()) if peaks and record.ran else None


def _counts(records: Sequence[SummaryRecord]) -> dict[str, float]:
    found = {}
    for name in COUNTED:
        values = [record.values[name] for record in records if name in record.values]
        if values:
            usual = Counter(values).most_common(1)[0][0]
            found[name] = int(usual) if usual.is_integer() else usual
    return found


def _described(records: Sequence[SummaryRecord]) -> dict[str, Any]:
    """Return extras of the reports by name; different values become a list."""
    found: dict[str, Any] = {}
    for name in DESCRIBED:
        values = [v for record in records if (v := extra_of(record, name)) is not None]
        different = list(dict.fromkeys(map(str, values)))
        if values:
            found[name] = values[0] if len(different) == 1 else different
    return found


def software(records: Sequence[SummaryRecord]) -> dict[str, str]:
    """Return the versions of Python and of the frameworks that the trials loaded."""
    found: dict[str, str] = {}
    for record in records:
        own = record.document.get("perfrun") or {}
        python = ((own.get("environment") or {}).get("python") or {}).get("version")
        if python:
            found["python"] = python
        for framework in own.get("frameworks") or ():
            if framework.get("name") and framework.get("version"):
                found[framework["name"]] = framework["version"]
        for name in _LIBRARIES:
            version = extra_of(record, name)
            if version:
                found[name.removesuffix("_version")] = str(version)
    return found


def shared_differences(
    base: Sequence[SummaryRecord], other: Sequence[SummaryRecord], *, same_framework: bool
) -> tuple[Difference, ...]:
    """Return the differences around two arms; installed software only with `same_framework`."""
    kinds = (*_SHARED, *_INSTALLED) if same_framework else _SHARED
    found = [one for one in differences(base, other) if one.kind in kinds]
    # Two modes are two methods of one file; each arm then has a source that the other one lacks.
    one_sided = [one for one in found if one.kind == "source" and None in (one.base, one.new)]
    if len({one.base or one.new for one in one_sided}) == 1:
        found = [one for one in found if one not in one_sided]
    return tuple(found)


def difference_texts(differing: Sequence[Difference]) -> list[str]:
    """Return the differences as texts; a container on one side only is one of them, not ten."""
    image = next((d for d in differing if (d.kind, d.name) == ("container", "image_id")), None)
    one_sided = image is not None and None in (image.base, image.new)
    texts = [
        d.text
        for d in differing
        if not (d.kind == "container" and one_sided) and (d.kind, d.name) != ("python", "build")
    ]
    if image is not None and one_sided:
        texts.append(f"in a container {'no -> yes' if image.base is None else 'yes -> no'}")
    more = len(texts) - _MOST_TEXTS
    return [*texts[:_MOST_TEXTS], f"{more} more"] if more > 0 else texts


def count_notes(cells: Iterable[Cell]) -> list[str]:
    """Return notes on parameters and FLOPs that differ between arms, once for all batch sizes."""
    found: dict[str, None] = {}
    for group in _by_case(cells):
        for name, title in _COUNTS.items():
            counts = {c.label: c.counts[name] for c in group if name in c.counts}
            if len(set(counts.values())) > 1:
                found[_count_note(name, title, counts, group)] = None
    return list(found)


def _count_note(name: str, title: str, counts: dict[str, float], group: Sequence[Cell]) -> str:
    texts = [f"{label} {_whole(value)}" for label, value in counts.items()]
    note = f"{title} differ: {', '.join(texts)}"
    if name == "parameters":
        trainable = {c.counts.get("trainable_parameters", c.counts[name]) for c in group
                     if name in c.counts}  # fmt: skip
        if len(trainable) == 1:
            note += (
                f"; trainable are {_whole(trainable.pop())} in each (Keras counts the statistics "
                "of batch normalisation as parameters, PyTorch does not)"
            )
    if name == "flops_per_example":
        tools = {
            c.label: c.described["flops_counted_by"]
            for c in group
            if "flops_counted_by" in c.described
        }
        counted = [f"{label}: {tool}" for label, tool in tools.items()]
        note += f" (counted by {'; '.join(counted)})" if counted else ""
    return f"{note}."


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def described_notes(cells: Iterable[Cell]) -> list[str]:
    """Return the settings that differ between arms, as `dtype: a float32, b bfloat16`."""
    found: dict[str, None] = {}
    for group in _by_case(cells):
        names = {name for c in group for name in c.described} - set(_SHOWN_ELSEWHERE)
        for name in sorted(names):
            values = {c.label: c.described.get(name) for c in group if c.ran}
            if len({str(value) for value in values.values()}) > 1:
                texts = [
                    f"{label} {'(not reported)' if v is None else v}" for label, v in values.items()
                ]
                found[f"{name.replace('_', ' ')}: {', '.join(texts)}"] = None
    return list(found)


def machine_text(machine: Mapping[str, Any]) -> str:
    """Return a text with processor, CPUs and accelerators."""
    parts = [str(machine.get("cpu_model") or "processor not known")]
    if machine.get("logical_cpu_count"):
        count, usable = machine["logical_cpu_count"], machine.get("usable_cpu_count")
        parts.append(f"{count} CPUs" if usable in (None, count) else f"{usable} of {count} CPUs")
    if machine.get("accelerator_model"):
        parts.append(f"{machine.get('accelerator_count', 1)} x {machine['accelerator_model']}")
    return ", ".join(parts)


def disturbance_note(cells: Sequence[Cell]) -> list[str]:
    """Return a note on the number of disturbed trials of each arm, if there are any."""
    counts: dict[str, tuple[int, int]] = {}
    for one in cells:
        disturbed, ran = counts.get(one.label, (0, 0))
        counts[one.label] = (disturbed + one.disturbed, ran + one.ran)
    texts = [f"{label} {count} of {ran}" for label, (count, ran) in counts.items() if count]
    if not texts:
        return []
    note = (
        f"Disturbed trials: {', '.join(texts)}. They count: those of a round were run in the same "
        "minutes."
    )
    if any(disturbed and 2 * disturbed >= ran for disturbed, ran in counts.values()):
        note += (
            " But load may slow one framework more than another: all figures, ratios included, "
            "are those of a busy machine."
        )
    return [note]


def _by_case(cells: Iterable[Cell]) -> list[list[Cell]]:
    groups: dict[tuple[str, str], list[Cell]] = {}
    for one in cells:
        groups.setdefault((one.platform_name, one.case.name), []).append(one)
    return list(groups.values())


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A figure of an arm over that of the base in a case, from pairs of trials."""

    platform_name: str
    case: Case
    base: str
    label: str
    figure: str  # as in a cell
    ratio: float | None
    low: float | None  # 95 %, corrected for interim analyses and all judged figures
    high: float | None
    verdict: str  # faster, slower, equivalent, undecided; also if the figure is no time
    reason: str | None  # why undecided
    pairs: int
    margin: float  # ratios closer to 1 are equivalent
    p_value: float | None


@dataclass(frozen=True, kw_only=True)
class VersusAnswer:
    """The result of a comparison."""

    platform_name: str
    machine: Mapping[str, Any]
    cells: tuple[Cell, ...]
    ratios: tuple[Ratio, ...]
    differences: Mapping[str, tuple[Difference, ...]]  # by rival, against the base
    notes: tuple[str, ...]


def answer_of(asked: VersusPlan, trials: Trials) -> VersusAnswer:
    """Return the result of a comparison from its trials."""
    platform, machine = _platform(asked, trials)
    cells = []
    for case in asked.cases:
        for arm in asked.arms:
            price = asked.prices.of(arm.label, arm.framework, platform)
            cells.append(
                cell_of(
                    arm,
                    case,
                    records_of(trials.blocks.get(case.name, ()), arm.label),
                    platform_name=platform,
                    price_per_hour=price,
                    why_not=trials.not_run.get(arm.label),
                )
            )
    differing = _differences(asked.arms, trials)
    return VersusAnswer(
        platform_name=platform,
        machine=machine,
        cells=tuple(cells),
        ratios=tuple(_ratios(asked, trials, platform)),
        differences=differing,
        notes=(
            *count_notes(cells),
            *_environment_notes(cells, asked.arms, differing),
            *disturbance_note(cells),
        ),
    )


def records_of(blocks: Sequence[Block], label: str) -> list[SummaryRecord]:
    """Return the trials of an arm in a case."""
    return [block.readings[label] for block in blocks if label in block.readings]


def _platform(asked: VersusPlan, trials: Trials) -> tuple[str, dict[str, Any]]:
    """Return the platform's name (by default the host's), and facts on its machine."""
    for blocks in trials.blocks.values():
        for block in blocks:
            for record in block.readings.values():
                return _platform_of(record, asked.platform_name)
    return asked.platform_name or "this machine", {}


def _platform_of(record: SummaryRecord, name: str | None) -> tuple[str, dict[str, Any]]:
    system = record.document.get("system_info") or {}
    machine = (record.document.get("perfrun") or {}).get("machine") or {}
    names = ("cpu_model", "physical_cpu_count", "logical_cpu_count", "hostname")
    accelerators = ("accelerator_model", "accelerator_count")
    facts = {key: system[key] for key in (*names, *accelerators) if system.get(key) is not None}
    for key in ("usable_cpu_count", "memory_bytes", "operating_system", "kernel"):
        if machine.get(key) is not None:
            facts[key] = machine[key]
    return name or str(facts.get("hostname") or "this machine"), facts


def _ratios(asked: VersusPlan, trials: Trials, platform: str) -> list[Ratio]:
    rule = rule_of(asked, trials.blocks)
    base, *rivals = (arm.label for arm in asked.arms)
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
    rule: PairRule,
    stopped_by: str,
) -> Ratio:
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


def _reason(pairs: int, rule: PairRule, stopped_by: str) -> str:
    """Return why nothing is decided, and what would decide it."""
    if pairs == 0:
        return "no pair has this figure"
    if not rules.can_decide(rule):
        return f"too few rounds: {rule.max_pairs}, and {fewest_rounds(rule)} can decide"
    return {
        "max_pairs": "all rounds are spent",
        "time_budget": "the time is spent",
        "interrupted": "interrupted",
        "failed": "too few pairs, since trials failed",
    }.get(stopped_by, "the interval leaves it open")


def fewest_rounds(rule: PairRule) -> int:
    """Return the smallest number of rounds that can decide so many figures."""
    from dataclasses import replace

    return next(
        count
        for count in range(rule.max_pairs, 10_000)
        if rules.can_decide(replace(rule, max_pairs=count))
    )


def _differences(arms: Sequence[Arm], trials: Trials) -> dict[str, tuple[Difference, ...]]:
    every = {
        one.label: [r for blocks in trials.blocks.values() for r in records_of(blocks, one.label)]
        for one in arms
    }
    base, *rivals = arms
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
    arms: Sequence[Arm],
    differing: Mapping[str, Sequence[Difference]],
) -> list[str]:
    found = [f"Environment: {text}." for text in described_notes(cells)]
    base = arms[0].label
    for rival, found_differences in differing.items():
        texts = "; ".join(difference_texts(found_differences))
        found += [f"Environment: {base} -> {rival}: {texts}."] if texts else []
    if len(differing) and not found:
        found = ["Environment: settings, Python and machine are the same for all."]
    return found
