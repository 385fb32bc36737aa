"""The flags of the engine `kubernetes`, and their values."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from perfrun.errors import UsageError
from perfrun.fleet.engines import EngineFlag, Options
from perfrun.fleet.kubernetes_job import PodSettings, Toleration
from perfrun.fleet.transfer import LIMIT_FLAGS, limits_of
from perfrun.options.containment import parse_size
from perfrun.options.parsers import parse_duration, parse_whole
from perfrun.shown import line

NAME = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_LABEL_KEY = rf"(?:{NAME}/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?"
_LABEL_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

FLAGS = (
    EngineFlag(
        name="claim",
        metavar="NAME[:PATH]",
        text="PersistentVolumeClaim that holds the workspace, and its path in there; without it, "
        "pods keep their results until they are collected",
    ),
    EngineFlag(
        name="keep_results",
        metavar="TIME",
        text="how long a pod without --claim keeps its result (1d)",
    ),
    *LIMIT_FLAGS,
    EngineFlag(
        name="pod_image",
        metavar="IMAGE",
        text="image with perfrun, for environments that name none",
    ),
    EngineFlag(name="namespace", metavar="NAME", text="namespace of the Jobs (the context's)"),
    EngineFlag(name="kube_context", metavar="NAME", text="context of the client's configuration"),
    EngineFlag(name="pod_cpus", metavar="N", text="processors of a pod, requested and its limit"),
    EngineFlag(name="pod_memory", metavar="SIZE", text="memory of a pod, requested and its limit"),
    EngineFlag(
        name="pod_gpus", metavar="N[:RESOURCE]", text="GPUs of a pod (RESOURCE: nvidia.com/gpu)"
    ),
    EngineFlag(name="pod_shm", metavar="SIZE", text="shared memory of a pod (2g)"),
    EngineFlag(name="node_selector", metavar="KEY=VALUE,...", text="labels that a node must have"),
    EngineFlag(
        name="tolerations",
        metavar="KEY[=VALUE][:EFFECT],...",
        text="taints of nodes that the pods tolerate",
    ),
    EngineFlag(
        name="pods_at_once", metavar="N", text="pods of a Job at the same time (as nodes allow)"
    ),
    EngineFlag(name="share_nodes", metavar="yes", text="let pods share a node; figures suffer"),
    EngineFlag(name="pod_retries", metavar="N", text="attempts more after a machine failed (2)"),
    EngineFlag(name="walltime", metavar="TIME", text="longest time of one attempt at a shard"),
    EngineFlag(name="job_deadline", metavar="TIME", text="longest time of a whole Job"),
    EngineFlag(
        name="pod_user", metavar="UID:GID", text="user of the processes (who submits; root: root)"
    ),
    EngineFlag(name="kueue", metavar="QUEUE", text="queue of Kueue that admits the Jobs"),
    EngineFlag(name="priority_class", metavar="NAME", text="PriorityClass of the pods"),
    EngineFlag(name="pull_secret", metavar="NAME", text="Secret with which images are pulled"),
    EngineFlag(name="manifests", metavar="FOLDER", text="write the Jobs there, and apply nothing"),
)


def parse_settings(options: Options) -> PodSettings:
    """Return the checked flags. Raises UsageError."""
    claim, _, path = options.get("claim", "").partition(":")
    keep_s = _seconds(options, "keep_results")
    limits_of(options)
    if options.get("claim"):
        claim = _matching(claim, "--claim", NAME, "the name of a PersistentVolumeClaim")
        for flag in ("keep_results", *(flag.name for flag in LIMIT_FLAGS)):
            if options.get(flag):
                raise UsageError(f"--{flag}: is for pods without --claim, which keep their results")
    if path.startswith("/") or ".." in path.split("/"):
        raise UsageError(
            f"--claim={line(options['claim'])}: PATH is inside the volume, as team/nightly"
        )
    gpus, _, resource = options.get("pod_gpus", "").partition(":")
    return PodSettings(
        claim=claim,
        claim_path=path,
        keep_s=PodSettings.keep_s if keep_s is None else keep_s,
        image=_matching(
            options.get("pod_image", ""), "--pod_image", r"\S{0,500}", "the name of an image"
        ),
        namespace=_name(options, "namespace"),
        context=options.get("kube_context", ""),
        cpus=parse_whole(options.get("pod_cpus"), "--pod_cpus"),
        memory_bytes=parse_size("--pod_memory", options.get("pod_memory")),
        gpus=parse_whole(gpus, "--pod_gpus"),
        gpu_resource=_matching(
            resource or "nvidia.com/gpu", "--pod_gpus", _LABEL_KEY, "N:RESOURCE, as 1:amd.com/gpu"
        ),
        shm_bytes=parse_size("--pod_shm", options.get("pod_shm")) or PodSettings.shm_bytes,
        node_selector=tuple(_selector(options.get("node_selector", ""))),
        tolerations=tuple(_tolerations(options.get("tolerations", ""))),
        shares_nodes=_is_yes(options.get("share_nodes", ""), "--share_nodes"),
        parallelism=parse_whole(options.get("pods_at_once"), "--pods_at_once"),
        retries=_or_default(parse_whole(options.get("pod_retries"), "--pod_retries", least=0), 2),
        walltime_s=_seconds(options, "walltime"),
        deadline_s=_seconds(options, "job_deadline"),
        user=_user(options.get("pod_user", "")),
        queue=_name(options, "kueue"),
        priority_class=_name(options, "priority_class"),
        pull_secret=_name(options, "pull_secret"),
    )


def _name(options: Options, flag: str) -> str:
    text = options.get(flag, "")
    return _matching(text, f"--{flag}", NAME, "a name of Kubernetes") if text else ""


def _matching(text: str, flag: str, pattern: str, what: str) -> str:
    if re.fullmatch(pattern, text) is None:
        raise UsageError(f"{flag}={line(text, 100)}: must be {what}")
    return text


def _or_default(value: int | None, default: int) -> int:
    return default if value is None else value


def _seconds(options: Options, flag: str) -> int | None:
    seconds = parse_duration(options.get(flag), f"--{flag}")
    return None if seconds is None else max(1, round(seconds))


def _is_yes(text: str, flag: str) -> bool:
    if text.lower() not in ("", "yes", "no", "true", "false"):
        raise UsageError(f"{flag}={line(text, 100)}: must be yes or no")
    return text.lower() in ("yes", "true")


def _selector(text: str) -> Iterator[tuple[str, str]]:
    for item in filter(None, text.split(",")):
        key, equals, value = item.partition("=")
        if not equals or not re.fullmatch(_LABEL_KEY, key) or not re.fullmatch(_LABEL_VALUE, value):
            raise UsageError(
                f"--node_selector={line(item, 100)}: write KEY=VALUE, labels of a node"
            )
        yield key, value


def _tolerations(text: str) -> Iterator[Toleration]:
    for item in filter(None, text.split(",")):
        rest, _, effect = item.partition(":")
        key, _, value = rest.partition("=")
        wrong = effect and effect not in _EFFECTS
        if wrong or not re.fullmatch(_LABEL_KEY, key) or not re.fullmatch(_LABEL_VALUE, value):
            raise UsageError(
                f"--tolerations={line(item, 100)}: write KEY=VALUE:EFFECT, of which KEY alone is "
                f"needed; EFFECT is one of {', '.join(_EFFECTS)}"
            )
        yield Toleration(key=key, value=value, effect=effect)


def _user(text: str) -> tuple[int, int] | None:
    """Return the user and group of the processes; None for root."""
    if not text:
        return (os.getuid(), os.getgid()) if os.getuid() else None
    if text == "root":
        return None
    found = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", text)
    if found is None or int(found[1]) == 0:
        raise UsageError(f"--pod_user={line(text, 100)}: write UID:GID as numbers, or root")
    return int(found[1]), int(found[2])
