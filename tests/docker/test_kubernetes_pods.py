"""The pods of a Job, run in containers as its manifest says, by the rules that it gives a cluster.

No cluster runs here. So a few lines do what its controller does with a Job: a container for each
index with the command, user, environment and volumes of the manifest, tried again or not by its
pod failure policy. What runs in the containers is real.
"""

from __future__ import annotations

import base64
import shlex
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from actors import Caller, give

from perfrun.fleet.dispatch import shuffled
from perfrun.fleet.kubernetes import engine
from perfrun.fleet.kubernetes_flags import parse_settings
from perfrun.fleet.kubernetes_job import manifests
from perfrun.shards.collect import collect
from perfrun.shards.plan import Plan, Shard, ShardState
from perfrun.shards.plan_file import write_plan
from perfrun.shards.status import statuses
from tests.kubernetes_api import Cluster, running_cluster

BENCHMARKS = """
import os, time


class Cases:
    def __init__(self, output_dir=None, **kwargs):
        self.folder = output_dir

    def passes(self):
        print("ran")

    def fails(self):
        raise ValueError("on purpose")

    def is_killed_once(self):
        mark = "/workspace/mark"
        if not os.path.exists(mark):
            open(mark, "w").close()
            time.sleep(600)
"""
METHODS = ("passes", "fails", "is_killed_once")


