"""Judge answers: what was measured, in, a verdict with its reason, out. Nothing is run here.

An answer comes from trials of a moment ago, or from a file of another day and machine. In both
cases every figure is checked to be there, a number, and finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Answer = Mapping[str, Any]
PASSED, FAILED, ABSENT = "passed", "failed", "absent"
RAN = "ran"  # in a rehearsal: the commands work, and the figures of a CPU are not judged
_GIB = 2**30
_MIB = 2**20


class NoFigureError(Exception):
    """An answer lacks a figure, or has something else in its place."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One check's result."""

    verdict: str  # passed, failed, absent or ran
    measured: str
    reason: str | None = None  # None when passed


def judged(
    judge: Callable[[Answer], Verdict], answer: Answer, *, rehearsed: bool = False
) -> Verdict:
    """Judge an answer; one that says why it has no figures, or lacks one, is not passed."""
    if isinstance(answer.get("absent"), str):
        return Verdict(verdict=ABSENT, measured="-", reason=answer["absent"])
    if isinstance(answer.get("failed"), str):
        return Verdict(verdict=FAILED, measured="-", reason=answer["failed"])
    if rehearsed:
        return Verdict(verdict=RAN, measured="not judged on a CPU")
    try:
        return judge(answer)
    except NoFigureError as error:
        return Verdict(verdict=FAILED, measured="-", reason=str(error))


def number(answer: Any, *path: str | int) -> float:
    """Return the finite number at the path."""
    found = _at(answer, path)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise NoFigureError(f"{'.'.join(map(str, path))} is no number")
    return float(found)


def text(answer: Any, *path: str | int) -> str:
    """Return the text at the path."""
    found = _at(answer, path)
    if not isinstance(found, str):
        raise NoFigureError(f"{'.'.join(map(str, path))} is no text")
    return found


def _at(answer: Any, path: tuple[str | int, ...]) -> Any:
    found = answer
    for place, key in enumerate(path):
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError):
            raise NoFigureError(f"there is no {'.'.join(map(str, path[: place + 1]))}") from None
    return found


def _held(holds: bool, measured: str, expected: str) -> Verdict:
    if holds:
        return Verdict(verdict=PASSED, measured=measured)
    return Verdict(verdict=FAILED, measured=measured, reason=f"expected {expected}")


def _ratio(one: float, other: float, names: str) -> float:
    if one <= 0 or other <= 0:
        raise NoFigureError(f"{names}: a duration or size is not above 0")
    return one / other


def synchronisation(answer: Answer) -> Verdict:
    """Hold perfrun's clock against CUDA events; a launch alone must be far shorter."""
    wall_s, event_s = number(answer, "trial", "wall_time"), number(answer, "trial", "event_s")
    ratio = _ratio(wall_s, event_s, "wall and event time")
    launch = _ratio(number(answer, "trial", "launch_s"), event_s, "launch and event time")
    on_device = _ratio(number(answer, "trial", "device_time_s"), event_s, "device and event time")
    return _held(
        0.98 <= ratio <= 1.05 and 0.95 <= on_device <= 1.05 and launch < 0.5,
        f"wall {wall_s * 1e3:.3f} ms, {ratio:.3f} of the events' {event_s * 1e3:.3f} ms; "
        f"perfrun's own events {on_device:.3f}; the launch alone {launch:.3f}",
        "0.98 to 1.05, 0.95 to 1.05, and below 0.5",
    )


def two_streams(answer: Answer) -> Verdict:
    """A step is over when all streams are."""
    wall_s = number(answer, "trial", "wall_time")
    ratio = _ratio(wall_s, number(answer, "trial", "by_hand_s"), "wall time and loop")
    default = number(answer, "trial", "default_stream_s") / wall_s
    return _held(
        0.95 <= ratio <= 1.05 and default < 0.9,
        f"wall {wall_s * 1e3:.3f} ms, {ratio:.3f} of a loop that waits for all streams; "
        f"the default stream has {default:.2f} of it",
        "0.95 to 1.05, and below 0.9 on the default stream",
    )


