"""The official client of Kubernetes: its errors in one line, and its answers checked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from perfrun.errors import PerfrunError, UsageError, WorkspaceError
from perfrun.fleet.kubernetes_exec import PodCommand, start
from perfrun.fleet.kubernetes_job import Manifest
from perfrun.shown import line

_REQUEST_S = 30.0  # for one answer of the server
_PAGE = 500  # objects of an answer
_MOST_PAGES = 1000
_POD_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
T = TypeVar("T")


class Metadata(Struct, frozen=True):
    """What an object is called, of all that a server says of it."""

    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Condition(Struct, frozen=True):
    """A condition of a Job: Complete or Failed, for example."""

    type: str = ""
    status: str = ""


class JobStatus(Struct, frozen=True):
    """The state of a Job; indices are listed as `1,3-5`."""

    conditions: list[Condition] | None = None
    failedIndexes: str | None = None  # noqa: N815 - the server's name
    completedIndexes: str | None = None  # noqa: N815 - the server's name


class Job(Struct, frozen=True):
    """A Job, as far as it is used."""

    metadata: Metadata = Metadata()
    status: JobStatus = JobStatus()


class Terminated(Struct, frozen=True):
    """The end of a container."""

    exitCode: int | None = None  # noqa: N815 - the server's name
    reason: str | None = None
    message: str | None = None


class ContainerState(Struct, frozen=True):
    """The state of a container."""

    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True):
    """A container of a pod."""

    name: str = ""
    state: ContainerState | None = None


class PodStatus(Struct, frozen=True):
    """The state of a pod: Pending, Running, Succeeded, Failed, and why."""

    phase: str = ""
    reason: str | None = None
    message: str | None = None
    conditions: list[Condition] | None = None
    containerStatuses: list[ContainerStatus] | None = None  # noqa: N815 - the server's name


class PodSpec(Struct, frozen=True):
    """The node of a pod."""

    nodeName: str | None = None  # noqa: N815 - the server's name


class Pod(Struct, frozen=True):
    """A pod, as far as it is used."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_ready(self) -> bool:
        """True when its probe has found it ready: its result waits."""
        return self.status.phase == "Running" and self._has("Ready")

    @property
    def was_disrupted(self) -> bool:
        """True when it was evicted, preempted, or its node went away."""
        return self._has("DisruptionTarget")

    @property
    def failure(self) -> str:
        """The reason of its failure in words, as the cluster or the last line of its log says."""
        for one in self.status.containerStatuses or ():
            end = one.state.terminated if one.state else None
            if end is not None:
                said = (end.message or "").strip().splitlines()
                last = said[-1].removeprefix("perfrun: ") if said else ""
                return last or f"{end.reason or 'ended'}, exit status {end.exitCode}"
        return ": ".join(filter(None, (self.status.reason, self.status.message))) or "failed"

    def _has(self, kind: str) -> bool:
        return any(
            one.type == kind and one.status == "True" for one in self.status.conditions or ()
        )


def _configured(config: Any, context: str) -> str:
    """Have the client use kubectl's configuration, or the pod's; return the namespace there.

    `config.load_config` would do, if it did not print to standard output.
    """
    path = os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")  # noqa: PTH111
    if not context and not os.environ.get("KUBECONFIG") and "KUBERNETES_SERVICE_HOST" in os.environ:
        config.load_incluster_config()
        return Path(_POD_NAMESPACE).read_text(encoding="utf-8").strip()
    config.load_kube_config(path, context=context or None)
    contexts, active = config.list_kube_config_contexts(path)
    chosen = next((one for one in contexts if one["name"] == context), active)
    return str(chosen["context"].get("namespace") or "default")


def require_client() -> None:
    """Raise UsageError where the client is not installed."""
    if find_spec("kubernetes") is None:
        raise UsageError(
            "--engine=kubernetes: needs the package kubernetes: pip install 'perfrun[kubernetes]'; "
            "or write the Jobs with --manifests=FOLDER and apply them with kubectl"
        )


