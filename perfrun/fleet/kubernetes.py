"""The engine `kubernetes`: the shards of a submission as pods of Indexed Jobs.

The workspace lies on a volume that this machine and the pods see. Jobs are applied with the
official client, or written as files for `kubectl apply`. All Jobs and pods of a submission are
asked for together; what the server says is data, and only its states are used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from perfrun.durable import make_folder, sync_names
from perfrun.errors import UsageError, WorkspaceError
from perfrun.fleet.engines import Options
from perfrun.fleet.kubernetes_client import Client, Job, Pod, require_client
from perfrun.fleet.kubernetes_flags import FLAGS, parse_settings
from perfrun.fleet.kubernetes_job import LABEL, Manifest, PodSettings, manifests, submission_label
from perfrun.shards.places import engine_folder
from perfrun.shards.plan import Plan, ShardState
from perfrun.shown import line
from perfrun.summary.result_folder import write_whole
from perfrun.untrusted import Folder, Refused

JOBS = "kubernetes-jobs.json"
_MOST_BYTES = 64 * 2**20
_INDEX = "batch.kubernetes.io/job-completion-index"
_JOB_NAME = "batch.kubernetes.io/job-name"


class _Record(Struct, frozen=True, forbid_unknown_fields=True):
    """A Job that was made, or is about to be."""

    name: Annotated[str, Meta(max_length=253)]
    namespace: Annotated[str, Meta(max_length=253)]
    context: Annotated[str, Meta(max_length=1000)]
    applied: bool  # False: written for kubectl
    shards: Annotated[list[Annotated[int, Meta(ge=0, lt=100_000)]], Meta(max_length=100_000)]


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
        settings = parse_settings(options)
        known = _records(plan)
        made = manifests(plan, indices, settings, len(known))
        target = options.get("manifests")
        if target:
            _remember(plan, known, made, settings)
            _write(Path(target), [manifest for manifest, _ in made])
            return
        client = Client(settings.context, settings.namespace)
        # The names are on disk before the Jobs are made: no Job is one that nobody knows.
        _remember(plan, known, made, replace(settings, namespace=client.namespace), applied=True)
        for manifest, _ in made:
            client.create(manifest)

    def states(self, plan: Plan, indices: Sequence[int]) -> Mapping[int, ShardState]:
        """Return the states of the shards that the server knows: two questions to each cluster."""
        found: dict[int, ShardState] = {}
        for _, _, states in _asked(plan):  # a later Job of a shard outweighs an earlier one
            found.update(states)
        wanted = set(indices)
        return {index: state for index, state in found.items() if index in wanted}

    def cancel(self, plan: Plan, indices: Sequence[int]) -> None:
        """Delete the Jobs of these shards. Raises PerfrunError."""
        chosen, kept = set(indices), []
        for client, name, states in _asked(plan):
            own = {index for index, state in states.items() if state.is_open}
            if own and own <= chosen:
                client.delete(name)
            elif own & chosen:
                kept.append(name)
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
    for place in dict.fromkeys((one.context, one.namespace) for one in records):
        own = [one for one in records if (one.context, one.namespace) == place]
        try:
            client = Client(*place)
        except UsageError:
            if any(one.applied for one in own):
                raise
            continue  # kubectl may know the cluster on another machine
        jobs = {job.metadata.name: job for job in client.jobs(selector)}
        phases = _phases(client.pods(selector))
        for one in own:
            if one.name in jobs:
                states = states_of(one.shards, jobs[one.name], phases.get(one.name, {}))
                found[one.name] = client, one.name, dict(states)
    return [found[one.name] for one in records if one.name in found]


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
        labels, notes = pod.metadata.labels or {}, pod.metadata.annotations or {}
        index, job = notes.get(_INDEX, labels.get(_INDEX, "")), labels.get(_JOB_NAME, "")
        if re.fullmatch(r"[0-9]{1,9}", index) and pod.status.phase in ("Pending", "Running"):
            found.setdefault(job, {})[int(index)] = pod.status.phase
    return found


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
        for manifest in made:
            name = manifest["metadata"]["name"]
            write_whole(folder / f"{name}.json", json.dumps(manifest, indent=2) + "\n")
    except OSError as error:
        raise WorkspaceError(f"--manifests={folder}: cannot be written: {error.strerror}") from None
