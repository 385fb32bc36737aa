"""The engine that runs the containers of trials; the only module that calls the Docker SDK.

It is imported only for `--image`: the SDK takes a fifth of a second to load.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import docker
import docker.errors
import requests.exceptions
from docker.context import ContextAPI

from perfrun.errors import UsageError
from perfrun.image.engine import explain_fetch, explain_refusal
from perfrun.untrusted import Refused, parse_json

_HEADER = 8  # stream number, three zeros, length (big-endian): the engine's `attach` protocol
_STDOUT = 1
_MOST_STDERR = 4096
_MOST_LINE = 256 * 1024  # bytes of a message; a supervisor's have a few thousand
_MOST_MESSAGES = 100
_KINDS = {"worker", "ended", "exit"}
RUN_ID = "perfrun.run_id"
_PID = "perfrun.harness.pid"
_START = "perfrun.harness.start"  # in clock ticks since boot: makes a pid unique
_BOOT = "perfrun.harness.boot"
_PID_SPACE = "perfrun.harness.pid_namespace"
_USER = "perfrun.harness.uid"
ANSWER_LIMIT_S = 120.0  # removing a container from a slow disk takes long
DEFAULT_HOST = "unix:///var/run/docker.sock"


class Streams:
    """The standard streams of a container: frames that carry lines of JSON.

    Closing them ends the container's input, and with it what runs there.
    """

    def __init__(self, connection: Any) -> None:
        self._wrapped = connection  # holds the SDK's response, which would close the socket
        self._socket: socket.socket = connection._sock
        self._socket.settimeout(None)
        self._frames = b""
        self._line = b""
        self._said: set[str] = set()  # kinds of messages that have come
        self.messages: list[dict[str, Any]] = []
        self.stderr = ""  # of the supervisor, or of the engine; empty unless something is wrong
        self.ended = False

    def fileno(self) -> int:
        """Return the descriptor for `select`."""
        return self._socket.fileno()

    def receive(self) -> None:
        """Read what has arrived; to be called when `select` reports the connection as readable."""
        try:
            data = self._socket.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return
        self._frames += data
        while len(self._frames) >= _HEADER:
            length = int.from_bytes(self._frames[4:_HEADER], "big")
            if len(self._frames) < _HEADER + length:
                return
            number = self._frames[0]
            payload = self._frames[_HEADER : _HEADER + length]
            self._frames = self._frames[_HEADER + length :]
            self._take(number, payload)

    def _take(self, number: int, payload: bytes) -> None:
        if number != _STDOUT:
            self.stderr = (self.stderr + payload.decode("utf-8", "replace"))[-_MOST_STDERR:]
            return
        *lines, self._line = (self._line + payload).split(b"\n")
        if len(self._line) > _MOST_LINE:
            self._line = b""  # the supervisor's lines have a few kilobytes: this is none
        for line in lines:
            with contextlib.suppress(Refused):
                message = parse_json(line[: _MOST_LINE + 1])
                if not isinstance(message, dict):
                    continue
                # Whoever else writes into the stream may neither fill it nor crowd out a report.
                new = message.keys() & _KINDS - self._said
                if new or len(self.messages) < _MOST_MESSAGES:
                    self.messages.append(message)
                    self._said |= new

    def send(self, letter: bytes) -> None:
        """Send a letter to the supervisor; without effect when it has ended."""
        with contextlib.suppress(OSError):
            self._socket.sendall(letter)

    def close(self) -> None:
        """End the connection."""
        self.ended = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        response = getattr(self._wrapped, "_response", None)
        if response is not None:
            response.close()
        self._wrapped.close()
        self._socket.close()


class Containers(Protocol):
    """The part of an engine that `remove_leftovers` needs."""

    def labelled(self, label: str) -> list[dict[str, Any]]: ...

    def remove(self, container: str) -> None: ...

    def labelled_volumes(self, label: str) -> list[dict[str, Any]]: ...

    def remove_volume(self, name: str) -> None: ...


def harness_labels(run_id: str) -> dict[str, str]:
    """Return the labels that mark a container as this harness's."""
    return {
        RUN_ID: run_id,
        _PID: str(os.getpid()),
        _START: _start_ticks(os.getpid()) or "",
        _BOOT: _boot(),
        _PID_SPACE: _pid_space(),
        _USER: str(os.getuid()),
    }