class Client:
    """The official client, its errors in one line, and its answers checked."""

    def __init__(self, context: str, namespace: str) -> None:
        require_client()
        from kubernetes import client, config  # only this engine has it

        try:
            own = _configured(config, context)
        except Exception as error:  # the client raises what its parsers raise
            raise UsageError(
                f"--engine=kubernetes: no configuration of a cluster: {line(str(error), 300)}; "
                "kubectl's is used, or that of the pod this runs in"
            ) from None
        self.namespace: str = namespace or own
        self._jobs, self._pods = client.BatchV1Api(), client.CoreV1Api()

    def create(self, manifest: Manifest, secrets: Sequence[Manifest] = ()) -> None:
        """Make a Job, and before it the Secrets that it owns then. Raises WorkspaceError."""
        name, own = manifest["metadata"]["name"], list[Manifest]()
        try:
            for secret in secrets:
                _asked(
                    f"Secret {secret['metadata']['name']}: was not accepted",
                    lambda secret=secret: self._pods.create_namespaced_secret(  # type: ignore[misc]
                        self.namespace, secret, _request_timeout=_REQUEST_S
                    ),
                )
                own.append(secret)
            made = _asked(
                f"Job {name}: was not accepted",
                lambda: self._jobs.create_namespaced_job(
                    self.namespace, manifest, _request_timeout=_REQUEST_S
                ),
            )
        except PerfrunError:
            self._delete_secrets(own)  # one that was refused may be another Job's
            raise
        for secret in secrets:
            self._own(secret, name, str(made.metadata.uid))

    def _own(self, secret: Manifest, job: str, uid: str) -> None:
        """Have the cluster delete a Secret with its Job. Raises WorkspaceError."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid}
        name = secret["metadata"]["name"]
        _asked(
            f"Secret {name}: cannot be given to its Job",
            lambda: self._pods.patch_namespaced_secret(
                name,
                self.namespace,
                {"metadata": {"ownerReferences": [owner]}},
                _request_timeout=_REQUEST_S,
            ),
        )

    def _delete_secrets(self, secrets: Sequence[Manifest]) -> None:
        for secret in secrets:
            with contextlib.suppress(PerfrunError):  # the user reads what was refused before
                _asked(
                    "",
                    lambda secret=secret: self._pods.delete_namespaced_secret(  # type: ignore[misc]
                        secret["metadata"]["name"], self.namespace, _request_timeout=_REQUEST_S
                    ),
                )

    def command(self, pod: str, container: str, words: Sequence[str], most_s: float) -> PodCommand:
        """Start a command in a container of a pod. Raises WorkspaceError."""
        from kubernetes import client

        # The client's stream changes the client that it is given while it connects.
        own = client.CoreV1Api(client.ApiClient(self._pods.api_client.configuration))
        return _asked(
            f"pod {pod}: no command can be started there",
            lambda: start(own, self.namespace, pod, container, words, most_s),
        )

    def delete(self, name: str) -> None:
        """Delete a Job with its pods. Raises WorkspaceError."""
        _asked(
            f"Job {name}: cannot be deleted",
            lambda: self._jobs.delete_namespaced_job(
                name,
                self.namespace,
                propagation_policy="Background",
                _request_timeout=_REQUEST_S,
            ),
        )

    def jobs(self, selector: str) -> list[Job]:
        """Return the Jobs with a label. Raises WorkspaceError."""
        return self._listed(self._jobs.list_namespaced_job, selector, Job)

    def pods(self, selector: str) -> list[Pod]:
        """Return the pods with a label. Raises WorkspaceError."""
        return self._listed(self._pods.list_namespaced_pod, selector, Pod)

    def _listed(self, ask: Callable[..., Any], selector: str, kind: type[T]) -> list[T]:
        found: list[T] = []
        following = None
        for _ in range(_MOST_PAGES):
            more: dict[str, Any] = {"_continue": following} if following else {}
            page = _asked(
                "the cluster cannot be asked",
                lambda more=more: ask(  # type: ignore[misc]
                    self.namespace,
                    label_selector=selector,
                    limit=_PAGE,
                    _request_timeout=_REQUEST_S,
                    **more,
                ),
            )
            plain = self._jobs.api_client.sanitize_for_serialization(page)
            try:
                answer = msgspec.convert(plain, type=dict[str, Any])
                found += msgspec.convert(answer.get("items") or [], type=list[kind])  # type: ignore[valid-type]
                following = msgspec.convert(
                    (answer.get("metadata") or {}).get("continue") or "", type=str
                )
            except (msgspec.ValidationError, AttributeError) as error:
                raise WorkspaceError(
                    f"the cluster's answer cannot be read: {line(str(error), 200)}"
                ) from None
            if not following:
                return found
        raise WorkspaceError(f"the cluster lists more than {_MOST_PAGES * _PAGE:,} objects")


def _asked(what: str, ask: Callable[[], T]) -> T:
    """Return an answer of the server. Raises WorkspaceError of one line."""
    try:
        return ask()
    except PerfrunError:
        raise
    except Exception as error:  # of the client, its connections and its models
        raise WorkspaceError(f"{what}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Return the server's own message, or that of the client, as one line."""
    body = getattr(error, "body", None)
    if isinstance(body, (str, bytes)):
        try:
            said = msgspec.json.decode(body)
        except msgspec.DecodeError:
            said = None
        if isinstance(said, dict) and isinstance(said.get("message"), str):
            return line(said["message"], 300)
    return line(str(error).strip() or type(error).__name__, 300)
