"""Ask the device: trials of perfrun, programs and the driver; every answer is plain data."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfrun.probes.accelerators import RunningIntegral

ROOT = Path(__file__).resolve().parent.parent
FRAMEWORKS = ("torch", "tensorflow", "jax")
_GRACE_S = 8.0  # for perfrun, to end what it started
_LARGEST_SUMMARY = 64 * 2**20


class Unanswered(Exception):  # noqa: N818 - the reason is an answer, too
    """A question that got no figures; the text is the reason, in one line."""


class TimeOverError(Unanswered):
    """The time limit of a question."""


@dataclass(frozen=True, kw_only=True)
class Asking:
    """Means of asking. `device` is `cuda`, or `cpu` in a rehearsal."""

    pythons: Mapping[str, str]  # framework -> interpreter that has it
    facts: Mapping[str, Any]  # framework -> what facts.py said
    folder: Path
    device: str
    image: str | None
    ends_s: float  # of time.monotonic
    variables: Mapping[str, str] = field(default_factory=dict)

    def trial(self, method: str, *flags: str, framework: str = "torch") -> dict[str, Any]:
        """Run one trial and return its figures; `flags` after `--` are the benchmark's."""
        own, rest = (flags, ()) if "--" not in flags else _split(flags)
        words = [
            *(sys.executable, "-m", "perfrun", f"--benchmark_methods={method}"),
            *("--format=json", "--quiet", f"--workspace={self.folder / 'workspace'}", *own),
        ]
        if not any(word.startswith("--image=") for word in own):
            words.append(f"--python={self.pythons[framework]}")
        output = self.command([*words, *(("--", *rest) if rest else ())], statuses=(0, 1))
        return figures(_summary(output))

    def case(self, name: str, framework: str = "torch") -> dict[str, Any]:
        """Run a method of gpu_day/cases."""
        device = json.dumps({"device": self.device})
        method = f"gpu_day.cases.{framework}_cases.Device.{name}"
        extra = [f"--perfzero_constructor_args={device}"] if framework == "torch" else []
        return self.trial(method, *extra, framework=framework)

    def command(self, words: Sequence[str], *, statuses: Sequence[int] = (0,)) -> str:
        """Run a program until the limit; return its standard output."""
        limit_s = self.ends_s - time.monotonic()
        if limit_s <= 0:
            raise TimeOverError("its time limit was over")
        status, output, errors = run_limited(words, limit_s, {**os.environ, **self.variables})
        if status is None:
            raise TimeOverError(f"no answer within {limit_s:.0f} s: {_last(errors)}")
        if status not in statuses:
            raise Unanswered(f"exit status {status}: {_last(errors)}")
        return output


def run_limited(
    words: Sequence[str], limit_s: float, variables: Mapping[str, str]
) -> tuple[int | None, str, str]:
    """Run a program in a session of its own; its status is None when it was ended at the limit."""
    try:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise Unanswered(f"{words[0]} cannot be started: {error.strerror}") from None
    try:
        output, errors = process.communicate(timeout=limit_s)
        return process.returncode, output, errors
    except subprocess.TimeoutExpired:
        pass
    except BaseException:
        _end(process)
        raise
    return None, *_end(process)


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End the program in order, then with everything that it left in its session."""
    process.terminate()
    try:
        return process.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()


def _split(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    place = list(words).index("--")
    return words[:place], words[place + 1 :]


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def _summary(output: str) -> tuple[dict[str, Any], Path]:
    """Return the summary of the one trial of a run, and its path."""
    try:
        path = Path(json.loads(output)["results"][0]["summary"])
        if path.stat().st_size > _LARGEST_SUMMARY:
            raise Unanswered("the summary is too large")
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, KeyError, IndexError, TypeError, OSError) as error:
        raise Unanswered(f"perfrun left no summary: {error}") from None
    outcome = document["perfrun"]["outcome"]
    if outcome["status"] not in ("passed", "out_of_bounds"):
        raise Unanswered(f"the trial {outcome['status']}: {outcome['reason']}")
    return document, path


def figures(found: tuple[Mapping[str, Any], Path]) -> dict[str, Any]:
    """Take from a summary what the checks judge."""
    document, path = found
    own, result = document["perfrun"], document["benchmark_result"]
    answer: dict[str, Any] = {"wall_time": result["wall_time"]}
    answer |= {item["name"]: item["value"] for item in result["metrics"]}
    answer |= {item["name"]: item["value"] for item in result["extras"]}
    answer["device_memory"] = {
        entry["what"]: entry["peak"]["bytes"] for entry in own["memory"]["device"] or ()
    }
    if own["series"]:
        answer["series_device"] = own["series"][0]["device"]
    if own["container"]:
        answer["gpus"] = own["container"]["limits"]["gpus"]
    devices = own["devices"]["devices"] or ()
    if devices:
        kept = (
            "name", "used_before_bytes", "used_peak_bytes", "process_peak_bytes", "energy_j",
            "energy_source", "power_w", "utilization_percent",
        )  # fmt: skip
        answer["device"] = {key: devices[0][key] for key in kept}
        mark = f"{devices[0]['vendor']}{devices[0]['index']}"
        answer["device"]["sampled_energy_j"] = sampled_energy_j(
            path.parent / "perfrun" / "devices.csv", mark
        )
    return answer


def sampled_energy_j(path: Path, device: str) -> float | None:
    """Return the integral of the power in devices.csv; None without two readings of it."""
    running = RunningIntegral()
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row.get("device") == device and row.get("power_w"):
                    running.add(float(row["time"]), float(row["power_w"]))
    except (OSError, ValueError, KeyError):
        return None
    return running.total()


def ask_driver() -> dict[str, Any]:
    """Return NVML's devices with their MIG modes, changing nothing. Raises Unanswered."""
    try:
        import pynvml
    except ImportError:
        raise Unanswered("the Python package nvidia-ml-py is not installed here") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise Unanswered(f"no NVIDIA driver here: {error}") from None
    try:
        driver = _plain(pynvml.nvmlSystemGetDriverVersion())
        found = [_device(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        raise Unanswered(f"the NVIDIA driver does not answer: {error}") from None
    finally:
        pynvml.nvmlShutdown()
    if not found:
        raise Unanswered("the NVIDIA driver has no device")
    return {"driver": driver, "devices": found}


def _device(nvml: Any, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    said: dict[str, Any] = {"name": _plain(nvml.nvmlDeviceGetName(handle))}
    modes = {0: "off", 1: "on"}
    try:
        current, pending = nvml.nvmlDeviceGetMigMode(handle)
        said |= {"mig": modes.get(current, "?"), "mig_pending": modes.get(pending, "?")}
    except nvml.NVMLError:
        said |= {"mig": "not supported", "mig_pending": "not supported"}
    said["mig_instances"] = 0
    with contextlib.suppress(nvml.NVMLError):
        for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
                said["mig_instances"] += 1
    return said


def _plain(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def ask_framework(python: str, name: str, limit_s: float, variables: Mapping[str, str]) -> Any:
    """Return what facts.py says of a framework; None where this interpreter has none."""
    if not Path(python).exists():
        return None
    facts = str(Path(__file__).parent / "cases" / "facts.py")
    try:
        status, output, _ = run_limited([python, facts, name], limit_s, variables)
        found = json.loads(output.strip().splitlines()[-1]) if status == 0 else None
    except (Unanswered, ValueError, IndexError):
        return None
    return found if isinstance(found, dict) else None
