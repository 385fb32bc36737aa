"""From the trials to what is shown and saved: cells, ratios, and what else there is to know.

What the trials of a contender in a case say: the figures and facts of one row of the table.

What must not be overlooked under the table: what else differs between the contenders. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfrun.compare.differences import Difference, differences
from perfrun.compare.paired_runs import Block, log_ratios
from perfrun.summary.metrics import PEAK_RSS, THROUGHPUT, WALL_TIME
from perfrun.summary.record import SummaryRecord
from perfrun.versus.options import Case, Contender, VersusPlan
from perfrun.versus.trials import JUDGED, Trials, pairs_of, rule_of

if TYPE_CHECKING:
    from perfrun.analysis.costs import Figure
    from perfrun.analysis.pairs import PairRule


# Figure of the table -> names in a summary, the first that is there counts.
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
# What should be one number in all trials of a contender.
COUNTED = ("parameters", "trainable_parameters", "flops_per_example", "macs_per_example")
# Extras of a report that say how it was measured.
DESCRIBED = (
    *("model", "model_library", "input_shape", "input_layout", "channels_last", "data"),
    *("dtype", "device", "threads", "inter_threads", "compile", "global_batch_size", "warmup"),
    *("flops_counted_by", "seed"),
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One row: a contender in a case on a platform. What is not known is absent."""

    platform_name: str
    case: Case
    label: str
    framework: str
    method: str
    trials: int
    ran: int  # came to their end
    disturbed: int  # of those
    failure: str | None  # what became of the others, or why there is none
    figures: Mapping[str, Figure] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)
    described: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)  # python, framework and model library
    price_per_hour: float | None = None
    cost_per_million: Figure | None = None


def cell(
    contender: Contender,
    case: Case,
    readings: Sequence[SummaryRecord],
    *,
    platform_name: str,
    price_per_hour: float | None = None,
    why_not: str | None = None,
) -> Cell:
    """Sum up the trials; `why_not` says why there are none."""
    from perfrun.analysis.costs import cost_per_million, figure  # numpy and scipy

    figures = {
        name: found
        for name, sources in MEASURED.items()
        if (found := figure(_values(readings, sources))) is not None
    }
    device = figure([peak for reading in readings if (peak := _device_memory(reading))])
    if device is not None:
        figures[DEVICE_MEMORY] = device
    throughput = figures.get("throughput_per_s")
    priced = price_per_hour is not None and throughput is not None
    return Cell(
        platform_name=platform_name,
        case=case,
        label=contender.label,
        framework=contender.framework,
        method=contender.method(case.phase),
        trials=len(readings),
        ran=sum(reading.ran for reading in readings),
        disturbed=sum(reading.ran and reading.disturbed for reading in readings),
        failure=why_not or failure_of(readings),
        figures=figures,
        counts=_counts(readings),
        described=_described(readings),
        software=software(readings),
        price_per_hour=price_per_hour,
        cost_per_million=cost_per_million(price_per_hour, throughput) if priced else None,  # type: ignore[arg-type]
    )


def _values(readings: Sequence[SummaryRecord], sources: Sequence[str]) -> list[float]:
    found = []
    for reading in readings:
        values = [reading.values[name] for name in sources if name in reading.values]
        found += values[:1]
    return found


def failure_of(readings: Sequence[SummaryRecord]) -> str | None:
    """What became of the trials that did not come to their end, and why; None when all did."""
    failed = [reading for reading in readings if not reading.ran]
    if not failed:
        without = sum(WALL_TIME not in reading.values for reading in readings)
        return f"no time was reported in {without} of {len(readings)} trials" if without else None
    status, count = Counter(reading.status for reading in failed).most_common(1)[0]
    why = next((one.reason for one in failed if one.status is status and one.reason), "")
    text = f"{status.value} in {count} of {len(readings)} trials"
    return f"{text}: {' '.join(str(why).split())}" if why else text


def _device_memory(reading: SummaryRecord) -> float | None:
    """The sum over accelerators of what the framework had allocated at most."""
    own = reading.document.get("perfrun") or {}
    peaks: dict[str, float] = {}
    for item in (own.get("memory") or {}).get("device") or ():
        peak = (item.get("peak") or {}).get("bytes")
        if item.get("what") in ("allocated", "process") and peak:
            peaks[item["device"]] = max(peaks.get(item["device"], 0), peak)
    return sum(peaks.values()) if peaks and reading.ran else None


def _counts(readings: Sequence[SummaryRecord]) -> dict[str, float]:
    found = {}
    for name in COUNTED:
        values = [reading.values[name] for reading in readings if name in reading.values]
        if values:
            usual = Counter(values).most_common(1)[0][0]
            found[name] = int(usual) if usual.is_integer() else usual
    return found


def _described(readings: Sequence[SummaryRecord]) -> dict[str, Any]:
    """Extras of the reports; several values are a list of them."""
    found: dict[str, Any] = {}
    for name in DESCRIBED:
        values = [v for reading in readings if (v := extra(reading, name)) is not None]
        different = list(dict.fromkeys(map(str, values)))
        if values:
            found[name] = values[0] if len(different) == 1 else different
    return found