def is_leftover(labels: Mapping[str, str]) -> bool:
    """Return True when the harness that made a container is certainly gone.

    Nothing is certain of a harness that this process cannot see: another user's, or one in another
    pid namespace.
    """
    if labels.get(_USER) != str(os.getuid()) or not labels.get(_PID, "").isdecimal():
        return False
    if labels.get(_BOOT) != _boot():
        return bool(labels.get(_BOOT)) and bool(_boot())
    if labels.get(_PID_SPACE) != _pid_space():
        return False
    return _start_ticks(int(labels[_PID])) != labels.get(_START)


def remove_leftovers(engine: Containers, notify: Callable[[str], None]) -> int:
    """Remove what killed harnesses left, and only that; return the number of containers."""
    removed = 0
    for container in engine.labelled(RUN_ID):
        labels = container.get("Labels") or {}
        if not is_leftover(labels):
            continue
        with contextlib.suppress(OSError):  # another perfrun may have removed it
            engine.remove(container["Id"])
            removed += 1
            notify(
                f"removed container {container['Id'][:12]}, left behind by run {labels[RUN_ID]} "
                "whose perfrun was killed"
            )
    for volume in engine.labelled_volumes(RUN_ID):
        if is_leftover(volume.get("Labels") or {}):
            with contextlib.suppress(OSError):
                engine.remove_volume(volume["Name"])
    return removed


def _start_ticks(pid: int) -> str | None:
    """Return field 22 of /proc/PID/stat; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _pid_space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


class ContainerError(OSError):
    """The engine has refused, or is not there. The text is one line."""


class ImageMissingError(ContainerError):
    """The engine has no such image."""


class DockerEngine:
    """A running engine of this machine. Every method raises ContainerError when it cannot."""

    def __init__(self, host: str) -> None:
        with _as_container_error():
            self._client = docker.APIClient(base_url=host, version="auto", timeout=ANSWER_LIMIT_S)
            self.info: Mapping[str, Any] = self._client.info()
        self.socket = host.removeprefix("unix://")

    @property
    def is_rootless(self) -> bool:
        """True when root in its containers is this user."""
        return any("rootless" in option for option in self.info.get("SecurityOptions") or ())

    def image(self, name: str) -> dict[str, Any]:
        """Return the engine's facts of an image. Raises ImageMissingError when it has none."""
        with _as_container_error():
            try:
                return dict(self._client.inspect_image(name))
            except docker.errors.ImageNotFound:
                raise ImageMissingError(f"there is no image {name}") from None

    def pull(self, name: str, notify: Callable[[str], None]) -> None:
        """Fetch an image from its registry."""
        repository, tag = docker.utils.parse_repository_tag(name)
        notify(f"pulling {name}: the engine does not have it")
        tag = tag or "latest"
        with _as_container_error():
            try:
                with contextlib.closing(
                    self._client.pull(repository, tag, stream=True, decode=True)
                ) as events:
                    complaint = next((one["error"] for one in events if one.get("error")), None)
            except docker.errors.APIError as error:
                complaint = error.explanation or str(error)
        if complaint:
            raise ContainerError(explain_fetch(complaint, name))

    def has_network(self, name: str) -> bool:
        """Return True when the engine has the network."""
        with _as_container_error():
            try:
                self._client.inspect_network(name)
            except docker.errors.NotFound:
                return False
        return True

    def create(self, arguments: Mapping[str, Any], host: Mapping[str, Any]) -> str:
        """Create a container without starting it; return its id."""
        with _as_container_error():
            config = self._client.create_host_config(**host)
            try:
                made = self._client.create_container(**arguments, host_config=config)
            except docker.errors.ImageNotFound as error:
                raise ImageMissingError(_one_line(error.explanation)) from None
        return str(made["Id"])

    def attach(self, container: str) -> Streams:
        """Return the standard streams of a container; to be called before it is started."""
        wanted = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        with _as_container_error():
            return Streams(self._client.attach_socket(container, wanted))

    def start(self, container: str) -> None:
        """Start a container."""
        with _as_container_error():
            self._client.start(container)

    def state(self, container: str) -> dict[str, Any]:
        """Return the engine's `State` of a container: Pid, ExitCode, OOMKilled, Error, ..."""
        with _as_container_error():
            return dict(self._client.inspect_container(container)["State"])

    def remove(self, container: str) -> None:
        """Kill and remove a container with its anonymous volumes; it may be gone already."""
        with _as_container_error(), contextlib.suppress(docker.errors.NotFound):
            try:
                self._client.remove_container(container, force=True, v=True)
            except docker.errors.APIError as error:
                if error.status_code != 409:  # it is being removed already
                    raise

    def remove_volume(self, name: str) -> None:
        """Remove a volume that no container uses any more; it may be gone already."""
        with _as_container_error(), contextlib.suppress(docker.errors.NotFound):
            self._client.remove_volume(name)

    def labelled_volumes(self, label: str) -> list[dict[str, Any]]:
        """Return Name and Labels of all volumes that carry a label."""
        with _as_container_error():
            return list(self._client.volumes(filters={"label": [label]})["Volumes"] or ())

    def labelled(self, label: str) -> list[dict[str, Any]]:
        """Return Id and Labels of all containers that carry a label, stopped ones, too."""
        with _as_container_error():
            return list(self._client.containers(all=True, filters={"label": [label]}))


