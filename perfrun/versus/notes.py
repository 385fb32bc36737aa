"""What must not be overlooked under the table: what else differs between the contenders. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfrun.differences import Difference, differences
from perfrun.summary_record import SummaryRecord
from perfrun.versus.cells import Cell

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
