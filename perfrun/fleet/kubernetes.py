"""The engine `kubernetes`: the shards of a submission as pods of Indexed Jobs.

The workspace lies on a volume that this machine and the pods see, or the pods get the plan from
Secrets and keep their results until they are taken (`perfrun.fleet.kubernetes_results`). Jobs are
applied with the official client, or written as files for `kubectl apply`. All Jobs and pods of a
submission are asked for together; what the server says is data.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from perfrun.durable import make_folder, sync_names
from perfrun.errors import PerfrunError, UsageError, WorkspaceError
from perfrun.fleet.engines import Options
from perfrun.fleet.kubernetes_client import Client, Job, Pod, require_client
from perfrun.fleet.kubernetes_flags import FLAGS, NAME, parse_settings
from perfrun.fleet.kubernetes_job import (
    LABEL,
    Manifest,
    PodSettings,
    manifests,
    plan_secrets,
    submission_label,
)
from perfrun.fleet.kubernetes_results import (
    ShardPod,
    note_released,
    note_submitted,
    take,
    to_release,
)
from perfrun.fleet.transfer import Limits, limits_of, packed_plan
from perfrun.shards.places import ShardPlace, engine_folder
from perfrun.shards.plan import Plan, ShardState
from perfrun.shown import line, say
from perfrun.summary.result_folder import write_whole
from perfrun.untrusted import Folder, Refused

JOBS = "kubernetes-jobs.json"
_MOST_BYTES = 64 * 2**20
_INDEX = "batch.kubernetes.io/job-completion-index"
_ALIVE = ("Pending", "Running")
_JOB_NAME = "batch.kubernetes.io/job-name"


class _Record(Struct, frozen=True, forbid_unknown_fields=True):
    """A Job that was made, or is about to be."""

    name: Annotated[str, Meta(max_length=253)]
    namespace: Annotated[str, Meta(max_length=253)]
    context: Annotated[str, Meta(max_length=1000)]
    applied: bool  # False: written for kubectl
    shards: Annotated[list[Annotated[int, Meta(ge=0, lt=100_000)]], Meta(max_length=100_000)]
    keeps: bool = False  # pods keep their results: there is no claim
    limits: Limits = Limits()  # of these results


class KubernetesEngine:
    """Runs shards as pods of Indexed Jobs, which go on without perfrun."""

    flags = FLAGS
    stays = False

    def check(self, options: Options) -> None:
        """Refuse wrong options, and a machine without the client. Raises UsageError."""
        parse_settings(options)
        if not options.get("manifests"):
            require_client()

    def preview(self, plan: Plan, indices: Sequence[int], options: Options) -> Manifest:
        """Return a document that `kubectl apply -f` takes. Raises UsageError."""
        made = manifests(plan, indices, parse_settings(options), 0)
        return {"apiVersion": "v1", "kind": "List", "items": [manifest for manifest, _ in made]}

    def submit(self, plan: Plan, indices: Sequence[int], options: Options) -> None:
        """Apply the Jobs of these shards, or write them. Raises PerfrunError."""
        settings, limits = parse_settings(options), limits_of(options)
        known = _records(plan)
        parts = [] if settings.claim else list(packed_plan(plan))
        made = manifests(plan, indices, settings, len(known), len(parts))
        if not settings.claim:
            note_submitted(plan, indices)
        secrets = {job["metadata"]["name"]: plan_secrets(job, parts) for job, _ in made}
        target = options.get("manifests")
        if target:
            _remember(plan, known, made, settings, limits)
            every = [one for job, _ in made for one in (*secrets[job["metadata"]["name"]], job)]
            _write(Path(target), every)
        else:
            client = Client(settings.context, settings.namespace)
            settings = replace(settings, namespace=client.namespace)
            # The names are on disk before the Jobs are made: no Job is one that nobody knows.
            _remember(plan, known, made, settings, limits, applied=True)
            for job, _ in made:
                client.create(job, secrets[job["metadata"]["name"]])
        if not settings.claim:
            say("results wait in their pods until `perfrun fleet --wait` takes them")

    def gather(self, plan: Plan) -> None:
        """Bring the results here that wait in pods. Raises PerfrunError."""
        keeping = [one for one in _records(plan) if one.keeps]
        left = to_release(plan, sorted({at for one in keeping for at in one.shards}))
        if not left:
            return
        held: set[int] = set()
        try:
            for client, own in _clusters(keeping):
                pods = _of_shards(client.pods(f"{LABEL}={submission_label(plan)}"), own)
                take(plan, client, pods, say)
                held |= {one.shard for one in pods if one.pod.status.phase in _ALIVE}
        except PerfrunError as error:
            if not all(_is_here(plan, at) for at in left):
                raise
            say(f"{line(str(error), 500)}; all results are here")
            return
        note_released(plan, sorted(at for at in left - held if _is_here(plan, at)))

    def states(self, plan: Plan, indices: Sequence[int]) -> Mapping[int, ShardState]:
        """Return the states of the shards that the server knows: two questions to each cluster."""
        found: dict[int, ShardState] = {}
        for _, _, states in _asked(plan):  # a later Job of a shard outweighs an earlier one
            found.update(states)
        wanted = set(indices)
        return {index: state for index, state in found.items() if index in wanted}

    def cancel(self, plan: Plan, indices: Sequence[int]) -> None:
        """Delete the Jobs of these shards. Raises PerfrunError."""
        chosen, cancelled, kept = set(indices), set[int](), []
        for client, name, states in _asked(plan):
            # A pod whose result has just been taken runs for another moment.
            own = {at for at, state in states.items() if state.is_open and not _is_here(plan, at)}
            if own and own <= chosen:
                client.delete(name)
                cancelled |= own
            elif own & chosen:
                kept.append(name)
        note_released(plan, sorted(cancelled))
        if kept:
            raise UsageError(
                f"Job {kept[0]} also has shards that are not to be cancelled; Kubernetes ends a "
                "whole Job: cancel all of them"
            )


def engine() -> KubernetesEngine:
    """Return the engine."""
    return KubernetesEngine()


def _asked(plan: Plan) -> list[tuple[Client, str, dict[int, ShardState]]]:
    """Return the states of the shards of each Job that is there, the first Job first.

    Each cluster and namespace that has had Jobs is asked.
    """
    records = _records(plan)
    selector = f"{LABEL}={submission_label(plan)}"
    found: dict[str, tuple[Client, str, dict[int, ShardState]]] = {}
    for client, own in _clusters(records):
        jobs = {job.metadata.name: job for job in client.jobs(selector)}
        phases = _phases(client.pods(selector))
        for one in own:
            if one.name in jobs:
                states = states_of(one.shards, jobs[one.name], phases.get(one.name, {}))
                found[one.name] = client, one.name, dict(states)
    return [found[one.name] for one in records if one.name in found]


def _is_here(plan: Plan, index: int) -> bool:
    return ShardPlace(plan, index).counted() is not None


def _clusters(records: Sequence[_Record]) -> Iterator[tuple[Client, list[_Record]]]:
    """Yield each cluster and namespace that has had Jobs, with these. Raises UsageError."""
    for place in dict.fromkeys((one.context, one.namespace) for one in records):
        own = [one for one in records if (one.context, one.namespace) == place]
        try:
            client = Client(*place)
        except UsageError:
            if any(one.applied for one in own):
                raise
            continue  # kubectl may know the cluster on another machine
        yield client, own


def _of_shards(pods: Sequence[Pod], records: Sequence[_Record]) -> list[ShardPod]:
    """Return the pods that run shards of these Jobs, and whose names are such."""
    jobs = {one.name: one for one in records}
    found = []
    for pod in pods:
        name, index = _job_and_index(pod)
        job = jobs.get(name)
        if job and 0 <= index < len(job.shards) and re.fullmatch(NAME, pod.metadata.name):
            found.append(ShardPod(shard=job.shards[index], pod=pod, limits=job.limits))
    return found


def states_of(
    shards: Sequence[int], job: Job, phases: Mapping[int, str]
) -> Iterator[tuple[int, ShardState]]:
    """Yield the shards of a Job whose states it knows; `phases` are those of its pods by index.

    A failed index and one that completed are left to the shard's files, except that a failed one
    without a result is a failed machine.
    """
    conditions = {c.type for c in job.status.conditions or () if c.status == "True"}
    ended = bool(conditions & {"Failed", "Complete"})
    failed = _indexes(job.status.failedIndexes, len(shards))
    completed = _indexes(job.status.completedIndexes, len(shards))
    for at, shard in enumerate(shards):
        if at in completed:
            continue
        if at in failed:
            yield shard, ShardState.MACHINE
        elif ended:  # its deadline was over, or somebody ended it
            yield shard, ShardState.CANCELLED
        else:
            yield shard, ShardState.RUNNING if phases.get(at) == "Running" else ShardState.WAITING


def _indexes(text: str | None, count: int) -> frozenset[int]:
    """Return the indices that the server lists as `1,3-5`; what it should not say is left out."""
    found: set[int] = set()
    for part in (text or "").split(",")[:count]:
        ends = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if ends:
            found.update(range(int(ends[1]), min(int(ends[2] or ends[1]), count - 1) + 1))
    return frozenset(found)


def _phases(pods: Sequence[Pod]) -> dict[str, dict[int, str]]:
    """Return the phases of pods that have not ended, by Job and index."""
    found: dict[str, dict[int, str]] = {}
    for pod in pods:
        job, index = _job_and_index(pod)
        if index >= 0 and pod.status.phase in _ALIVE:
            found.setdefault(job, {})[index] = pod.status.phase
    return found


def _job_and_index(pod: Pod) -> tuple[str, int]:
    """Return the Job of a pod, and its index there; -1 for what is no index."""
    labels, notes = pod.metadata.labels or {}, pod.metadata.annotations or {}
    index = notes.get(_INDEX, labels.get(_INDEX, ""))
    return labels.get(_JOB_NAME, ""), int(index) if re.fullmatch(r"[0-9]{1,9}", index) else -1


def _records(plan: Plan) -> list[_Record]:
    """Return the Jobs of this submission. Raises WorkspaceError for a file that is none."""
    path = plan.folder / "engine" / JOBS
    try:
        with Folder(path.parent) as folder:
            return msgspec.json.decode(folder.read(JOBS, _MOST_BYTES), type=list[_Record])
    except FileNotFoundError:
        return []
    except (OSError, Refused, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WorkspaceError(f"{path}: cannot be read: {line(str(error), 200)}") from None


def _remember(
    plan: Plan,
    known: Sequence[_Record],
    made: Sequence[tuple[Manifest, tuple[int, ...]]],
    settings: PodSettings,
    limits: Limits,
    *,
    applied: bool = False,
) -> None:
    new = [
        _Record(
            name=manifest["metadata"]["name"],
            namespace=settings.namespace,
            context=settings.context,
            applied=applied,
            shards=list(shards),
            keeps=not settings.claim,
            limits=limits,
        )
        for manifest, shards in made
    ]
    try:
        path = engine_folder(plan) / JOBS
        write_whole(path, msgspec.json.encode([*known, *new]).decode() + "\n")
        sync_names(path.parent)
    except OSError as error:
        raise WorkspaceError(f"{plan.folder}: cannot be written: {error.strerror}") from None


def _write(folder: Path, made: Sequence[Manifest]) -> None:
    try:
        make_folder(folder)
        with Folder(Path(os.path.realpath(folder))) as opened:
            for manifest in made:
                text = json.dumps(manifest, indent=2) + "\n"
                # A Secret has the plan, which only its owner can read here, too.
                mode = 0o600 if manifest["kind"] == "Secret" else 0o666
                opened.write(f"{manifest['metadata']['name']}.json", text.encode(), mode)
    except OSError as error:
        raise WorkspaceError(f"--manifests={folder}: cannot be written: {error.strerror}") from None
