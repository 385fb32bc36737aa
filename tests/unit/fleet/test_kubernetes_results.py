"""Results that wait in pods come once and whole, and a pod is let go only when they are here."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfrun.errors import UsageError, WorkspaceError
from perfrun.fleet.dispatch import shuffled
from perfrun.fleet.keeping import ACKNOWLEDGED, NOT_TAKEN, mark_taken, wait_until_taken
from perfrun.fleet.kubernetes import engine
from perfrun.fleet.kubernetes_job import folder_in_pod
from perfrun.fleet.transfer import unpack_plan
from perfrun.shards.collect import collect
from perfrun.shards.places import How, ShardPlace
from perfrun.shards.plan import ShardState
from perfrun.shards.plan_file import read_plan
from perfrun.shards.status import statuses
from tests.kubernetes_api import Cluster, running_cluster
from tests.submissions import finished
from tests.unit.fleet.kubernetes_plans import a_plan

WORDS = ("--benchmark_methods=m.C.x",)
OPTIONS = {"pod_image": "x", "keep_results": "2h", "largest_file": "3g"}  # plans have none


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with running_cluster() as found:
        monkeypatch.setenv("KUBECONFIG", str(found.kubeconfig(tmp_path)))
        yield found


class Pods:
    """A submission, and its pods: all of them are one folder here."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.plan = a_plan(folder / "work space", WORDS, WORDS)
        code = self.plan.folder / "code" / "0"
        code.mkdir(parents=True)
        (code / "cases.py").write_text("code")
        engine().submit(self.plan, range(2), OPTIONS)
        ((self.job, made),) = cluster.jobs.items()
        assert made["metadata"]["annotations"]["perfrun/shards"] == "0-1"
        mounted = folder / "mounted"
        mounted.mkdir()
        for secret in cluster.secrets.values():
            for name, data in secret["data"].items():
                (mounted / f".{name}").write_bytes(base64.b64decode(data))
                (mounted / name).symlink_to(mounted / f".{name}")
        there = folder / "pods" / "submissions" / self.plan.submission
        unpack_plan(there, mounted)
        self.there = read_plan(there)
        cluster.command_in = self._words

    def _words(self, _: str, words: list[str]) -> list[str]:
        at_home = [str(self.there.folder) if w == folder_in_pod(self.plan) else w for w in words]
        return [sys.executable, "-m", *at_home]

    def ready(self, shard: int) -> str:
        """Give the index of a shard a pod whose result waits."""
        return self.cluster.has(self.job, shuffled(self.plan, range(2)).index(shard), "Ready")


@pytest.fixture
def pods(cluster: Cluster, tmp_path: Path) -> Pods:
    return Pods(cluster, tmp_path)


def test_what_waits_in_a_pod_comes_once_and_its_pod_is_let_go(pods: Pods) -> None:
    assert (pods.there.folder / "code" / "0" / "cases.py").read_text() == "code"
    (secret,) = pods.cluster.secrets.values()
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["name"], owner["uid"]) == (pods.job, "uid-0")
    over_there = finished(pods.there, 1, trial="A")
    large = b"\0\1\2\3" * 500_000
    (over_there.folder / "output" / "trial" / "samples").write_bytes(large)
    name = pods.ready(1)
    engine().gather(pods.plan)
    _, status = statuses(pods.plan)
    assert status.state is ShardState.DONE
    assert status.last is not None
    assert status.last.begun is not None
    assert (status.last.begun.job, status.last.begun.host[:4]) == (name, "node")
    (summary,) = collect(pods.plan, [1], print).new
    assert summary.read_text() == "A"
    assert (summary.parent / "samples").read_bytes() == large
    place = ShardPlace(pods.there, 1)
    assert wait_until_taken(place, 60.0) == 0
    # A pod that still waits, as an acknowledgement was lost, is let go without sending again.
    (place.folder / "taken").unlink()
    engine().gather(pods.plan)
    assert [words[4] for _, words in pods.cluster.commands] == ["--send", "--taken"]
    assert wait_until_taken(place, 60.0) == 0
    assert f"--largest_file={3 * 2**30}" in pods.cluster.commands[0][1]  # of this Job
    # Once no pod is left, nobody is asked any more.
    pods.cluster.pods[0]["status"]["phase"] = "Succeeded"
    mark = ShardPlace(pods.plan, 0)
    mark.make()
    (mark.folder / "released").touch()
    engine().gather(pods.plan)
    pods.cluster.asked.clear()
    engine().gather(pods.plan)
    assert pods.cluster.asked == []
    assert len(statuses(pods.plan)[1].attempts) == 1