def extra(reading: SummaryRecord, name: str) -> Any:
    """An extra of the trial's report; None without."""
    extras = reading.document["benchmark_result"].get("extras") or ()
    return next((item["value"] for item in extras if item["name"] == name), None)


def software(readings: Sequence[SummaryRecord]) -> dict[str, str]:
    """Python, and the frameworks that the trials have loaded, with their versions."""
    found: dict[str, str] = {}
    for reading in readings:
        own = reading.document.get("perfrun") or {}
        python = ((own.get("environment") or {}).get("python") or {}).get("version")
        if python:
            found["python"] = python
        for framework in own.get("frameworks") or ():
            if framework.get("name") and framework.get("version"):
                found[framework["name"]] = framework["version"]
        for name in ("torchvision_version", "timm_version", "keras_version"):
            version = extra(reading, name)
            if version:
                found[name.removesuffix("_version")] = str(version)
    return found


# Of `perfrun.differences`: what two frameworks have in common and should have alike. What is
# installed in their environments differs by design, and labels and flags say who is who.
_SHARED = ("hardware", "driver", "machine", "container", "python", "variable", "perfrun")
_INSTALLED = ("framework", "distribution", "git", "source")
_MOST_TEXTS = 12  # in a line; the saved document has all
_SAID_ELSEWHERE = ("flops_counted_by", "compile", "model_library", "seed")
# As the median over trials jitters in no way, any difference of these is one of the models.
_COUNTS = {
    "parameters": "Parameters",
    "trainable_parameters": "Trainable parameters",
    "flops_per_example": "FLOPs per example",
}


def shared_differences(
    base: Sequence[SummaryRecord], other: Sequence[SummaryRecord], *, same_framework: bool
) -> tuple[Difference, ...]:
    """What differs around two contenders; installed software only where it should be alike."""
    kinds = (*_SHARED, *_INSTALLED) if same_framework else _SHARED
    found = [one for one in differences(base, other) if one.kind in kinds]
    # Two modes are two methods, each with a source that the other side has not: of one file.
    one_sided = [one for one in found if one.kind == "source" and None in (one.base, one.new)]
    if len({one.base or one.new for one in one_sided}) == 1:
        found = [one for one in found if one not in one_sided]
    return tuple(found)


def difference_texts(differing: Sequence[Difference]) -> list[str]:
    """As people say them; a container on one side alone is one difference, not ten."""
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
    """Parameters and FLOPs that are not the same for all contenders; said once, not per batch."""
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
    """Settings that are not the same for all contenders, as `dtype: a float32, b bfloat16`."""
    found: dict[str, None] = {}
    for group in _by_case(cells):
        names = {name for c in group for name in c.described} - set(_SAID_ELSEWHERE)
        for name in sorted(names):
            values = {c.label: c.described.get(name) for c in group if c.ran}
            if len({str(value) for value in values.values()}) > 1:
                texts = [
                    f"{label} {'(not said)' if v is None else v}" for label, v in values.items()
                ]
                found[f"{name.replace('_', ' ')}: {', '.join(texts)}"] = None
    return list(found)


def machine_text(machine: Mapping[str, Any]) -> str:
    """The processor, how many, and accelerators."""
    parts = [str(machine.get("cpu_model") or "processor not known")]
    if machine.get("logical_cpu_count"):
        count, usable = machine["logical_cpu_count"], machine.get("usable_cpu_count")
        parts.append(f"{count} CPUs" if usable in (None, count) else f"{usable} of {count} CPUs")
    if machine.get("accelerator_model"):
        parts.append(f"{machine.get('accelerator_count', 1)} x {machine['accelerator_model']}")
    return ", ".join(parts)


def disturbance_note(cells: Sequence[Cell]) -> list[str]:
    """How many trials something else on the machine disturbed."""
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
class VersusAnswer:
    """What came out."""

    platform_name: str
    machine: Mapping[str, Any]
    cells: tuple[Cell, ...]
    ratios: tuple[Ratio, ...]
    differences: Mapping[str, tuple[Difference, ...]]  # of each rival, around it
    notes: tuple[str, ...]


def answer_of(asked: VersusPlan, trials: Trials) -> VersusAnswer:
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
    return VersusAnswer(
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


def _platform(asked: VersusPlan, trials: Trials) -> tuple[str, dict[str, Any]]:
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


def _ratios(asked: VersusPlan, trials: Trials, platform: str) -> list[Ratio]:
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
    rule: PairRule,
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


def _reason(pairs: int, rule: PairRule, stopped_by: str) -> str:
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


def enough(rule: PairRule) -> int:
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
    for rival, found_differences in differing.items():
        texts = "; ".join(difference_texts(found_differences))
        found += [f"Environment: {base} -> {rival}: {texts}."] if texts else []
    if len(differing) and not found:
        found = ["Environment: settings, Python and machine are the same for all."]
    return found
