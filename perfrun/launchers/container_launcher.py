"""Workers in containers of one image: the engine and the image are found once for all trials."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfrun.errors import UsageError
from perfrun.image.gpus import read_gpu_support
from perfrun.launchers import container_sandbox
from perfrun.launchers.container import Container, ContainerProcess
from perfrun.launchers.container_sandbox import (
    Bind,
    engine_facts,
    engine_traits,
    has_cgroups,
    how_to_enforce,
    image_facts,
)
from perfrun.launchers.docker_engine import (
    ContainerError,
    DockerEngine,
    ImageMissingError,
    connect,
    harness_labels,
    remove_leftovers,
)
from perfrun.launchers.launcher import (
    ENTRY,
    ORDER,
    REPORT,
    SHIPPED,
    WORKER,
    write_order_file,
)
from perfrun.options.containment import Containment, cpus_of
from perfrun.untrusted import Folder, Refused

_NOT_FOUND = (126, 127)  # exit status of the engine's init when it cannot execute a program


class ContainerService:
    """A throw-away worker in a container."""

    def __init__(self, container: Container, log: Path) -> None:
        self._container, self._log = container, log
        self._removed = False

    def lacks_interpreter(self) -> bool:
        """Wait until a program runs; True when the image does not have the interpreter."""
        while not self._container.is_over and self._container.worker is None:
            self._container.listen(1.0)
        if self._container.worker is not None:
            return False
        state = self._container.state() or {}
        return state.get("ExitCode") in _NOT_FOUND

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; return its status, minus its signal, or None if it has not ended."""
        end = time.perf_counter() + timeout_s
        while not self._container.is_over:
            left = end - time.perf_counter()
            if left <= 0:
                return None
            self._container.listen(min(left, 1.0))
        report = self._container.report
        if report is None:
            line = self._container.last_error_line.encode("utf-8", "replace")
            with contextlib.suppress(OSError, Refused), Folder(self._log.parent) as folder:
                folder.append(self._log.name, line)  # no worker has started
            return int((self._container.state() or {}).get("ExitCode") or 1)
        code = report["exit_code"]
        return int(code) if code is not None else -int(report["signal_number"])

    def end(self) -> None:
        """End and remove the container."""
        if not self._removed:
            self._removed = True
            self._container.remove()


def write_order(
    order: Mapping[str, Any], private: Path, out: Path, err: Path, cpus: list[int] | None
) -> Path:
    """Write the order of a worker that a supervisor starts, and return its path."""
    supervision = {
        "stdout": str(out),
        "stderr": str(err),
        "exit": str(private / REPORT),
        "cpus": cpus,
    }
    # The parent is the supervisor, whose pid is not known yet; see worker.trial.
    whole = {**order, "parent_pid": None, "supervision": supervision}
    path = private / ORDER
    write_order_file(path, whole)
    return path


