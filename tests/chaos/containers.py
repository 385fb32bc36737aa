"""A trial's container is killed, removed or stopped, and its engine dies, stands still, comes back.

The engine is one of this process's own. At the end it is there, and nothing of the runs is left in
it: no container and no volume.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from accidents import later
from own_engine import end, own_engine_with
from subject import Subject, Watch

KINDS = ("container", "engine")
_WAIT_S = 2.0  # for the next container to be there
_POLL_S = 0.02
_BACK_S = 90.0  # for the engine to run a container again


def missing() -> str | None:
    """Return what is not there that these faults need; None when all is."""
    if os.geteuid() != 0:
        return "root, who may start an engine"
    if shutil.which("dockerd") is None or shutil.which("docker") is None:
        return "dockerd"
    name = "PERFRUN_TEST_BASE_IMAGE"
    return None if os.environ.get(name) else f"image: {name} names one (scripts/ci_engine.sh)"


class Engines:
    """Makes the faults, with an engine that lives as long as this."""

    def __init__(self, place: Path) -> None:
        import docker

        self._place = place
        self._image = os.environ["PERFRUN_TEST_BASE_IMAGE"]
        self._stack = contextlib.ExitStack()
        self._engine = self._stack.enter_context(own_engine_with(self._image))
        self._daemon = self._engine.start()
        try:
            self._client = docker.APIClient(base_url=self._engine.host, version="1.41", timeout=20)
            for module in ("perfrun.launchers.container_launcher", "perfrun.launchers.container"):
                __import__(module)  # in this process, of which the runs are forks
            self._takes_s = self._clean_run()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the engine."""
        end(self._daemon)
        self._stack.close()

    def _clean_run(self) -> float:
        subject = self._subject("clean")
        begun = time.monotonic()
        ended = subject.run()
        if ended.code != 0:
            raise RuntimeError(f"a run without a fault ended with {ended.code}: {ended.err}")
        return time.monotonic() - begun

    def _subject(self, seed: str) -> Subject:
        subject = Subject(
            self._place / seed,
            "plain",
            more=(f"--image={self._image}",),
            settings={"DOCKER_HOST": self._engine.host},
            takes_internal_errors=False,
            harms_trials=True,
        )
        subject.prepare()
        return subject

    def make(self, kind: str, seed: str) -> list[str]:
        """Make one fault; return what was wrong afterwards."""
        draw = random.Random(seed)
        subject = self._subject(seed)
        watch = self._to_container(draw) if kind == "container" else self._to_engine(draw)
        ended = subject.run(watched=watch)
        self._bring_back()
        return [*subject.problems(ended), *self._left()]

    def _left(self) -> list[str]:
        containers = self._client.containers(all=True)
        volumes = self._client.volumes()["Volumes"] or []
        named = [*(c["Names"] for c in containers), *(v["Name"] for v in volumes)]
        for one in containers:
            self._client.remove_container(one["Id"], force=True, v=True)
        return [f"left in the engine: {names}" for names in named]

    def _to_container(self, draw: random.Random) -> Watch:
        at_s, delay_s = draw.uniform(0, self._takes_s), draw.uniform(0, 0.4)
        harm = draw.choice(_TO_CONTAINERS)
        also_harness = draw.random() < 0.25

        def happen(pid: int) -> None:
            until = time.monotonic() + _WAIT_S
            while not (there := self._client.containers(all=True)) and time.monotonic() < until:
                time.sleep(_POLL_S)
            time.sleep(delay_s)
            for one in there:
                with _gone_by_now():
                    harm(self._client, one["Id"])
            if also_harness:
                os.kill(pid, signal.SIGKILL)

        return _watch(at_s, happen)

    def _to_engine(self, draw: random.Random) -> Watch:
        at_s, away_s = draw.uniform(0, self._takes_s), draw.uniform(0, 6.0)
        harm = draw.choice(("kill", "kill", "stop", "freeze", "containerd", "containerd-shim"))
        returns = draw.random() < 0.5  # before the run has ended

        def happen(_: int) -> None:
            if harm == "freeze":
                self._daemon.send_signal(signal.SIGSTOP)
                time.sleep(away_s)
                self._daemon.send_signal(signal.SIGCONT)
            elif harm in ("containerd", "containerd-shim"):
                for pid in self._engine.pids(harm):
                    os.kill(pid, signal.SIGKILL)
            else:
                self._daemon.send_signal(signal.SIGKILL if harm == "kill" else signal.SIGTERM)
                self._daemon.wait()
                time.sleep(away_s)
                if returns:
                    self._daemon = self._engine.start()

        return _watch(at_s, happen)

    def _bring_back(self) -> None:
        if self._daemon.poll() is not None:
            self._daemon = self._engine.start()
        until = time.monotonic() + _BACK_S
        words = ("run", "--rm", "--network=none", self._image, "true")
        while (done := self._engine.docker(*words)).returncode:  # containerd returns later
            if time.monotonic() > until:
                raise RuntimeError(f"the engine does not come back: {done.stderr!r}")
            time.sleep(_POLL_S)


def _watch(at_s: float, happen: Callable[[int], None]) -> Watch:
    def watched(pid: int) -> contextlib.AbstractContextManager[None]:
        return later(at_s, happen, pid)

    return watched


@contextlib.contextmanager
def _gone_by_now() -> Iterator[None]:
    import docker.errors
    import requests

    with contextlib.suppress(docker.errors.APIError, requests.RequestException, OSError):
        yield


def _kill(client: Any, container: str) -> None:
    client.kill(container)


def _stop(client: Any, container: str) -> None:
    client.stop(container, timeout=1)


def _remove(client: Any, container: str) -> None:
    client.remove_container(container, force=True)


def _kill_init(client: Any, container: str) -> None:
    """The first process of the container is killed from the host."""
    os.kill(client.inspect_container(container)["State"]["Pid"] or 2**22, signal.SIGKILL)


def _kill_worker(client: Any, container: str) -> None:
    """A process below the first one is killed."""
    init = client.inspect_container(container)["State"]["Pid"]
    words = Path(f"/proc/{init}/task/{init}/children").read_text().split()
    for pid in words:
        os.kill(int(pid), signal.SIGKILL)


def _pause(client: Any, container: str) -> None:
    client.pause(container)
    time.sleep(1.0)
    client.unpause(container)


_TO_CONTAINERS = (_kill, _stop, _remove, _kill_init, _kill_worker, _pause)
