"""Run processes of torch.distributed on this machine: torchrun starts them.

Only the loopback interface is used and no name is resolved, so a container without a network is
enough. No process is left over, because the kernel kills each one when its parent ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks._support import child

_INTERVAL_S = 0.05
_FAILURE = re.compile(r"rank\s+: (\d+) \(local_rank: \d+\)\n\s+exitcode\s+: (-?\d+)")
# How a rank notices that another one is gone; such an error is a consequence, not a cause.
_CONSEQUENCES = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Timed out waiting",
    "Wait timeout",
    "failed to recv",
    "NCCL",
    "Application timeout",
)


class RankError(RuntimeError):
    """A rank failed; the message names it and the reason."""


def torchrun(order: Mapping[str, Any]) -> None:
    """Run torchrun in this process, which starts the ranks."""
    from torch.distributed.run import main

    main(order["arguments"])


def run(order: Mapping[str, Any], *, folder: Path, ranks: int, silence_s: float) -> None:
    """Run `function(order)` of `module` (both in the order) in all ranks, and wait for them.

    Each rank appends to a file `rank_N.jsonl` in the folder while it works. RankError is raised
    when a rank fails, or when none has written for `silence_s`.
    """
    rank_order, agent_order, log = (
        folder / name for name in ("rank_order.json", "torchrun_order.json", "torchrun.log")
    )
    child.write_order(rank_order, {**order, "folder": str(folder)})
    arguments = [
        *("--nnodes=1", f"--nproc-per-node={ranks}", "--max-restarts=0"),
        *("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"),
        *("--monitor-interval=0.1", str(child.PROGRAM), str(rank_order)),
    ]
    child.write_order(
        agent_order, {"module": __name__, "function": "torchrun", "arguments": arguments}
    )
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(child.PROGRAM), str(agent_order)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **_environment(order["threads_per_rank"])},
        )
    try:
        is_silent = _wait(process, folder, silence_s)
    finally:
        _end(process)
    if is_silent or process.returncode:
        raise RankError(_reason(process.returncode, folder, log, silence_s if is_silent else None))


def _environment(threads: int) -> dict[str, str]:
    """Return variables for the threads, for which torchrun sets 1, and for the loopback."""
    chosen = {"OMP_NUM_THREADS": str(threads)}
    names = [name for name in ("lo", "lo0") if Path(f"/sys/class/net/{name}").exists()]
    for name in names[:1]:
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
            chosen[variable] = os.environ.get(variable, name)
    return chosen


def _wait(process: subprocess.Popen[bytes], folder: Path, silence_s: float) -> bool:
    """Wait for the end; return True when no rank has written for too long."""
    sizes, heard_s = -1, time.monotonic()
    while process.poll() is None:
        now = sum(path.stat().st_size for path in folder.glob("rank_*.jsonl"))
        if now != sizes:
            sizes, heard_s = now, time.monotonic()
        if time.monotonic() - heard_s > silence_s:
            return True
        time.sleep(_INTERVAL_S)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End torchrun; its ranks, which have sessions of their own, end with it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _reason(returncode: int, folder: Path, log: Path, silent_s: float | None) -> str:
    """Return the rank that failed and the reason; a killed rank counts before one that raised."""
    errors = [child.read_answer(path) or {} for path in folder.glob("rank_*.error.json")]
    errors.sort(key=lambda error: (_is_consequence(error), error["time"]))
    said = [f"rank {error['rank']}: {error['error']}" for error in errors]
    exits = {
        int(rank): int(code) for rank, code in _FAILURE.findall(log.read_text(errors="replace"))
    }
    killed = [
        f"rank {rank} was {child.ending(code)}"
        for rank, code in sorted(exits.items())
        if code < 0 and code != -signal.SIGTERM  # torchrun ends the others so
    ]
    if killed or said:
        first, *others = killed + said
        return f"{first}{'; then ' + '; '.join(others) if others else ''} (log: {log})"
    if silent_s is not None:
        return f"no rank has got on for {silent_s:g} s, so all were ended (log: {log})"
    return f"torchrun ended with {child.ending(returncode)}: {child.last_line(log)} (log: {log})"


def _is_consequence(error: Mapping[str, Any]) -> bool:
    return any(text in error["error"] for text in _CONSEQUENCES)