def test_a_result_that_was_taken_and_is_to_be_measured_again_is_not_taken_again(
    pods: Pods,
) -> None:
    finished(pods.there, 1, trial="A")
    pods.ready(1)
    engine().gather(pods.plan)
    ShardPlace(pods.plan, 1).withdraw()  # while its pod is about to end
    engine().gather(pods.plan)
    assert [words[4] for _, words in pods.cluster.commands] == ["--send", "--taken"]
    _, status = statuses(pods.plan)
    assert (status.state, len(status.attempts)) == (ShardState.UNKNOWN, 1)


def test_what_has_no_result_is_cancelled_although_the_pod_of_another_has_not_ended(
    pods: Pods,
) -> None:
    finished(pods.there, 1, trial="A")
    pods.ready(1)
    engine().gather(pods.plan)
    engine().cancel(pods.plan, [0])  # as `perfrun fleet --cancel` asks
    assert pods.cluster.jobs == {}
    assert [one.state for one in statuses(pods.plan)] == [ShardState.UNKNOWN, ShardState.DONE]


def test_a_cluster_that_is_gone_does_not_hide_results_that_are_here(
    pods: Pods, capsys: pytest.CaptureFixture[str]
) -> None:
    for shard in range(2):
        finished(pods.plan, shard, trial="A")
    pods.cluster.refusal = (500, b"{}")
    engine().gather(pods.plan)
    assert "all results are here" in capsys.readouterr().err
    ShardPlace(pods.plan, 0).withdraw()
    with pytest.raises(WorkspaceError, match="cannot be asked"):
        engine().gather(pods.plan)


@pytest.mark.parametrize("most", [0, 700, 10_000, 12_000])
def test_a_result_that_is_cut_short_stays_in_its_pod_until_it_comes_whole(
    pods: Pods, most: int, capsys: pytest.CaptureFixture[str]
) -> None:
    over_there = finished(pods.there, 0, trial="A")
    (over_there.folder / "output" / "trial" / "samples").write_bytes(b"x" * 9_000)
    name = pods.ready(0)
    pods.cluster.most_output = most
    engine().gather(pods.plan)
    assert f"pod {name} keeps its result" in capsys.readouterr().err
    assert statuses(pods.plan)[0].attempts == ()
    assert not (ShardPlace(pods.there, 0).folder / "taken").exists()
    pods.cluster.most_output = None
    engine().gather(pods.plan)
    assert statuses(pods.plan)[0].state is ShardState.DONE


