"""One container, made for one worker: its supervisor is spoken with, and nothing of it is left.

Inside, `perfrun.worker.supervise` starts the worker and says how it ended; see there for the
language that both speak. What is done here per worker is: create, attach, start, ask for the pid,
wait (without asking again), remove.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfrun.launchers.docker_engine import ContainerError, DockerEngine
from perfrun.probes.tree_memory import descendants

LAST_WORD_S = 2.0  # for the engine to hand over what an ended container said


class Container:
    """One running container and what its supervisor has said."""

    def __init__(
        self,
        engine: DockerEngine,
        arguments: Mapping[str, Any],
        host: Mapping[str, Any],
        volumes: tuple[str, ...] = (),
    ) -> None:
        """Create and start it. Raises ContainerError, and leaves nothing then.

        `volumes` are those that end with it.
        """
        begin = time.perf_counter()
        self._engine, self._volumes = engine, volumes
        try:
            self.id = engine.create(arguments, host)
        except ContainerError:
            self._remove_volumes()
            raise
        try:
            self._streams = engine.attach(self.id)
            engine.start(self.id)
            self.init_pid = int(engine.state(self.id).get("Pid") or 0)
        except ContainerError:
            with contextlib.suppress(ContainerError):
                engine.remove(self.id)
            self._remove_volumes()
            raise
        self._init = _pidfd(self.init_pid)
        self._init_ended_at: float | None = None
        self.create_s = time.perf_counter() - begin

    @property
    def worker(self) -> int | None:
        """The worker's pid, as the container sees it, once it has been started."""
        return next((m["worker"] for m in self._streams.messages if "worker" in m), None)

    @property
    def worker_has_ended(self) -> bool:
        """Whether it has; what it left behind may still be there."""
        return any("ended" in message for message in self._streams.messages)

    @property
    def report(self) -> dict[str, Any] | None:
        """The supervisor's last word."""
        return next((dict(m["exit"]) for m in self._streams.messages if "exit" in m), None)

    @property
    def complaint(self) -> str:
        """The last line that came out besides."""
        return (self._streams.stderr.strip().splitlines() or [""])[-1]

    def listen(self, seconds: float) -> bool:
        """Wait so long for something to happen; True when it is over in there."""
        watched: list[Any] = [] if self._streams.ended else [self._streams]
        if self._init is not None and self._init_ended_at is None:
            watched.append(self._init)
        if self._init_ended_at is not None:
            seconds = min(seconds, LAST_WORD_S)
        if watched and not self.is_over:
            ready, _, _ = select.select(watched, [], [], seconds)
            if self._streams in ready:
                self._streams.receive()
            elif self._init in ready:
                self._init_ended_at = time.perf_counter()
        return self.is_over

    @property
    def is_over(self) -> bool:
        """Whether the supervisor has said its last word, or cannot any more."""
        if self.report is not None or self._streams.ended:
            return True
        if self._init_ended_at is None:
            return False
        # The engine may still be carrying what was said.
        return time.perf_counter() - self._init_ended_at > LAST_WORD_S

    def send(self, letter: bytes) -> None:
        """Tell the supervisor to signal the worker (T, Q), or to kill everything (K)."""
        self._streams.send(letter)

    def host_pid(self) -> int | None:
        """The worker's pid as this host sees it; None where processes are hidden from us."""
        wanted = str(self.worker)
        for pid in descendants(self.init_pid) if self.init_pid else ():
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
                names = [line for line in status.splitlines() if line.startswith("NSpid:")]
                if names and names[0].split()[-1] == wanted:
                    return pid
        return None

    def state(self) -> dict[str, Any] | None:
        """What the engine says of it; None when the engine or the container has gone."""
        with contextlib.suppress(ContainerError):
            return self._engine.state(self.id)
        return None

    def remove(self) -> None:
        """End it and remove it, whether the engine is there or not."""
        self._streams.close()
        try:
            self._engine.remove(self.id)
        except ContainerError:
            # Its processes are this user's own, so they can be ended without the engine.
            if self._init is not None:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(self._init, signal.SIGKILL)
        self._remove_volumes()
        if self._init is not None:
            os.close(self._init)
            self._init = None

    def _remove_volumes(self) -> None:
        for name in self._volumes:
            with contextlib.suppress(ContainerError):
                self._engine.remove_volume(name)


def _pidfd(pid: int) -> int | None:
    """A descriptor that can be read when the process ends; None where it cannot be had."""
    try:
        return os.pidfd_open(pid) if pid > 0 else None
    except (AttributeError, OSError):
        return None
