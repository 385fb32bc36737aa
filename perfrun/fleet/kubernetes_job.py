"""Manifests of a submission for Kubernetes: an Indexed Job for each image, a pod for each shard.

A Job is told what the exit statuses of `perfrun shard` mean (`perfrun.fleet.shard_command`): a
failed benchmark fails its index at once, a failed machine is tried again, and a pod that was
preempted or evicted counts for nothing. This needs Kubernetes 1.33, or 1.29 with its defaults
(https://kubernetes.io/docs/concepts/workloads/controllers/job/, backoff limit per index and pod
failure policy).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfrun.errors import UsageError
from perfrun.fleet.dispatch import shuffled
from perfrun.fleet.index_ranges import index_ranges
from perfrun.fleet.keeping import NOT_TAKEN, READY_PORT
from perfrun.fleet.shard_command import BENCHMARK_FAILED
from perfrun.fleet.transfer import PART
from perfrun.shards.plan import Plan, Shard

CONTAINER = "shard"
MOUNT = "/workspace"  # of the results in a pod; the entry point of perfrun's images knows it
LABEL = "perfrun/submission"
APP = {"app.kubernetes.io/name": "perfrun", "app.kubernetes.io/managed-by": "perfrun"}
ROLE = {"perfrun/role": "benchmark"}  # of the pods that must be alone on a node
WRONG_PLAN = 2  # exit status of a usage error: it is wrong on every machine
_MOST_PARALLEL = 10_000  # pods of a Job that counts failures by index
_KEPT_S = 7 * 24 * 3600  # how long the cluster keeps a Job that has ended
_PARTS = "/submission"  # of the plan, in a pod without a claim
_PROBE_S = 10
_GRACE_S = 60  # in which an interrupted shard writes what it has measured
_IMAGE = "--image="
# What the entry point of perfrun's images needs to become the owner of the results, and to make
# each trial another user; docker-compose.yml says more.
_OF_ROOT = ["CHOWN", "KILL", "SETGID", "SETUID"]

Manifest = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Toleration:
    """A taint that the pods tolerate: `key=value:Effect`; all but the key may be empty."""

    key: str
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, kw_only=True)
class PodSettings:
    """The flags of the engine, checked; sizes are in bytes, times in seconds."""

    claim: str = ""  # of the volume that holds the workspace; empty: each pod has its own
    claim_path: str = ""  # of the workspace in that volume
    image: str = ""  # of shards whose environment names none
    namespace: str = ""  # empty: that of the context
    context: str = ""  # of the client's configuration; empty: its current one
    cpus: int | None = None
    memory_bytes: int | None = None
    gpus: int | None = None
    gpu_resource: str = "nvidia.com/gpu"
    shm_bytes: int = 2**31
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    shares_nodes: bool = False
    parallelism: int | None = None
    keep_s: int = 24 * 3600  # for a result to be taken from its pod, without a claim
    retries: int = 2  # of a shard, after failures of machines
    walltime_s: int | None = None  # of one attempt
    deadline_s: int | None = None  # of the whole Job
    user: tuple[int, int] | None = None  # user and group of the processes
    queue: str = ""  # of Kueue
    priority_class: str = ""
    pull_secret: str = ""


def manifests(
    plan: Plan, indices: Sequence[int], settings: PodSettings, number: int, parts: int = 1
) -> tuple[tuple[Manifest, tuple[int, ...]], ...]:
    """Return Jobs, each with its shards in the order of its indices.

    Every round is in an order of its own, which `perfrun shard --among` finds in the same way.
    `number` counts the Jobs before these, `parts` the Secrets of the plan. Raises UsageError for a
    shard without an image.
    """
    by_image: dict[str, list[int]] = {}
    for index in sorted(indices):
        shard = plan.shards[index]
        image = image_of(shard) or settings.image
        if not image:
            raise UsageError(
                f"shard {index} ({shard.method}): environment {shard.environment!r} names no "
                "image; name one for it with --pod_image, in which perfrun is installed"
            )
        by_image.setdefault(image, []).append(index)
    return tuple(
        (job(plan, own, image, settings, number + at, parts), tuple(shuffled(plan, own)))
        for at, (image, own) in enumerate(by_image.items())
    )


def image_of(shard: Shard) -> str:
    """Return the image that the shard's environment names; empty when it names none."""
    own = shard.words[: shard.words.index("--")] if "--" in shard.words else shard.words
    return next((word[len(_IMAGE) :] for word in own if word.startswith(_IMAGE)), "")


