"""The manifests are valid for Kubernetes, and say what the exit statuses mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import kubernetes_validate
import pytest
from kubernetes_validate.utils import all_versions

from perfrun.errors import UsageError
from perfrun.fleet.index_ranges import index_ranges, parse_index_ranges
from perfrun.fleet.keeping import READY_PORT
from perfrun.fleet.kubernetes_flags import parse_settings
from perfrun.fleet.kubernetes_job import PodSettings, manifests, plan_secrets
from perfrun.fleet.shard_command import shard_command, words_in_image
from tests.submissions import finished
from tests.submissions import plan as plan_of_methods
from tests.unit.fleet.kubernetes_plans import EVERYTHING, a_plan

WORDS = ("--benchmark_methods=m.C.x",)
LAST_THREE = list(dict.fromkeys(all_versions()))[-3:]


@pytest.mark.parametrize("version", LAST_THREE)
@pytest.mark.parametrize(
    "settings",
    [
        EVERYTHING,
        PodSettings(claim="c", image="x"),
        replace(EVERYTHING, claim="", claim_path=""),
        PodSettings(image="x"),
    ],
    ids=["everything", "nothing", "everything, kept", "nothing, kept"],
)
def test_a_job_is_valid_for_the_last_three_versions(
    tmp_path: Path, settings: PodSettings, version: str
) -> None:
    plan = a_plan(tmp_path, WORDS, WORDS, WORDS, suite="A suite.with_odd-Letters" * 5)
    ((job, indices),) = manifests(plan, [0, 2], settings, 12)
    assert sorted(indices) == [0, 2]
    kubernetes_validate.validate(job, version, strict=True)
    for secret in plan_secrets(job, [b"plan", b"code"]):
        kubernetes_validate.validate(secret, version, strict=True)
        assert len(secret["metadata"]["name"]) <= 63
    # A pod is named after its Job, its index and five letters; a label takes 63.
    assert len(job["metadata"]["name"]) + len("-99999-abcde") <= 63
    assert all(len(value) <= 63 for value in job["metadata"]["labels"].values())


def test_a_key_that_kubernetes_does_not_know_would_be_found(tmp_path: Path) -> None:
    ((job, _),) = manifests(a_plan(tmp_path, WORDS), [0], EVERYTHING, 0)
    job["spec"]["backofLimitPerIndex"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, LAST_THREE[-1], strict=True)


def test_flags_reach_the_pod(tmp_path: Path) -> None:
    ((job, _),) = manifests(a_plan(tmp_path, WORDS, WORDS), [1], EVERYTHING, 0)
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimitPerIndex"]) == (1, 1, 2)
    assert (spec["activeDeadlineSeconds"], pod["activeDeadlineSeconds"]) == (7200, 3600)
    assert container["resources"]["limits"] == container["resources"]["requests"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert pod["nodeSelector"] == {"gpu.example/model": "a"}
    assert pod["tolerations"][0]["effect"] == "NoSchedule"
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert container["volumeMounts"][0]["subPath"] == "team/nightly"
    assert pod["securityContext"]["runAsUser"] == 1000
    assert "add" not in container["securityContext"]["capabilities"]
    # Two benchmarks never share a node, whoever submitted them.
    (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()
    assert container["command"][-1] == "$(JOB_COMPLETION_INDEX)"
    assert "--among=1" in container["command"]


def test_without_a_claim_a_pod_keeps_its_result_longer_than_the_attempt_may_take(
    tmp_path: Path,
) -> None:
    settings = replace(EVERYTHING, claim="", claim_path="", keep_s=600)
    ((job, _),) = manifests(a_plan(tmp_path, WORDS), [0], settings, 0, 2)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"name": "results", "emptyDir": {}} in pod["volumes"]
    assert {"--keep=600s", "--walltime=3600s", "--unpack=/submission"} <= {*container["command"]}
    assert pod["activeDeadlineSeconds"] == 3600 + 600 + 60
    # Nothing is started in a pod that measures, and the list of pods says whose result waits.
    assert container["readinessProbe"]["tcpSocket"] == {"port": READY_PORT}
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    names = [one["metadata"]["name"] for one in plan_secrets(job, [b"", b""])]
    sources = pod["volumes"][-1]["projected"]["sources"]
    assert [one["secret"]["name"] for one in sources] == names


def test_a_disruption_counts_for_nothing_and_a_failed_benchmark_is_not_tried_again(
    tmp_path: Path,
) -> None:
    ((job, _),) = manifests(a_plan(tmp_path, WORDS), [0], EVERYTHING, 0)
    first, second = job["spec"]["podFailurePolicy"]["rules"]
    assert first["action"] == "Ignore"
    assert first["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert second["action"] == "FailIndex"
    assert second["onExitCodes"]["values"] == [1, 2, 74]  # not 69, a failed machine


def test_each_image_of_the_suite_has_a_job_of_its_own(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, ("--image=a", *WORDS), WORDS, ("--image=a", *WORDS))
    made = manifests(plan, range(3), PodSettings(claim="c", image="other"), 4)
    images = [job["spec"]["template"]["spec"]["containers"][0]["image"] for job, _ in made]
    assert images == ["a", "other"]
    assert [sorted(indices) for _, indices in made] == [[0, 2], [1]]
    assert len({job["metadata"]["name"] for job, _ in made}) == 2
    with pytest.raises(UsageError, match="--pod_image"):
        manifests(plan, [1], PodSettings(claim="c"), 0)


def test_an_index_runs_the_shard_that_is_recorded_and_each_round_has_an_order_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan_of_methods(tmp_path, 6, 2)
    chosen = [index for index in range(12) if index != 4]
    ((job, indices),) = manifests(made, chosen, PodSettings(claim="c", image="x"), 0)
    assert sorted(indices[:5]) == [0, 1, 2, 3, 5]
    assert sorted(indices[5:]) == list(range(6, 12))
    assert list(indices) != chosen
    assert [index % 6 for index in indices[:5]] != [
        index % 6 for index in indices[5:] if index != 10
    ]
    (command,) = (one["command"] for one in job["spec"]["template"]["spec"]["containers"])
    among = next(word for word in command if word.startswith("--among="))
    for index in chosen:
        finished(made, index)
    for number, index in enumerate(indices):
        assert shard_command([among, str(made.folder), str(number)]) == 0
        assert f"shard {index} has its result already" in "".join(capsys.readouterr())
    for among, number in (("--among=0-1", "2"), ("--among=3,12", "0")):
        with pytest.raises(UsageError, match="--among"):
            shard_command([among, str(made.folder), number])


def test_in_its_image_a_shard_has_no_flag_of_a_container() -> None:
    words = ("--image=a", "--image_python=/x/python", "--gpus=1", *WORDS, "--", "--gpus=8")
    assert words_in_image(words) == ("--python=/x/python", *WORDS, "--", "--gpus=8")
    assert words_in_image(("--python=/y", *WORDS)) == ("--python=/y", *WORDS)


@pytest.mark.parametrize("indices", [(0,), (0, 1, 2, 5, 7, 8), (3, 99_999)])
def test_ranges_read_back(indices: tuple[int, ...]) -> None:
    assert parse_index_ranges(index_ranges(indices), "--among") == indices


@pytest.mark.parametrize("text", ["", "2,1", "1-0", "1,,2", "1-1000000", "x", "0-99999,100000-1"])
def test_other_ranges_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--among"):
        parse_index_ranges(text, "--among")


@pytest.mark.parametrize(
    "options",
    [
        {"claim": ":x"},
        {"keep_results": "soon"},
        {"largest_file": "much"},
        {"claim": "c", "keep_results": "1d"},
        {"claim": "c", "largest_results": "1g"},
        {"claim": "Results"},
        {"claim": "c:/etc"},
        {"claim": "c:a/../.."},
        {"claim": "c", "pod_gpus": "many"},
        {"claim": "c", "pod_image": "a b"},
        {"claim": "c", "node_selector": "a"},
        {"claim": "c", "tolerations": "a:Sometimes"},
        {"claim": "c", "share_nodes": "maybe"},
        {"claim": "c", "pod_user": "0:0"},
        {"claim": "c", "pod_user": "somebody"},
        {"claim": "c", "namespace": "a b"},
        {"claim": "c", "walltime": "soon"},
    ],
    ids=repr,
)
def test_a_wrong_flag_is_named(options: dict[str, str]) -> None:
    flag = list(options)[-1]
    with pytest.raises(UsageError, match=f"^--{flag}") as error:
        parse_settings(options)
    assert "\n" not in error.value.line


def test_flags_are_read() -> None:
    found = parse_settings(
        {
            "claim": "c:team/x",
            "pod_gpus": "2:amd.com/gpu",
            "pod_memory": "8g",
            "tolerations": "a,b=c:NoExecute",
            "pod_retries": "0",
            "pod_user": "12:13",
            "walltime": "1h",
        }
    )
    assert (found.claim, found.claim_path) == ("c", "team/x")
    assert (found.gpus, found.gpu_resource, found.memory_bytes) == (2, "amd.com/gpu", 2**33)
    assert [(one.key, one.value, one.effect) for one in found.tolerations] == [
        ("a", "", ""),
        ("b", "c", "NoExecute"),
    ]
    assert (found.retries, found.user, found.walltime_s) == (0, (12, 13), 3600)