@dataclass
class Controller:
    """Runs the indices of a Job one after another, as a cluster with one node does."""

    job: dict[str, Any]
    volumes: dict[str, Path]  # of claims
    user: Caller
    project: str
    cluster: Cluster | None = None
    exit_codes: dict[int, list[int]] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)

    def run(self) -> None:
        spec = self.job["spec"]
        for index in range(spec["completions"]):
            codes = self.exit_codes.setdefault(index, [])
            while True:
                codes.append(self.pod(index, len(codes)))
                if codes[-1] == 0:
                    break
                if self.fails_index(codes[-1]) or len(codes) > spec["backoffLimitPerIndex"]:
                    self.failed.append(index)
                    break

    def fails_index(self, code: int) -> bool:
        rules = self.job["spec"]["podFailurePolicy"]["rules"]
        return any(
            rule["action"] == "FailIndex" and code in rule["onExitCodes"]["values"]
            for rule in rules
            if "onExitCodes" in rule
        )

    def pod(self, index: int, attempt: int) -> int:
        """Run one container; return its exit status."""
        pod = self.job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        claims = {
            volume["name"]: self.volumes[volume["persistentVolumeClaim"]["claimName"]]
            for volume in pod["volumes"]
            if "persistentVolumeClaim" in volume
        }
        for volume in pod["volumes"]:
            if volume["name"] in ("results", "plan") and volume["name"] not in claims:
                claims[volume["name"]] = self.volumes[volume["name"]] / f"{index}-{attempt}"
                claims[volume["name"]].mkdir(parents=True)
                if "projected" in volume:
                    self.project_secrets(volume["projected"], claims[volume["name"]])
                give(claims[volume["name"]], self.user)
        name = f"{self.project}-{index}-{attempt}"
        words = ["docker", "run", "--rm", f"--name={name}"]
        words += ["--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
        who = pod["securityContext"]
        words.append(f"--user={who['runAsUser']}:{who['runAsGroup']}")
        words += [f"--env={one['name']}={one['value']}" for one in container["env"]]
        words.append(f"--env=JOB_COMPLETION_INDEX={index}")
        for mount in container["volumeMounts"]:
            if mount["name"] in claims:
                source = claims[mount["name"]] / mount.get("subPath", "")
                words.append(f"--mount=type=bind,source={source},target={mount['mountPath']}")
            else:
                words.append(f"--mount=type=tmpfs,target={mount['mountPath']}")
        command = [
            word.replace("$(JOB_COMPLETION_INDEX)", str(index)) for word in container["command"]
        ]
        words += [f"--entrypoint={command[0]}", container["image"], *command[1:]]
        if "readinessProbe" not in container:
            return self.user.run(*words, cwd=self.user.home).returncode
        return self.probed(name, index, container["readinessProbe"]["tcpSocket"]["port"], words)

    def probed(self, name: str, index: int, port: int, words: list[str]) -> int:
        """Run a container that the API knows as a pod, ready when its port answers."""
        assert self.cluster is not None
        self.cluster.has(self.job["metadata"]["name"], index, "Running")
        pod = self.cluster.pods[-1]
        pod["metadata"]["name"] = name
        ended = threading.Event()
        look = f": < /dev/tcp/127.0.0.1/{port}"

        def probe() -> None:
            while not ended.wait(0.5):
                done = self.user.run("docker", "exec", name, "bash", "-c", look, cwd=self.user.home)
                if done.returncode == 0:
                    pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
                    return

        prober = threading.Thread(target=probe)
        prober.start()
        code = self.user.run(*words, cwd=self.user.home).returncode
        ended.set()
        prober.join()
        pod["status"] = {"phase": "Failed" if code else "Succeeded"}
        return code

    def project_secrets(self, volume: dict[str, Any], target: Path) -> None:
        """Write the content of Secrets as a kubelet does: as links."""
        assert self.cluster is not None
        for source in volume["sources"]:
            for key, data in self.cluster.secrets[source["secret"]["name"]]["data"].items():
                (target / f".{key}").write_bytes(base64.b64decode(data))
                (target / key).symlink_to(f".{key}")


@pytest.mark.timeout(300)
def test_each_index_runs_as_its_manifest_says_and_a_killed_one_runs_again(
    user: Caller, torch_image: str, workspace: Path
) -> None:
    volume = workspace / "a volume"
    own = volume / "team" / "nightly"
    plan = a_plan(own, torch_image)
    give(volume, user)
    settings = parse_settings(
        {"claim": "results:team/nightly", "pod_user": f"{user.uid}:{user.gid}"}
    )
    ((job, order),) = manifests(plan, range(1, 1 + len(METHODS)), settings, 0)
    passes, fails, killed = (order.index(shard) for shard in (1, 2, 3))
    project = f"perfrun-pods-{time.time_ns()}"
    controller = Controller(job, {"results": volume}, user, project)
    killer = threading.Thread(target=kill_when, args=(own / "mark", f"{project}-{killed}-0", user))
    killer.start()
    controller.run()
    killer.join()

    assert controller.exit_codes == {passes: [0], fails: [1], killed: [137, 0]}
    assert controller.failed == [fails]
    _, first, second, third = statuses(plan)
    assert [one.state for one in (first, second, third)] == [
        ShardState.DONE,
        ShardState.FAILED,
        ShardState.DONE,
    ]
    assert "on purpose" in second.reason
    assert [len(one.attempts) for one in (first, second, third)] == [1, 1, 2]
    assert first.last is not None
    assert first.last.begun is not None
    assert first.last.begun.job == str(passes)
    assert user.owns(own / "submissions")
    # The trial ran in the pod itself, with the image's own interpreter.
    collect(plan, [1, 2, 3], print)
    summaries = sorted((own / "output").glob("*/perfzero_summary.json"))
    assert len(summaries) == 3
    assert all("/opt/framework" in path.read_text() for path in summaries)


@pytest.mark.timeout(300)
def test_results_come_from_pods_without_a_volume_of_which_one_is_killed_meanwhile(
    user: Caller, torch_image: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = a_plan(workspace / "own", torch_image)
    killed, passes, fails = 0, 1, 2  # shards, of which the first is killed while it sends
    options = {"pod_user": f"{user.uid}:{user.gid}", "walltime": "10m"}
    with running_cluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(workspace)))
        engine().submit(plan, [passes, fails, killed], options)
        ((job, order),) = (
            (made, shuffled(plan, [passes, fails, killed])) for made in cluster.jobs.values()
        )
        kills = [f"perfrun-kept-{time.time_ns()}-{order.index(killed)}-0"]
        project = kills[0].rpartition("-")[0].rpartition("-")[0]

        def command_in(pod: str, words: list[str]) -> list[str]:
            own = ["docker", "exec", "-i", pod, *words]
            if "--send" in words and pod in kills:
                kills.clear()
                sent = f"{shlex.join(own)} | head -c 3000; docker kill {pod} >&2"
                return ["sh", "-c", sent]
            return own

        cluster.command_in = command_in
        volumes = {"results": workspace / "empty", "plan": workspace / "plans"}
        controller = Controller(job, volumes, user, project, cluster)
        running = threading.Thread(target=controller.run)
        running.start()
        while running.is_alive():
            engine().gather(plan)
            time.sleep(0.5)
    assert not kills
    assert controller.exit_codes == {
        order.index(passes): [0],
        order.index(fails): [1],
        order.index(killed): [137, 0],
    }
    found = statuses(plan)[:3]
    states = [ShardState.DONE, ShardState.DONE, ShardState.FAILED]
    assert [one.state for one in found] == states
    assert "on purpose" in found[fails].reason
    # The pod that was killed is an attempt that failed; nothing of it came twice.
    assert [len(one.attempts) for one in found] == [2, 1, 1]
    collect(plan, [0, 1, 2], print)
    summaries = sorted((plan.workspace / "output").glob("*/perfzero_summary.json"))
    assert len(summaries) == 3
    assert all("/opt/framework" in path.read_text() for path in summaries)


def kill_when(mark: Path, name: str, user: Caller) -> None:
    """Kill a container as soon as its trial has left a mark."""
    ends = time.monotonic() + 120
    while not mark.exists() and time.monotonic() < ends:
        time.sleep(0.05)
    user.run("docker", "kill", name, cwd=user.home)


def a_plan(workspace: Path, image: str) -> Plan:
    """A submission of four methods in an image, with its code."""
    name = "nightly-2026-11-23-0a1b2c"
    folder = workspace / "submissions" / name
    shards = tuple(  # the first of which has been run already, so that no index is its shard's
        Shard(
            index=at,
            method=f"cases.Cases.{method}",
            environment="torch",
            words=(
                f"--image={image}",
                "--memory=1g",
                "--python_path=code/0",
                f"--benchmark_methods=cases.Cases.{method}",
            ),
        )
        for at, method in enumerate(("passes", *METHODS))
    )
    plan = Plan(
        submission=name,
        suite="nightly",
        digest="0" * 64,
        created=time.time(),
        engine="kubernetes",
        shards=shards,
        folder=folder,
    )
    write_plan(plan)
    code = folder / "code" / "0"
    code.mkdir(parents=True)
    (code / "cases.py").write_text(BENCHMARKS)
    return plan