class ContainerLauncher:
    """Starts each worker in a fresh container of one image."""

    def __init__(
        self,
        asked: Containment,
        binds: Sequence[Bind],
        run_id: str,
        notify: Callable[[str], None],
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Find the engine and the image, which is pulled if need be. Raises UsageError."""
        self._asked, self._binds, self._env = asked, tuple(binds), dict(env or {})
        self._engine = connect()
        remove_leftovers(self._engine, notify)
        image = _found_image(self._engine, asked.image, notify)
        self._image_id = str(image["Id"])
        config = image.get("Config") or {}
        self._volumes = tuple(config.get("Volumes") or ())
        self._traits = engine_traits(self._engine.info)
        _refuse_unknown(asked, self._engine, self._traits)
        self._user = container_sandbox.choose_user(
            os.getuid(), os.getgid(), os.getgroups(), is_rootless=self._traits.is_rootless
        )
        self._labels = harness_labels(run_id)
        self._pythons = _candidates(asked, config.get("Env") or ())
        self._interpreter_works = False
        refused = container_sandbox.refused_limits(asked, self._traits)
        mend = how_to_enforce(refused, self._engine.info)
        if mend:
            notify(mend)
        self._no_cgroup = None if has_cgroups(self._engine.info) else mend
        self._cpus = sorted(cpus_of(asked.cpuset)) if asked.cpuset else None
        self._facts = {
            **image_facts(asked.image, image),
            **engine_facts(self._engine.info),
            "limits": {
                "cpuset": asked.cpuset,
                "memory_bytes": asked.memory_bytes,
                "shm_bytes": asked.shm_bytes,
                "pids": asked.pids,
                "gpus": asked.gpus,
                "tmpfs": dict(container_sandbox.TMPFS),
                "not_enforced": list(refused),
                "how_to_enforce": mend,
            },
            "network": asked.network,
            "user": f"{self._user.uid}:{self._user.gid}",
        }

    @property
    def name(self) -> str:
        """The environment's name for messages."""
        return f"--image={self._asked.image} --image_python={self._pythons[0]}"

    def container_facts(self) -> Mapping[str, Any]:
        """Return `perfrun.container` of each summary without the trial's own facts."""
        return {**self._facts, "interpreter": self._pythons[0]}

    def set_variables(self, variables: Mapping[str, str]) -> None:
        """Add environment variables to the containers that are started from now on."""
        self._env.update(variables)

    def start(self, order: Mapping[str, Any], folder: Path, private: Path) -> ContainerProcess:
        """Start the worker of a trial. Raises ContainerError when it cannot be started."""
        begin = time.perf_counter()
        path = write_order(
            order, private, folder / "stdout.log", folder / "stderr.log", self._affinity()
        )
        binds = [*self._binds, *_code_binds(order), Bind(path=folder, writable=True)]
        prepared_s = time.perf_counter() - begin
        container = self._container(path, folder, binds, self._asked.network)
        return ContainerProcess(container, folder, private, prepared_s, no_cgroup=self._no_cgroup)

    def serve(self, order: Mapping[str, Any], folder: Path, log: Path) -> ContainerService:
        """Start a throw-away worker in a container like a trial's; only an upload gets a network.

        The first one finds the interpreter, unless the user has named it.
        """
        path = write_order(order, folder, log, log, self._affinity())
        binds = [*self._binds, *_code_binds(order), Bind(path=folder, writable=True)]
        network = self._asked.network
        if order["action"] == "upload":
            binds.append(Bind(path=Path(order["summary"]).parent))
            network = "bridge" if network == "none" else network
        while True:
            service = ContainerService(self._container(path, folder, binds, network), log)
            if self._interpreter_works or not service.lacks_interpreter():
                self._interpreter_works = True
                return service
            service.end()
            self._next_interpreter()

    def _next_interpreter(self) -> None:
        if len(self._pythons) > 1:
            self._pythons.pop(0)
            return
        if self._asked.python:
            raise UsageError(
                f"--image_python={self._asked.python}: is not in the image {self._asked.image}"
            )
        raise UsageError(
            f"--image={self._asked.image}: no python3 or python in it; name an interpreter of "
            "the image with --image_python=/path/to/python"
        )

    def _container(
        self, order: Path, folder: Path, binds: Sequence[Bind], network: str
    ) -> Container:
        command = [self._pythons[0], "-I", str(ENTRY), "--supervise", str(order)]
        arguments = container_sandbox.container_arguments(
            self._image_id, command, self._user, self._labels, folder, self._env
        )
        volumes = container_sandbox.named_volumes(self._volumes, binds)
        host = container_sandbox.host_arguments(
            *(self._asked, self._traits, self._user, binds, volumes, self._labels), network=network
        )
        try:
            return Container(self._engine, arguments, host, tuple(volumes))
        except ImageMissingError:
            raise ContainerError(f"the image {self._asked.image} has been removed") from None

    def _affinity(self) -> list[int] | None:
        """Return the processors of a worker where the engine cannot enforce them."""
        return None if self._traits.can_limit_cpus else self._cpus


def folders_of(workspace_code: Path, root_data_dir: str) -> tuple[Bind, ...]:
    """Return the folders of the host that every container sees, read-only: worker, code and data.

    Of perfrun's own package only the worker is among them, not the harness.
    """
    data = Path(root_data_dir)
    if data == Path("/"):
        raise UsageError("--root_data_dir=/ would show this whole host to the container")
    return (
        Bind(path=WORKER),
        Bind(path=WORKER.parent / "__init__.py"),
        Bind(path=SHIPPED / "benchmarks"),
        Bind(path=workspace_code),
        *((Bind(path=data),) if data.is_absolute() else ()),
    )


def _code_binds(order: Mapping[str, Any]) -> list[Bind]:
    """Return the folders of `--python_path`, which may lie anywhere."""
    return [Bind(path=Path(path)) for path in order.get("first_paths", ())]


def _candidates(asked: Containment, environment: Sequence[str]) -> list[str]:
    """Return the interpreters to try: the user's, else the image's own, else the usual names."""
    if asked.python:
        return [asked.python]
    settings = dict(item.partition("=")[::2] for item in environment)
    chosen = settings.get("PERFRUN_PYTHON")
    return [chosen] if chosen else ["python3", "python"]


def _found_image(engine: DockerEngine, name: str, notify: Callable[[str], None]) -> dict[str, Any]:
    try:
        try:
            return engine.image(name)
        except ImageMissingError:
            engine.pull(name, notify)
            return engine.image(name)
    except ContainerError as error:
        # setup.py builds images of such names; this machine may not have it yet.
        built = name.startswith("perfrun/")
        hint = f"; `python3 setup.py --docker_tag={shlex.quote(name)}` builds it" if built else ""
        raise UsageError(f"--image={name}: {error}{hint}") from None


def _refuse_unknown(
    asked: Containment, engine: DockerEngine, traits: container_sandbox.EngineTraits
) -> None:
    """Refuse a network or GPUs that are not there: every trial would fail."""
    try:
        known = asked.network in ("none", "bridge") or engine.has_network(asked.network)
    except ContainerError as error:
        raise UsageError(f"--trial_network={asked.network}: {error}") from None
    if not known:
        raise UsageError(
            f"--trial_network={asked.network}: the engine has no such network; "
            "see `docker network ls`"
        )
    if asked.gpus and not traits.gpu_access:
        why = read_gpu_support(engine.info).why_not or "this machine has none"
        raise UsageError(f"--gpus={asked.gpus}: a container can be given no GPU: {why}")
    container_sandbox.refuse_missing_gpus(asked, traits)
