"""Derive a metric's direction (which way is better) and unit from its name."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Literal, TypeVar

Direction = Literal["lower", "higher", "none"]
_Said = TypeVar("_Said")

# The first match counts: `images_per_second` ends in `second` and is a rate nevertheless, and a
# `cache_miss_rate` is not better when higher.
_RULES: tuple[tuple[str, Direction], ...] = (
    (r"max_batch_size", "higher"),
    (r"^time_to_|^(epochs|steps|iterations)_to_", "lower"),  # a target, as time_to_accuracy_s
    # Settings, and amounts of work: flops as a count and as a rate go by the same word.
    (r"learning_rate|dropout_rate|sampl(e|ing)_rate|loss_scale|time_?steps", "none"),
    (r"^(total_)?flops$|memory_utili[sz]ation", "none"),
    (r"miss|error|loss|fail|overhead|perplexity|mse|mae|wait", "lower"),
    (r"per_(s|sec|second|minute|hour|joule|watt)\b|per_(sec|second)_|_(fps|qps)\b", "higher"),
    (r"\b(fps|qps|ips|[gt]flops)\b|_[gt]?flops\b|\b[mh]fu\b|_[mh]fu\b", "higher"),
    (r"throughput|bandwidth|exp_per|_rate\b|\brate\b|speed", "higher"),
    (r"accuracy|\bacc\b|top_?[15]\b|precision|recall|\bf1\b|\bauc\b|bleu|\bmap\b", "higher"),
    (r"efficiency|utili[sz]ation|hit_ratio", "higher"),
    (r"wall_?time|cpu_?time|latency|elapsed|duration|time\b|time_|delay", "lower"),
    (r"_(s|sec|secs|seconds|ms|us|ns|minutes|hours)\b", "lower"),
    (r"bytes|memory|_(rss|vms|pss|[kmgt]i?b)\b|\brss\b|\bvms\b", "lower"),
    (r"energy|joules|power|watts|_(j|w)\b", "lower"),
)
_UNITS: tuple[tuple[str, str], ...] = (
    (r"bytes_per_(s|sec|second)\b", "bytes/s"),
    (r"_per_second|_per_sec\b|_per_s\b|throughput|_fps\b|_qps\b", "1/s"),
    (r"efficiency", ""),
    (r"_ms\b", "ms"),
    (r"_us\b", "us"),
    (r"_ns\b", "ns"),
    (r"bytes|_(rss|vms|pss)\b|\b(rss|vms|pss)\b", "bytes"),
    (r"wall_?time|cpu_?time|_(s|sec|secs|seconds)\b|latency|elapsed|duration", "s"),
    (r"energy|joules|_j\b", "J"),
    (r"power|watts|_w\b", "W"),
    (r"percent|_pct\b", "%"),
)


def direction_of(metric: str) -> Direction:
    """Return which way is better; `none` where the name does not tell."""
    return _first(_RULES, metric) or "none"


def worse_or_better(*, grew: bool, direction: str) -> Literal["worse", "better"]:
    """Return what a change of the level is for a metric of which `direction` is better."""
    return "worse" if grew == (direction == "lower") else "better"


def unit_of(metric: str) -> str:
    """Return the unit; empty where the name does not tell."""
    return _first(_UNITS, metric) or ""


def _first(rules: tuple[tuple[str, _Said], ...], metric: str) -> _Said | None:
    name = metric.lower()
    return next((said for search, said in _compiled(rules) if search(name)), None)


@cache
def _compiled(rules: tuple[tuple[str, Any], ...]) -> tuple[tuple[Any, Any], ...]:
    """Return the rules with what looks for their patterns: a run of a no-op needs none of them."""
    return tuple((re.compile(pattern).search, said) for pattern, said in rules)