def connect() -> DockerEngine:
    """Return the engine that the command `docker` uses: by DOCKER_HOST, else the context."""
    host, source = _host()
    if not host.startswith(("unix://", "/")):
        raise UsageError(
            f"--image: {source} is the engine {host}, which is not on this machine; a trial's "
            "folders must be the engine's own: run perfrun there"
        )
    try:
        engine = DockerEngine(host)
    except ContainerError as error:
        raise UsageError(f"--image: {error}") from None
    _refuse_others_engine(engine, host)
    return engine


def _refuse_others_engine(engine: DockerEngine, host: str) -> None:
    """Refuse another user's rootless engine: its containers could not write our folders."""
    owner = Path(host.removeprefix("unix://")).stat().st_uid
    if engine.is_rootless and owner != os.getuid():
        raise UsageError(
            f"--image: the engine at {host} is the rootless one of user {owner}; run perfrun as "
            "that user, or choose another engine with DOCKER_HOST"
        )


def _host() -> tuple[str, str]:
    if os.environ.get("DOCKER_HOST"):
        return os.environ["DOCKER_HOST"], "DOCKER_HOST"
    name = os.environ.get("DOCKER_CONTEXT") or None
    try:
        context = ContextAPI.get_context(name)
    except Exception as error:  # the SDK raises plain Exceptions for broken files
        raise UsageError(f"--image: the docker context cannot be read: {error}") from None
    if context is None:
        raise UsageError(f"--image: there is no docker context {name!r}; see `docker context ls`")
    host = str(context.Host or DEFAULT_HOST).replace("http+unix://", "unix://")
    return host, f"the docker context {context.name!r}"


@contextlib.contextmanager
def _as_container_error() -> Iterator[None]:
    """Turn exceptions of the SDK into ContainerErrors of one line."""
    try:
        yield
    except ContainerError:
        raise
    except docker.errors.APIError as error:
        raise ContainerError(_one_line(error.explanation or str(error))) from None
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise ContainerError(_unreachable(error)) from None
    except OSError as error:
        raise ContainerError(_unreachable(error)) from None


def _unreachable(error: BaseException) -> str:
    text = str(error)
    if "Permission denied" in text:
        return explain_refusal("permission denied")
    if "No such file" in text or "Connection refused" in text:
        return explain_refusal("nothing listens on its socket")
    if "Connection aborted" in text or "Remote end closed" in text:
        return "the container engine has gone away"
    return f"the container engine does not answer ({_one_line(text)})"


def _one_line(text: str) -> str:
    return " ".join(str(text).split())[:500]