def submission_label(plan: Plan) -> str:
    """Return the submission as the value of a label: at most 63 characters, and its own."""
    return f"{_slug(plan.suite, 40)}-{hashlib.sha256(plan.submission.encode()).hexdigest()[:12]}"


def plan_secrets(job: Manifest, parts: Sequence[bytes]) -> list[Manifest]:
    """Return the Secrets from which the pods of a Job get the plan and its code.

    They are Secrets because addresses of repositories can have passwords.
    """
    metadata = job["metadata"]
    common = {key: metadata[key] for key in ("namespace",) if key in metadata}
    common["labels"] = {**APP, LABEL: metadata["labels"][LABEL]}
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, **common},
            "type": "Opaque",
            "immutable": True,
            "data": {f"{PART}{at:03d}": base64.b64encode(part).decode()},
        }
        for at, (part, name) in enumerate(
            zip(parts, _secret_names(metadata["name"], len(parts)), strict=True)
        )
    ]


def _secret_names(job: str, parts: int) -> list[str]:
    return [f"{job}-plan-{at}" for at in range(parts)]


def folder_in_pod(plan: Plan) -> str:
    """Return the folder of the submission in a pod."""
    return f"{MOUNT}/{plan.folder.relative_to(plan.workspace)}"


def job(
    plan: Plan,
    indices: Sequence[int],
    image: str,
    settings: PodSettings,
    number: int,
    parts: int,
) -> Manifest:
    """Return the Job that runs these shards in this image."""
    label = submission_label(plan)
    # A pod's name has the index and five letters more, within 63 characters.
    name = f"perfrun-{_slug(plan.suite, 16)}-{label[-12:]}-{number}"
    pod = _pod(plan, indices, image, settings)
    if not settings.claim:
        _keep(pod, settings, _secret_names(name, parts))
    labels = {**APP, **ROLE, LABEL: label}
    parallel = min(len(indices), settings.parallelism or _MOST_PARALLEL, _MOST_PARALLEL)
    spec: Manifest = {
        "completionMode": "Indexed",
        "completions": len(indices),
        "parallelism": parallel,
        "backoffLimitPerIndex": settings.retries,
        "podReplacementPolicy": "Failed",  # never two pods of one shard
        "ttlSecondsAfterFinished": _KEPT_S,
        "podFailurePolicy": {"rules": _failure_rules()},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    if settings.deadline_s:
        spec["activeDeadlineSeconds"] = settings.deadline_s
    queue = {"kueue.x-k8s.io/queue-name": settings.queue} if settings.queue else {}
    metadata: Manifest = {
        "name": name,
        "labels": {**labels, **queue},
        "annotations": {
            "perfrun/submission": plan.submission,
            "perfrun/shards": index_ranges(indices),
        },
    }
    if settings.namespace:
        metadata["namespace"] = settings.namespace
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _failure_rules() -> list[Manifest]:
    """Return the rules of which the first that fits a failed pod counts."""
    return [
        {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        },
        {
            "action": "FailIndex",
            "onExitCodes": {
                "containerName": CONTAINER,
                "operator": "In",
                "values": [BENCHMARK_FAILED, WRONG_PLAN, NOT_TAKEN],
            },
        },
    ]


def _pod(plan: Plan, indices: Sequence[int], image: str, settings: PodSettings) -> Manifest:
    # Kubernetes puts the index in, without a shell.
    words = ["perfrun", "shard", "--in_image", f"--among={index_ranges(indices)}"]
    mounts: list[Manifest] = [
        {"name": "results", "mountPath": MOUNT},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - of the pod alone
        {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108 - of the pod alone
    ]
    if settings.claim_path:
        mounts[0]["subPath"] = settings.claim_path
    container: Manifest = {
        "name": CONTAINER,
        "image": image,
        "command": [*words, folder_in_pod(plan), "$(JOB_COMPLETION_INDEX)"],
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 - as above
        "resources": _resources(settings),
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], **({} if settings.user else {"add": _OF_ROOT})},
        },
    }
    shm: Manifest = {"medium": "Memory", "sizeLimit": str(settings.shm_bytes)}
    pod: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_S,
        "securityContext": _security(settings),
        "containers": [container],
        "volumes": [
            {"name": "results", **_results_volume(settings)},
            {"name": "shm", "emptyDir": shm},
            {"name": "scratch", "emptyDir": {}},
        ],
    }
    if not settings.shares_nodes:
        pod["affinity"] = _apart()
    if settings.walltime_s:
        pod["activeDeadlineSeconds"] = settings.walltime_s
    if settings.node_selector:
        pod["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerations:
        pod["tolerations"] = [_toleration(one) for one in settings.tolerations]
    if settings.priority_class:
        pod["priorityClassName"] = settings.priority_class
    if settings.pull_secret:
        pod["imagePullSecrets"] = [{"name": settings.pull_secret}]
    return pod


def _results_volume(settings: PodSettings) -> Manifest:
    if settings.claim:
        return {"persistentVolumeClaim": {"claimName": settings.claim}}
    return {"emptyDir": {}}


def _keep(pod: Manifest, settings: PodSettings, secrets: Sequence[str]) -> None:
    """Have a pod get the plan from Secrets, and keep its result until it has been taken."""
    (container,) = pod["containers"]
    keep = [f"--unpack={_PARTS}", f"--keep={settings.keep_s}s"]
    if settings.walltime_s:
        keep.append(f"--walltime={settings.walltime_s}s")
        # The whole pod may live longer than the attempt: it keeps the result then.
        pod["activeDeadlineSeconds"] = settings.walltime_s + settings.keep_s + _GRACE_S
    container["command"][2:2] = keep
    # Ready means: a result waits. A probe opens a connection, and starts nothing in the pod.
    container["readinessProbe"] = {"tcpSocket": {"port": READY_PORT}, "periodSeconds": _PROBE_S}
    # So that the last lines of a failed pod say why, where a list of pods shows them.
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    container["volumeMounts"].append({"name": "plan", "mountPath": _PARTS, "readOnly": True})
    sources = [{"secret": {"name": name}} for name in secrets]
    pod["volumes"].append({"name": "plan", "projected": {"defaultMode": 0o440, "sources": sources}})


def _resources(settings: PodSettings) -> Manifest:
    """Return equal requests and limits, so that a pod has whole processors where a node can."""
    sizes: Mapping[str, int | None] = {
        "cpu": settings.cpus,
        "memory": settings.memory_bytes,
        settings.gpu_resource: settings.gpus,
    }
    found = {name: str(size) for name, size in sizes.items() if size}
    return {"requests": found, "limits": dict(found)} if found else {}


def _security(settings: PodSettings) -> Manifest:
    found: Manifest = {"seccompProfile": {"type": "RuntimeDefault"}}
    if settings.user is not None:
        user, group = settings.user
        found |= {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": group, "fsGroup": group}
    return found


def _apart() -> Manifest:
    """Return what keeps two pods of perfrun, of any submission, from sharing a node."""
    term: Manifest = {
        "labelSelector": {"matchLabels": ROLE},
        "namespaceSelector": {},  # all of them
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _toleration(one: Toleration) -> Manifest:
    found = {"key": one.key, "operator": "Equal" if one.value else "Exists"}
    if one.value:
        found["value"] = one.value
    if one.effect:
        found["effect"] = one.effect
    return found


def _slug(text: str, most: int) -> str:
    """Return the text as a part of a name: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:most].strip("-") or "suite"
