"""The fingerprint of a node: what is equal has an equal one, from a summary or from the index."""

from __future__ import annotations

from typing import Any

import pytest

from perfrun.summary.fingerprint import fingerprint
from perfrun.summary.record import record_of
from perfrun.summary.trial_environment import context, document_of
from tests.summaries import summary

GPUS = {
    "accelerator_model": "H100",
    "accelerator_count": 8,
    "accelerator_driver_version": "570.1",
}


def of(**facts: Any) -> Any:
    return fingerprint(summary(**facts))


def test_the_name_of_the_host_and_a_few_megabytes_do_not_tell_nodes_apart() -> None:
    one = of(system={"hostname": "a"}, machine={"memory_bytes": 25276510208})
    other = of(system={"hostname": "b"}, machine={"memory_bytes": 25270000000, "user": "ann"})
    assert one == other
    assert one.digest == f"{one.hardware_digest}-{one.software_digest}"


@pytest.mark.parametrize(
    ("facts", "is_hardware"),
    [
        ({"system": {"cpu_model": "Intel Xeon"}}, True),
        ({"system": {"cpu_socket_count": 2}}, True),
        ({"system": {"accelerator_model": "H100", "accelerator_count": 8}}, True),
        ({"machine": {"numa_node_count": 4}}, True),
        ({"machine": {"memory_bytes": 2**36}}, True),
        ({"machine": {"kernel": "6.19"}}, False),
        ({"machine": {"microcode": "0x2b"}}, False),
        ({"machine": {"frequency_governor": "powersave"}}, False),
        ({"system": {"accelerator_driver_version": "580"}}, False),
    ],
)
def test_what_changes_figures_changes_the_fingerprint(
    facts: dict[str, Any], is_hardware: bool
) -> None:
    plain, other = of(), of(**facts)
    assert (plain.hardware_digest != other.hardware_digest) is is_hardware
    assert (plain.software_digest != other.software_digest) is not is_hardware


def test_devices_have_their_memory_and_images_their_id() -> None:
    devices = {"memory_bytes": [85520809984, 85520809984]}
    document = summary(system=GPUS, machine={"accelerators": devices})
    document["perfrun"]["container"] = {"image": "torch:2", "image_id": "sha256:ab"}
    document["ml_framework_info"] = {"name": "torch", "version": "2.7"}
    found = fingerprint(document)
    assert dict(found.hardware)["accelerators"] == "8 x H100, 81559 MiB"
    software = dict(found.software)
    assert (software["framework"], software["image"]) == ("torch 2.7", "sha256:ab")
    # The index keeps all of it, so that no summary has to be opened.
    record = record_of(document, __file__)  # type: ignore[arg-type]
    assert fingerprint(document_of(context(document), record.commits)) == found


def test_a_summary_of_strange_facts_has_a_fingerprint() -> None:
    odd = {"cpu_model": ["x"], "physical_cpu_count": float("nan"), "accelerator_model": {}}
    found = of(system=odd, machine={"memory_bytes": "lots", "accelerators": [1], "kernel": "\0"})
    assert dict(found.hardware)["processor"] == "['x']"
    assert dict(found.software)["kernel"] == "\ufffd"
    assert fingerprint({}).digest
