"""Jobs are applied with the official client, asked for together, and what is said is data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfrun.errors import PerfrunError, UsageError, WorkspaceError
from perfrun.fleet import kubernetes
from perfrun.fleet.dispatch import shuffled
from perfrun.fleet.index_ranges import index_ranges
from perfrun.fleet.kubernetes import engine
from perfrun.shards.plan import Plan, ShardState
from tests.kubernetes_api import Cluster, running_cluster
from tests.unit.fleet.kubernetes_plans import a_plan

WORDS = ("--benchmark_methods=m.C.x",)
OPTIONS = {"claim": "results", "pod_image": "x"}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with running_cluster() as found:
        path = found.kubeconfig(tmp_path)
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield found


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return a_plan(tmp_path / "work space", *([WORDS] * 5))


def states(plan: Plan) -> dict[int, ShardState]:
    return dict(engine().states(plan, range(len(plan.shards))))


def refusal(plan: Plan) -> str:
    """The line that the user reads; empty when there is none, and then nothing is known."""
    try:
        found = states(plan)
    except PerfrunError as error:
        return error.line
    assert found == {}
    return ""


def test_a_submission_is_one_job_and_two_questions_tell_of_all_shards(
    cluster: Cluster, plan: Plan
) -> None:
    engine().submit(plan, range(5), OPTIONS)
    ((name, job),) = cluster.jobs.items()
    order = shuffled(plan, range(5))  # of the indices of the Job
    assert job["spec"]["completions"] == 5
    cluster.has(name, 0, "Succeeded")
    cluster.has(name, 1, "Failed")
    cluster.has(name, 1, "Running")  # the next attempt
    cluster.has(name, 2, "Pending")
    cluster.has(name, 4, "Failed")
    job["status"] = {"completedIndexes": "0", "failedIndexes": "4"}
    cluster.asked.clear()
    assert states(plan) == {
        order[1]: ShardState.RUNNING,
        order[2]: ShardState.WAITING,
        order[3]: ShardState.WAITING,  # no node is free
        order[4]: ShardState.MACHINE,
    }
    kinds = [asked.rpartition("/")[2] for asked in cluster.asked]
    assert kinds == ["jobs", "pods", "pods", "pods"]  # of pods there are three pages


def test_what_is_submitted_again_is_another_job_which_counts(cluster: Cluster, plan: Plan) -> None:
    engine().submit(plan, range(5), OPTIONS)
    (first,) = cluster.jobs
    done = [{"type": "Failed", "status": "True"}]
    cluster.jobs[first]["status"] = {"completedIndexes": "0-2", "conditions": done}
    left = shuffled(plan, range(5))[3:]
    assert states(plan) == dict.fromkeys(left, ShardState.CANCELLED)
    engine().submit(plan, left, OPTIONS)
    assert states(plan) == dict.fromkeys(left, ShardState.WAITING)
    second = next(name for name in cluster.jobs if name != first)
    words = cluster.jobs[second]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert f"--among={index_ranges(sorted(left))}" in words
    with pytest.raises(UsageError, match="a whole Job"):
        engine().cancel(plan, left[:1])
    engine().cancel(plan, range(5))
    assert list(cluster.jobs) == [first]  # which has nothing left to cancel


def test_every_cluster_that_has_jobs_is_asked(cluster: Cluster, plan: Plan, tmp_path: Path) -> None:
    with running_cluster() as there:
        cluster.kubeconfig(tmp_path, there=there)
        engine().submit(plan, range(4), OPTIONS)
        engine().submit(plan, [3, 4], {**OPTIONS, "kube_context": "there"})
        (second,) = there.jobs
        for index in (0, 1):
            there.has(second, index, "Running")
        waits, runs = ShardState.WAITING, ShardState.RUNNING
        assert states(plan) == {0: waits, 1: waits, 2: waits, 3: runs, 4: runs}
        engine().cancel(plan, range(5))
        assert cluster.jobs == there.jobs == {}


def test_a_job_that_could_not_be_made_is_not_waited_for(cluster: Cluster, plan: Plan) -> None:
    cluster.refusal = (403, json.dumps({"message": "no\x1b[2J quota\nleft"}).encode())
    with pytest.raises(PerfrunError, match="was not accepted: no") as error:
        engine().submit(plan, range(5), OPTIONS)
    assert error.value.line.isprintable()
    cluster.refusal = None
    assert states(plan) == {}
    engine().submit(plan, range(5), OPTIONS)
    assert set(states(plan).values()) == {ShardState.WAITING}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"not JSON",
        b'{"items": 3}',
        b'{"items": [3]}',
        b'{"items": [{"metadata": {"name": 5}}]}',
        b'{"items": [], "metadata": {"continue": {"a": 1}}}',
        b'{"items": [{"status": {"failedIndexes": 5}}]}',
        b"[" * 100_000,
    ],
    ids=lambda answer: answer[:40].decode(),
)
def test_a_strange_answer_is_said_in_one_line(cluster: Cluster, plan: Plan, answer: bytes) -> None:
    engine().submit(plan, range(5), OPTIONS)
    cluster.refusal = (200, answer)
    if said := refusal(plan):
        assert said.isprintable()
        assert len(said) < 500


@pytest.mark.parametrize("text", ["0-999999999", "1-2-3", "-1", "x" * 10_000, "9" * 400, "7"])
def test_indices_that_no_job_has_are_left_out(cluster: Cluster, plan: Plan, text: str) -> None:
    engine().submit(plan, range(5), OPTIONS)
    (job,) = cluster.jobs.values()
    job["status"] = {"failedIndexes": text}
    found = set(states(plan))
    assert found == set(range(5))


def test_without_a_cluster_the_user_hears_so(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(UsageError, match="no configuration of a cluster"):
        engine().submit(plan, range(5), OPTIONS)
    gone = Cluster()
    gone.port = 1
    monkeypatch.setenv("KUBECONFIG", str(gone.kubeconfig(tmp_path)))
    with pytest.raises(PerfrunError, match="was not accepted") as error:
        engine().submit(plan, range(5), OPTIONS)
    assert "s3cret" not in error.value.line


def test_manifests_are_written_without_a_cluster(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    folder = tmp_path / "a folder" / "that is new"
    engine().submit(plan, [1, 2], {**OPTIONS, "manifests": str(folder)})
    (path,) = folder.iterdir()
    job = json.loads(path.read_text())
    assert path.name == f"{job['metadata']['name']}.json"
    assert job["spec"]["completions"] == 2
    assert states(plan) == {}
    shown = engine().preview(plan, [1, 2], OPTIONS)
    assert shown["items"][0]["spec"] == job["spec"]


def test_a_record_that_is_not_perfruns_is_refused(plan: Plan) -> None:
    folder = plan.folder / "engine"
    folder.mkdir()
    (folder / kubernetes.JOBS).write_text('[{"name": 1}]')
    with pytest.raises(WorkspaceError, match=re.escape(kubernetes.JOBS)):
        states(plan)
    (folder / kubernetes.JOBS).unlink()
    (folder / kubernetes.JOBS).symlink_to("/etc/hostname")
    with pytest.raises(WorkspaceError):
        states(plan)