def memory_peaks(answer: Answer) -> Verdict:
    """Hold the summary's peaks against the allocator's own, and NVML's against both."""
    held = number(answer, "trial", "held_bytes")
    allocated = _ratio(
        number(answer, "trial", "device_memory", "allocated"),
        number(answer, "trial", "allocated_bytes"),
        "allocated",
    )
    reserved = number(answer, "trial", "reserved_bytes")
    driver = number(answer, "trial", "device", "used_peak_bytes")
    before = number(answer, "trial", "device", "used_before_bytes")
    own = driver - before
    return _held(
        abs(allocated - 1) <= 0.001 and held <= reserved <= own + 64 * _MIB <= reserved + 2 * _GIB,
        f"allocated {allocated:.4f} of the allocator's; held {held / _MIB:,.0f}, reserved "
        f"{reserved / _MIB:,.0f}, by NVML {own / _MIB:,.0f} MiB more than before",
        "0.999 to 1.001, and NVML from the reserved memory to 2 GiB more (context, libraries)",
    )


def copies(answer: Answer) -> Verdict:
    """Pinned memory is copied at least a fifth faster, and no copy is faster than the link."""
    rates = {
        name: number(answer, "trial", name) / 1e9
        for name in (
            "pageable_to_device", "pinned_to_device", "pageable_from_device", "pinned_from_device",
        )
    }  # fmt: skip
    faster = [
        _ratio(rates[f"pinned_{way}_device"], rates[f"pageable_{way}_device"], way)
        for way in ("to", "from")
    ]
    return _held(
        min(faster) >= 1.2 and max(rates.values()) < 500,
        ", ".join(f"{name.replace('_', ' ')} {rate:.1f} GB/s" for name, rate in rates.items()),
        "pinned 1.2 times as fast as pageable or more, none above 500 GB/s",
    )


def float16(answer: Answer) -> Verdict:
    """No timed step of float16 training may be one that updates nothing."""
    skipped = number(answer, "trial", "skipped_steps")
    before, scale = (number(answer, "trial", key) for key in ("skipped_steps_before", "loss_scale"))
    return _held(
        skipped == 0 and scale >= 1,
        f"{skipped:.0f} timed steps skipped, {before:.0f} before; loss scale {scale:g}",
        "no skipped step among the timed ones, and a scale of 1 or more",
    )


def compiled(answer: Answer) -> Verdict:
    """torch.compile works, and its code is not slower than eager execution."""
    eager, fast = (number(answer, name, "wall_time") for name in ("eager", "compiled"))
    ratio = _ratio(fast, eager, "compiled and eager time")
    return _held(
        ratio <= 1.1,
        f"eager {eager * 1e3:.3f} ms, compiled {fast * 1e3:.3f} ms, {ratio:.2f}",
        "at most 1.1",
    )


def beside_a_loop(answer: Answer) -> Verdict:
    """Hold time and device peak of a shipped model against those of a loop written by hand."""
    time_ratio = _ratio(
        number(answer, "shipped", "wall_time"), number(answer, "by_hand", "wall_time"), "times"
    )
    memory_ratio = _ratio(
        number(answer, "shipped", "device_memory", "allocated"),
        number(answer, "by_hand", "allocated_bytes"),
        "peaks",
    )
    return _held(
        abs(time_ratio - 1) <= 0.05 and abs(memory_ratio - 1) <= 0.02,
        f"time {time_ratio:.3f}, allocated peak {memory_ratio:.3f} of the loop's",
        "time within 5 %, peak within 2 %",
    )


