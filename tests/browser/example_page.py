"""A made-up report: a year of nights of 200 methods, all that a page can show, hostile texts."""

import base64
import math
import random
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# What a stranger may call a method, a metric, a commit or a machine.
HOSTILE = (
    "</script><script>window.broken=1</script>",
    '<img src=x onerror="window.broken=1">',
    "javascript:window.broken=1",
    "{{ 7 * 7 }}${window.broken=1}",
    "\"'><svg onload=window.broken=1>",
    '=HYPERLINK("http://192.0.2.1/")',
    "line\u2028end\u202egnirts\x1b[31m\ud7ff",
    "x" * 400,
)
NIGHT = 86400
MISSING = 65535


def packed(values: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    step = (high - low) / 65534 if high > low else 0.0
    steps = [
        MISSING if value is None else round((value - low) / step) if step else 0 for value in values
    ]
    text = base64.b64encode(struct.pack(f"<{len(steps)}H", *steps)).decode()
    return {"min": low, "step": step, "n": len(steps), "b64": text}


def report(
    methods: int = 200, nights: int = 365, *, hostile: bool = True, now: float = 1790000000.0
) -> dict[str, Any]:
    """The data of a page, the same for the same arguments."""
    chance = random.Random(15)
    start = now - (nights - 1) * NIGHT
    data: dict[str, Any] = {
        "schema": 1,
        "perfrun": "1.2.3",
        "made": now + 1800,
        "title": "Nightly benchmarks",
        "selection": f"last {nights} nights of 2 environments",
        "newest": now,
        "machines": [
            {"name": "bench-01", "cpu": "2 x EPYC 9654", "accelerators": "8 x H100",
             "trials": methods * nights, "last": now},
            {"name": "bench-02", "cpu": "Xeon 8480+", "accelerators": "", "trials": 4 * nights,
             "last": now - 3600},
        ],
        "outcomes": {"passed": methods * nights - 61, "failed": 41, "timed_out": 12, "skipped": 8},
        "warnings": [
            "3 methods have fewer than 5 trials on the newest night: their intervals are wide.",
            "bench-02 was busy on 14 of 365 nights; these observations are marked as disturbed.",
        ],
        "changes": [], "methods": [], "series": [], "details": [], "pairs": [],
        "shared": [
            packed([start + night * NIGHT for night in range(nights)]),
            packed([float(night // 2) for night in range(nights)]),
        ],
        "commits": [
            {"id": f"{chance.getrandbits(48):012x}", "subject": chance.choice(SUBJECTS),
             "repository": "models"}
            for _ in range(nights // 2 + 1)
        ],
        "versus": [versus()],
        "fleet": [submission(now), {**submission(now), "submission": "models-2", "is_good": True}],
        "left_out": ["12 histories of derived metrics"],
    }  # fmt: skip
    names = [
        f"benchmarks.{chance.choice(FAMILIES)}.{chance.choice(MODELS)}.{KINDS[i % len(KINDS)]}_{i}"
        for i in range(methods)
    ]
    if hostile:
        names[3 : 3 + len(HOSTILE)] = HOSTILE
        data["commits"][(nights - 1) // 2]["subject"] = HOSTILE[0]
        data["machines"][1]["name"] = HOSTILE[1]
        data["warnings"].append(HOSTILE[0])
    for i, name in enumerate(names):
        add_method(data, chance, i, name, nights, now)
    data["changes"].sort(
        key=lambda c: (c["direction"] != "worse", c["status"] != "confirmed", -c["at"])
    )
    return data


FAMILIES = ("vision", "language", "speech", "kernels")
MODELS = ("ResNet50", "Bert", "Whisper", "Attention", "Mlp", "UNet")
KINDS = ("inference", "training_step", "load", "compile")
SUBJECTS = (
    "Fuse the bias into the matmul epilogue", "Read shards with two threads", "Bump the compiler",
    "Keep the attention mask in bf16", "Copy weights lazily", "Fix a leak in the prefetcher",
)  # fmt: skip


def add_method(
    data: dict[str, Any], chance: random.Random, i: int, name: str, nights: int, now: float
) -> None:
    """One method with its series; every 9th got worse, every 13th better, one in 25 fails."""
    level = 10 ** chance.uniform(-3, 1)
    noise = chance.choice((0.002, 0.004, 0.01, 0.03, 0.07))
    step_at, factor = nights, 1.0
    if i % 9 == 0:
        step_at, factor = nights - 3 - chance.randrange(nights // 4), 1 + chance.uniform(0.08, 0.2)
    elif i % 13 == 0:
        step_at, factor = nights // 2, 1 - chance.uniform(0.05, 0.2)
    cut = nights // 3
    values: list[float | None] = []
    flags = bytearray(nights)
    for night in range(nights):
        base = level * (factor if night >= step_at else 1) * (0.97 if night >= cut else 1)
        value = base * math.exp(chance.gauss(0, noise))
        if i % 5 == 0 and chance.random() < 0.02:
            flags[night] = 1
            value *= 1.2
        failed = chance.random() < 0.005 or (i % 25 == 7 and night > nights - 3)
        flags[night] |= 2 if failed else 0
        values.append(None if failed else value)
    index = len(data["series"])
    spread = [v and v * (1 + noise * 1.5) for v in values]
    known = [v for v in values if v is not None]
    baseline = sorted(known[: nights // 3])[nights // 6 - 2]
    data["series"].append(
        {
            "method": i, "metric": "wall_time", "unit": "s", "direction": "lower", "derived": False,
            "n": nights, "time": 0, "value": packed(values),
            "low": packed([v and v * (1 - noise * 1.5) for v in values]), "high": packed(spread),
            "flags": base64.b64encode(flags).decode() if any(flags) else None,
            "cuts": [{"at": cut, "text": "driver 570 -> 580"},
                     {"at": nights * 2 // 3, "text": "torch 2.8 -> 2.9"}] if i % 2 == 0 else [],
            "commit": 1, "baseline": baseline, "noise": noise,
        }
    )  # fmt: skip
    series = [index]
    if i % 20 == 0:
        series.append(index + 1)
        data["series"].append(
            {"method": i, "metric": "peak_memory", "unit": "bytes", "direction": "lower",
             "derived": False, "n": nights, "time": 0,
             "value": packed([2.1e9 + chance.randrange(3) * 2**20 for _ in range(nights)]),
             "low": None, "high": None, "flags": None, "cuts": [], "commit": 1,
             "baseline": None, "noise": 0.001}
        )  # fmt: skip
    if factor != 1:
        add_change(data, chance, i, index, step_at, factor, now - (nights - 1 - step_at) * NIGHT)
    data["methods"].append(
        {
            "name": name, "environment": "bench-01" if i % 4 else "bench-02", "hardware": "8ab3",
            "hardware_text": "", "settings": "", "main": index, "series": series,
            "state": "failed" if i % 25 == 7 else "passed", "trials": nights * 3,
            "failed": nights - len(known), "last": now - chance.randrange(7200),
            "against_last_night": known[-1] / known[-2], "against_baseline": known[-1] / baseline,
            "noise": noise, "grade": "A" if noise < 0.02 else "C",
            "detail": len(data["details"]) if i < 40 else None,
        }
    )  # fmt: skip
    if i < 40:
        data["details"].append(detail(chance, i, name, level * factor, noise, now))


def add_change(
    data: dict[str, Any], chance: random.Random, i: int, index: int, at: int, factor: float,
    when: float,
) -> None:  # fmt: skip
    confirmed = i % 2 == 0
    said = f"{factor:.2f} ({factor - 0.01:.2f}..{factor + 0.01:.2f})"
    night, alarm = (time.strftime("%Y-%m-%d", time.gmtime(t)) for t in (when, when + 3 * NIGHT))
    data["changes"].append(
        {
            "series": index, "method": i, "metric": "wall_time",
            "direction": "worse" if factor > 1 else "better",
            "ratio": factor, "low": factor * 0.985, "high": factor * 1.015, "night": night,
            "alarm_night": alarm, "at": at,
            "status": "confirmed" if confirmed else "candidate", "pairs": 12 if confirmed else 0,
            "text": f"confirmed by 12 pairs: {said}" if confirmed else "waits for pairs",
            "commits": ["models a1b2c3d4..d4e5f6a7"],
            "culprit": {"commit": "d4e5f6a7b8c9", "repository": "",
                        "subject": chance.choice(SUBJECTS),
                        "author": "A. Author"} if i % 4 == 0 else None,
            "environment": ["driver 570 -> 580"] if i % 5 == 0 else [], "machine_suspect": i == 45,
            "is_recent": when > data["newest"] - 14 * NIGHT,
        }
    )  # fmt: skip
    if confirmed:
        base = [0.1 * math.exp(chance.gauss(0, 0.01)) for _ in range(12)]
        data["pairs"].append(
            {"series": index, "method": i, "metric": "wall_time", "base": packed(base),
             "new": packed([v * factor * math.exp(chance.gauss(0, 0.008)) for v in base]),
             "ratio": factor, "low": factor - 0.01, "high": factor + 0.01,
             "title": "a1b2c3d4 against d4e5f6a7"}
        )  # fmt: skip


def detail(
    chance: random.Random, i: int, name: str, level: float, noise: float, now: float
) -> dict[str, Any]:
    warmup = [level * (1 + 3 * math.exp(-k)) for k in range(10)]
    samples = [level * math.exp(chance.gauss(0, noise)) for _ in range(60)]
    seconds = [k * 0.5 for k in range(60)]
    lines = [
        ("memory", "bytes", [2e9 * (1 - math.exp(-t / 4)) + 1e8 for t in seconds]),
        ("CPU", "cores", [1 + 7 * (t > 6) + chance.random() * 0.3 for t in seconds]),
        ("GPU", "%", [95 * (t > 8) + chance.random() * 3 for t in seconds]),
        ("power", "W", [90 + 500 * (t > 8) + chance.random() * 20 for t in seconds]),
    ]
    return {
        "method": i, "timestamp": now, "samples": packed(samples), "warmup": packed(warmup),
        "steady": "flat after 8 iterations", "samples_unit": "s", "samples_every": 1,
        "steady_from": 0, "ended": "passed", "grade": "A", "execution_id": "e1",
        "doubts": ["The machine was busy for 3 s of this trial."] if i % 6 == 0 else [],
        "phases": [{"name": "import", "seconds": 3.2}, {"name": "setup", "seconds": 5.0},
                   {"name": "warm-up", "seconds": 4.1}, {"name": "measure", "seconds": 17.2}],
        "timeline": [{"name": n, "unit": u, "t": packed(seconds), "y": packed(y)}
                     for n, u, y in lines],
        "memory": [{"name": "peak of the tree", "bytes": 2.1e9},
                   {"name": "after setup", "bytes": 9e8}],
        "environment": [["python", "3.11.7"], ["torch", "2.9.0"], ["driver", "580.65"],
                        ["kernel", "6.12.8"], ["governor", "performance"]],
        "differences": [["driver", "570.12", "580.65"]],
        "failures": [{"time": now - 3 * NIGHT, "reason": "exit status 137: killed for its memory",
                      "tail": ["step 41 of 200", HOSTILE[0], "Killed"]}] if i % 3 == 0 else [],
        "profiles": ["profiles/e1/trace.json", "javascript:window.broken=1", "//192.0.2.1/x"],
        "command": f"perfrun --methods={name[:80]} --trials=5 --label=again",
        "log_tail": ["loading weights", HOSTILE[1], "done"],
    }  # fmt: skip


def versus() -> dict[str, Any]:
    sides = (("torch", 1.0), ("tensorflow", 0.83), ("jax", 1.12))
    return {
        "title": "torch, tensorflow and jax",
        "rows": [
            {"what": what, "metric": "images/s",
             "sides": [{"name": name, "value": base * factor, "low": base * factor * 0.97,
                        "high": base * factor * 1.03} for name, factor in sides]}
            for what, base in (("resnet50 inference", 3100.0), ("resnet50 training", 1240.0))
        ],
    }  # fmt: skip


def submission(now: float) -> dict[str, Any]:
    failed = [
        HOSTILE[0],
        "batch_size=8",
        "benchmark failed",
        f"{HOSTILE[1]} " + 20 * "reason ",
        "bench-01",
        "torch",
        "1",
    ]
    return {
        "submission": f"models-{HOSTILE[0]}", "suite": "models", "engine": "slurm", "created": now,
        "shards": 40, "states": {"running": 2, "done": 36, "benchmark failed": 1, "not begun": 1},
        "seconds_left": 95.0, "left": "about 2 min left", "is_good": False,
        "tables": [
            {"title": "What failed, and why", "rows": [failed],
             "headings": ["Method", "Setting", "State", "Why", "Machine", "Environment", "Round"]},
            {"title": "Results by setting",
             "headings": ["Method", "Setting", "Trials", "wall_time", "of first"],
             "rows": [["models.ResNet.train", f"batch_size={size} dtype=float32", "3",
                       f"{size * 1.5} ms (1.4..{size * 1.7})", f"{size}.000"]
                      for size in (1, 8, 32)]},
        ],
        "notes": ["12,000 trials are too many for a table here: fleet --table"],
    }  # fmt: skip


if __name__ == "__main__":  # python tests/browser/example_page.py FILE [METHODS [NIGHTS]]
    from rendering import render

    data = report(*map(int, sys.argv[2:]), hostile=False, now=time.time())
    Path(sys.argv[1]).write_text(render(data), encoding="utf-8")
