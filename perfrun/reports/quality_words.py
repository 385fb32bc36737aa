"""The quality of trials in words: a few for each trial, the common cause once, or all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfrun.summary.document import TrialResult
from perfrun.summary.finding import Severity

# The words for each code of a finding. A code without words is shown as it is.
WORDS = {
    "allocator_not_used": "other allocator",
    "clock_jumped": "clock set",
    "cores_shared": "shared cores",
    "cpu_pressure": "waiting for CPUs",
    "cpu_stolen": "stolen CPU time",
    "device_shared": "shared device",
    "device_throttled": "throttled device",
    "disk_nearly_full": "disk nearly full",
    "frequency_capped": "lowered frequency",
    "governor": "power saving",
    "harness_busy": "perfrun itself busy",
    "io_pressure": "waiting for disks",
    "load_at_start": "busy before the run",
    "machine_loaded": "busy machine",
    "memory_pressure": "waiting for memory",
    "memory_short": "little free memory",
    "not_steady": "never steady",
    "outliers": "outliers",
    "page_faults": "page faults",
    "recompiled": "compiled while timed",
    "slowdown": "became slower",
    "suspended": "machine slept",
    "swapping": "swapping",
    "thermal_throttled": "hot processor",
    "throttled": "CPU quota used up",
    "timer_overhead": "slow timer",
    "timer_too_coarse": "coarse timer",
    "too_few_samples": "few values",
    "too_few_to_tell": "few iterations",
}
_SHARE = 0.5  # of the trials; what affects as many is a common cause
_MOST_CAUSES = 2


def grades(trials: Sequence[TrialResult]) -> str:
    """Return the grade of the trials that ran, or the best and the worst one."""
    known = sorted({trial.grade for trial in trials if trial.status.ran and trial.grade})
    return "-" if not known else known[0] if len(known) == 1 else f"{known[0]}..{known[-1]}"


def quality_word(result: TrialResult) -> str | None:
    """Return the grade and its worst cause: `F: busy machine`; None without doubts.

    A trial that did not run to its end has no figures, so there is nothing to doubt.
    """
    found = list(_doubts(result))
    if not found or not result.status.ran:
        return None
    worst = next((one for one in found if one["severity"] == Severity.DISTURBED), found[0])
    return f"{result.grade}: {WORDS.get(worst['code'], str(worst['code']))}"


def quality_line(result: TrialResult) -> str | None:
    """Return the trial's grade and findings in one line; None without doubts.

    A finding on several series or devices is shown once, for the first; the summary has them all.
    """
    found: dict[str, list[str]] = {}
    for finding in _doubts(result):
        found.setdefault(finding["code"], []).append(finding["text"])
    doubts = [
        texts[0] + (f" (and {len(texts) - 1} more like it)" if len(texts) > 1 else "")
        for texts in found.values()
    ]
    word = ", disturbed" if result.disturbed else ""
    grade = f"quality {result.grade}{word}" if result.status.ran else "beside it"
    return f"{grade}: {'; '.join(doubts)}" if doubts else None


def common_causes(results: Sequence[TrialResult]) -> list[str]:
    """Return a line for what most trials of a run have in common, the most frequent first."""
    ran = [trial for trial in results if trial.status.ran]
    counts: Counter[str] = Counter()
    examples: dict[str, Mapping[str, Any]] = {}
    severities: dict[str, int] = {}
    for trial in ran:
        for code in dict.fromkeys(finding["code"] for finding in _doubts(trial)):
            counts[code] += 1
        for finding in _doubts(trial):
            severe = int(finding["severity"] == Severity.DISTURBED)
            if severe >= severities.get(finding["code"], -1):
                examples[finding["code"]], severities[finding["code"]] = finding, severe
    common = [code for code, count in counts.items() if len(ran) > 1 and count >= _SHARE * len(ran)]
    worst = max((severities[code] for code in common), default=0)
    common = [code for code in common if severities[code] == worst]
    common.sort(key=lambda code: -counts[code])
    return [_cause(counts[code], len(ran), code, examples[code]) for code in common[:_MOST_CAUSES]]


def _cause(count: int, of: int, code: str, finding: Mapping[str, Any]) -> str:
    what = f"{WORDS.get(code, code)} in {count} of {of} trials: {finding['text']}"
    mend = finding.get("mend")
    return f"{what} ({mend})" if mend else what


def _doubts(result: TrialResult) -> Iterator[Mapping[str, Any]]:
    quality = result.document["perfrun"].get("quality") or {}
    for finding in quality.get("findings", ()):
        if finding["severity"] != Severity.INFO:
            yield finding