@pytest.mark.parametrize(
    "script",
    ["exit 3", "echo nonsense", "yes | head -c 3000000", "echo $'\\033[2J' >&2; exit 1", "kill $$"],
)
def test_a_pod_that_sends_something_else_is_said_in_one_line(
    pods: Pods, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pods.ready(0)
    pods.cluster.command_in = lambda *_: ["bash", "-c", script]
    engine().gather(pods.plan)
    (said,) = capsys.readouterr().err.splitlines()
    assert "keeps its result" in said
    assert said.isprintable()
    assert statuses(pods.plan)[0].attempts == ()


def test_a_failed_pod_says_why_once(pods: Pods) -> None:
    log = "perfrun: begins\nperfrun: shard 0: no route to github.example\n"
    image = {"image": "x", "imageID": "x", "ready": False, "restartCount": 0}
    state = {"terminated": {"exitCode": 69, "message": log}}
    end = {"name": "shard", "state": state, **image}
    pods.cluster.has(pods.job, 0, "Failed", containerStatuses=[end])
    gone = {"type": "DisruptionTarget", "status": "True"}
    pods.cluster.has(pods.job, 0, "Failed", conditions=[gone], reason="Evicted", message="disk")
    for _ in range(2):
        engine().gather(pods.plan)
    (shard,) = (one for one in statuses(pods.plan) if one.attempts)
    first, second = (one.ended for one in shard.attempts)
    assert first is not None
    assert second is not None
    assert (first.how, first.reason) == (How.MACHINE, "shard 0: no route to github.example")
    assert (second.how, second.reason) == (How.INTERRUPTED, "Evicted: disk")


def test_a_job_that_is_refused_leaves_no_secret(cluster: Cluster, tmp_path: Path) -> None:
    plan = a_plan(tmp_path / "ws", WORDS)
    cluster.refusal, cluster.refused = (403, b'{"message": "no quota"}'), "/jobs"
    with pytest.raises(WorkspaceError, match="no quota"):
        engine().submit(plan, [0], OPTIONS)
    assert cluster.secrets == {}
    assert [one for one in cluster.asked if "secrets" in one] == [
        "POST /api/v1/namespaces/bench/secrets",
        f"DELETE /api/v1/namespaces/bench/secrets/{cluster.asked[-1].rpartition('/')[2]}",
    ]


def test_a_secret_that_is_refused_leaves_none_of_those_before_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    plan = a_plan(tmp_path / "ws", WORDS)
    (plan.folder / "code").mkdir()
    (plan.folder / "code" / "data").write_bytes(os.urandom(1_000_000))  # of two Secrets
    cluster.most_secrets = 1
    with pytest.raises(WorkspaceError, match="plan-1: was not accepted: no room"):
        engine().submit(plan, [0], OPTIONS)
    assert cluster.secrets == {}
    assert cluster.jobs == {}


def test_manifests_have_the_secrets_of_their_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = a_plan(tmp_path / "ws", WORDS)
    (plan.folder / "code").mkdir()
    # Random bytes cannot be compressed: they take two Secrets.
    (plan.folder / "code" / "data").write_bytes(os.urandom(1_000_000))
    engine().submit(plan, [0], {**OPTIONS, "manifests": str(tmp_path / "made")})
    made = [json.loads(path.read_text()) for path in sorted((tmp_path / "made").iterdir())]
    kinds = sorted(one["kind"] for one in made)
    assert kinds == ["Job", "Secret", "Secret"]
    job = next(one for one in made if one["kind"] == "Job")
    volumes = job["spec"]["template"]["spec"]["volumes"]
    sources = next(one for one in volumes if one["name"] == "plan")["projected"]["sources"]
    assert {one["secret"]["name"] for one in sources} == {
        one["metadata"]["name"] for one in made if one["kind"] == "Secret"
    }
    assert all(len(json.dumps(one)) < 2**20 for one in made)
    modes = {p.stat().st_mode & 0o77 for p in (tmp_path / "made").iterdir() if "plan" in p.name}
    assert modes == {0}  # addresses of repositories can have passwords
    monkeypatch.setattr("perfrun.fleet.transfer._MOST_PARTS", 2)
    (plan.folder / "code" / "more").write_bytes(os.urandom(500_000))
    with pytest.raises(UsageError, match="share the workspace with --claim"):
        engine().submit(plan, [0], {**OPTIONS, "manifests": str(tmp_path / "made")})


def test_nobody_takes_a_result_and_the_pod_ends(tmp_path: Path) -> None:
    place = ShardPlace(a_plan(tmp_path, WORDS), 0)
    place.make()
    assert wait_until_taken(place, 0.1, port=0) == NOT_TAKEN
    mark_taken(place)
    assert wait_until_taken(place, 0.1, port=0) == 0


def test_a_sender_waits_until_all_has_come(pods: Pods) -> None:
    finished(pods.there, 0, trial="A")
    words = ["shard", str(pods.there.folder), "0", "--send", "--acknowledged"]
    for said, code in ((b"", 69), (b"something else", 69), (ACKNOWLEDGED, 0)):
        done = subprocess.run(
            [sys.executable, "-m", "perfrun", *words],
            input=said,
            capture_output=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert (ShardPlace(pods.there, 0).folder / "taken").exists() is (code == 0)