def energy(answer: Answer) -> Verdict:
    """Hold the energy counter against the integral of sampled power, under load."""
    source = text(answer, "trial", "device", "energy_source")
    counted, sampled = (
        number(answer, "trial", "device", key) for key in ("energy_j", "sampled_energy_j")
    )
    ratio = _ratio(counted, sampled, "energies")
    busy = number(answer, "trial", "device", "utilization_percent", "high")
    watts = number(answer, "trial", "device", "power_w", "high")
    return _held(
        source == "counter" and abs(ratio - 1) <= 0.1 and busy >= 90,
        f"{counted:.0f} J by the {source}, {ratio:.3f} of the {sampled:.0f} J of sampled power; "
        f"up to {watts:.0f} W and {busy:.0f} % busy",
        "a counter within 10 % of the samples, and 90 % busy at some moment",
    )


def mig(answer: Answer) -> Verdict:
    """State the mode of each device; a pending change would need a reset that nobody asked for."""
    devices = answer.get("devices")
    if not isinstance(devices, list) or not devices:
        raise NoFigureError("there are no devices")
    said = []
    pending = False
    for place in range(len(devices)):
        mode, next_mode = (text(devices, place, key) for key in ("mig", "mig_pending"))
        pending = pending or mode != next_mode
        instances = number(devices, place, "mig_instances")
        said.append(f"{text(devices, place, 'name')}: {mode}, {instances:.0f} instances")
    return _held(not pending, "; ".join(said), "no pending change of the mode")


def devices(answer: Answer) -> Verdict:
    """The driver names its devices, and at least one framework sees as many."""
    listed = answer.get("devices")
    if not isinstance(listed, list) or not listed:
        raise NoFigureError("there are no devices")
    names = [text(listed, place, "name") for place in range(len(listed))]
    frameworks = answer.get("frameworks")
    seen = {}
    for name in sorted(frameworks) if isinstance(frameworks, Mapping) else ():
        found = _at(frameworks, (name, "devices"))
        seen[str(name)] = len(found) if isinstance(found, list) else 0
    words = [f"{name} {text(frameworks, name, 'version')} sees {seen[name]}" for name in seen]
    return _held(
        any(count == len(names) for count in seen.values()),
        f"{', '.join(names)}, driver {text(answer, 'driver')}; "
        + ("; ".join(words) or "no framework"),
        "a framework that sees all devices",
    )


def dlbs(answer: Answer) -> Verdict:
    """DLBS' lines of a run on the device say so, and have figures."""
    lines = answer.get("lines")
    status, kind = text(lines, "results.status"), text(lines, "exp.device_type")
    time_ms, rate = (number(lines, key) for key in ("results.time", "results.throughput"))
    batch = number(lines, "exp.effective_batch")
    agrees = _ratio(rate * time_ms / 1e3, batch, "throughput and time")
    return _held(
        status == "ok" and kind == "gpu" and abs(agrees - 1) <= 0.01,
        f"status {status}, device {kind}, {time_ms:.3f} ms, {rate:.1f} a second, {agrees:.3f}",
        "status ok, device gpu, and throughput x time the batch within 1 %",
    )


def jax(answer: Answer) -> Verdict:
    """perfrun waits for JAX' device as `block_until_ready` does."""
    platform = text(answer, "trial", "platform")
    by_hand = number(answer, "trial", "by_hand_s")
    ratio = _ratio(number(answer, "trial", "wall_time"), by_hand, "times")
    launch = number(answer, "trial", "launch_s") / by_hand
    return _held(
        0.95 <= ratio <= 1.05 and launch < 0.5 and platform != "cpu",
        f"on {platform}: {ratio:.3f} of a loop with block_until_ready, the launch alone "
        f"{launch:.3f}",
        "0.95 to 1.05, below 0.5, and an accelerator",
    )


def containers(answer: Answer) -> Verdict:
    """A trial in a container with `--gpus` ran on a device."""
    device, gpus = text(answer, "trial", "series_device"), text(answer, "trial", "gpus")
    return _held(
        device.startswith("cuda") and bool(gpus), f"--gpus={gpus}: {device}", "a device of CUDA"
    )
