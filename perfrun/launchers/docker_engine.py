"""The engine that runs the containers of trials: the one place that speaks to the Docker SDK.

Imported only under `--image`: the SDK takes a fifth of a second to load.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests.exceptions
from docker.context import ContextAPI

from perfrun.errors import UsageError
from perfrun.image.engine import explain_fetch, explain_refusal
from perfrun.launchers.streams import Streams

ANSWER_LIMIT_S = 120.0  # removing a container from a slow disk takes its time
DEFAULT_HOST = "unix:///var/run/docker.sock"


class ContainerError(OSError):
    """The engine did not do what it was asked, or is not there. The text is one line."""


class ImageMissingError(ContainerError):
    """The engine has no such image."""


class DockerEngine:
    """A running engine of this machine. Every method raises ContainerError when it cannot."""

    def __init__(self, host: str) -> None:
        with _told():
            self._client = docker.APIClient(base_url=host, version="auto", timeout=ANSWER_LIMIT_S)
            self.info: Mapping[str, Any] = self._client.info()

    @property
    def is_rootless(self) -> bool:
        """Whether root in its containers is this user."""
        return any("rootless" in option for option in self.info.get("SecurityOptions") or ())

    @property
    def remaps_users(self) -> bool:
        """Whether a rootful engine shifts the users of its containers (userns-remap)."""
        return any("name=userns" in option for option in self.info.get("SecurityOptions") or ())

    def image(self, name: str) -> dict[str, Any]:
        """What the engine knows of an image. Raises ImageMissingError when it has none."""
        with _told():
            try:
                return dict(self._client.inspect_image(name))
            except docker.errors.ImageNotFound:
                raise ImageMissingError(f"there is no image {name}") from None

    def pull(self, name: str, notify: Callable[[str], None]) -> None:
        """Fetch an image from its registry."""
        repository, tag = docker.utils.parse_repository_tag(name)
        notify(f"pulling {name}: the engine does not have it")
        tag = tag or "latest"
        with _told():
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
        """Whether a container can be put on that network."""
        with _told():
            try:
                self._client.inspect_network(name)
            except docker.errors.NotFound:
                return False
        return True

    def create(self, arguments: Mapping[str, Any], host: Mapping[str, Any]) -> str:
        """Make a container, not started yet; return its id."""
        with _told():
            config = self._client.create_host_config(**host)
            try:
                made = self._client.create_container(**arguments, host_config=config)
            except docker.errors.ImageNotFound as error:
                raise ImageMissingError(_one_line(error.explanation)) from None
        return str(made["Id"])

    def attach(self, container: str) -> Streams:
        """The standard streams of a container; attach before it is started, to miss nothing."""
        wanted = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        with _told():
            return Streams(self._client.attach_socket(container, wanted))

    def start(self, container: str) -> None:
        """Start it."""
        with _told():
            self._client.start(container)

    def state(self, container: str) -> dict[str, Any]:
        """The engine's `State`: Pid, ExitCode, OOMKilled, Error, ..."""
        with _told():
            return dict(self._client.inspect_container(container)["State"])

    def remove(self, container: str) -> None:
        """Kill it if it runs, and remove it with its anonymous volumes; it may be gone already."""
        with _told(), contextlib.suppress(docker.errors.NotFound):
            try:
                self._client.remove_container(container, force=True, v=True)
            except docker.errors.APIError as error:
                if error.status_code != 409:  # its removal is already going on
                    raise

    def remove_volume(self, name: str) -> None:
        """Remove a volume that no container uses any more; it may be gone already."""
        with _told(), contextlib.suppress(docker.errors.NotFound):
            self._client.remove_volume(name)

    def labelled_volumes(self, label: str) -> list[dict[str, Any]]:
        """All volumes that carry a label: Name and Labels."""
        with _told():
            return list(self._client.volumes(filters={"label": [label]})["Volumes"] or ())

    def labelled(self, label: str) -> list[dict[str, Any]]:
        """All containers, stopped ones too, that carry a label: Id and Labels."""
        with _told():
            return list(self._client.containers(all=True, filters={"label": [label]}))


def connect() -> DockerEngine:
    """Find the engine as the command `docker` does: DOCKER_HOST, else the current context."""
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
    """Root in the containers of a rootless engine is its owner, who cannot write our folders."""
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
def _told() -> Iterator[None]:
    """Turn what the SDK raises into one line."""
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
