"""Plans and settings for the tests of Kubernetes."""

from __future__ import annotations

from pathlib import Path

from perfrun.fleet.kubernetes_job import PodSettings, Toleration
from perfrun.shards.plan import Plan, Shard
from perfrun.shards.plan_file import write_plan

EVERYTHING = PodSettings(
    claim="results",
    claim_path="team/nightly",
    image="registry.example/perfrun:1",
    namespace="bench",
    cpus=4,
    memory_bytes=2**33,
    gpus=1,
    node_selector=(("gpu.example/model", "a"),),
    tolerations=(Toleration(key="dedicated", value="bench", effect="NoSchedule"),),
    parallelism=8,
    walltime_s=3600,
    deadline_s=7200,
    user=(1000, 1001),
    queue="team",
    priority_class="low",
    pull_secret="registry",
)


def a_plan(workspace: Path, *words: tuple[str, ...], suite: str = "nightly") -> Plan:
    """A plan with a shard for each line of words, written to disk."""
    name = f"{suite}-2026-11-23-0a1b2c"
    plan = Plan(
        submission=name,
        suite=suite,
        digest="0" * 64,
        created=1.0,
        engine="kubernetes",
        shards=tuple(
            Shard(index=at, method="m.C.x", environment="e", words=own)
            for at, own in enumerate(words)
        ),
        folder=workspace / "submissions" / name,
    )
    write_plan(plan)
    return plan
