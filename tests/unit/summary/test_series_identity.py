"""The facts that begin a new series, and those that do not."""

from __future__ import annotations

from typing import Any

import pytest
from trial_documents import perfrun_summary, perfzero_summary

from perfrun.summary.series_identity import (
    environment,
    hardware,
    memory_class_gib,
    repository,
    subject,
)

GIB = 2**30


def changed(path: str, value: Any) -> dict[str, Any]:
    """A summary in which one value, named by dots, is another."""
    document = perfrun_summary()
    part: Any = document
    *parents, last = path.split(".")
    for name in parents:
        part = part[name]
    part[last] = value
    return document


def key(document: dict[str, Any]) -> Any:
    return subject(document, document["benchmark_result"]["name"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("benchmark_result.name", "pkg.mod.Cases.other"),
        ("system_info.cpu_model", "Another Processor"),
        ("system_info.logical_cpu_count", 16),
        ("system_info.physical_cpu_count", 8),
        ("system_info.accelerator_model", "A GPU"),
        ("system_info.accelerator_driver_version", "550.1"),
        ("system_info.platform_name", "rack 7"),
        ("perfrun.machine.memory_bytes", 33_000_000_000),
        ("perfrun.machine.usable_cpu_count", 2),
        ("perfrun.machine.cgroup_cpu_limit", 1.5),
        ("perfrun.machine.cgroup_memory_limit_bytes", 4 * GIB),
        ("perfrun.module_sha256", "6" * 64),
        ("perfrun.benchmark_flags", ["--batch_size=8"]),
        ("perfrun.allocator", {"asked": "retain", "name": "glibc"}),
        ("perfrun.allocator", {"asked": "default", "name": "jemalloc"}),
        ("benchmark_info.flags.perfzero_constructor_args", '{"batch": 8}'),
        ("perfrun.environment.python.version", "3.12.1"),
        ("perfrun.environment.python.prefix", "/usr"),
        ("perfrun.environment.python.build", "3.11.7 | packaged by conda-forge | (main)"),
        ("setup_info", {"framework": "torch"}),
        ("ml_framework_info.name", "torch"),
        ("perfrun.container", {"image": "perfrun/torch", "limits": {}}),
    ],
)
def test_what_makes_figures_incomparable_begins_a_new_series(path: str, value: Any) -> None:
    assert key(changed(path, value)) != key(perfrun_summary())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("system_info.hostname", "another"),
        ("ml_framework_info.version", "2.22.0"),
        ("perfrun.allocator", {"asked": "default", "name": "glibc"}),
        ("perfrun.environment.python.version", "3.11.8"),
        ("perfrun.environment.distributions", {"tensorflow": "2.22.0"}),
        ("perfrun.git", [{"directory": "models", "git_hash": "f" * 40}]),
        ("perfrun.machine.memory_bytes", 16_300_000_000),  # a kernel that keeps more for itself
        ("execution_id", "x"),
        ("perfrun.run_id", "x"),
    ],
)
def test_what_a_change_is_explained_by_does_not_begin_a_new_series(path: str, value: Any) -> None:
    assert key(changed(path, value)) == key(perfrun_summary())


def test_the_same_image_at_another_tag_goes_on_with_the_series() -> None:
    names = (
        "reg:5000/team/torch:2.12",
        "reg:5000/team/torch:2.13@sha256:ab",
        "reg:5000/team/torch",
    )
    assert {repository({"image": name}) for name in names} == {"reg:5000/team/torch"}


def test_an_image_named_by_its_id_is_known_by_what_it_was_pulled_as() -> None:
    by_id = {"image": "sha256:" + "a" * 64, "repo_digests": ["h/torch@sha256:bb"]}
    assert repository(by_id) == "h/torch"
    assert repository({"image": "a" * 12, "repo_digests": []}) == "by id"
    assert repository({"image": "cafe"}) == "cafe"  # too short for an id


def test_limits_of_a_container_are_part_of_the_hardware() -> None:
    limits = {"cpuset": "0", "memory_bytes": 4 * GIB, "gpus": None}
    text = hardware(changed("perfrun.container", {"image": "x", "limits": limits}))
    assert text == "A Processor, 4 cores, 8 threads, 16 GiB, cpuset 0, 4 GiB a container"


@pytest.mark.parametrize(
    ("gib", "size"),
    [
        (15.37, 16),
        (15.6, 16),
        (16, 16),
        (3.8, 4),
        (62.5, 64),
        (125.5, 128),
        (0.48, 0.5),
        (23.4, 24),
    ],
)
def test_memory_is_classed_by_the_size_it_is_sold_as(gib: float, size: float) -> None:
    assert memory_class_gib(int(gib * GIB)) == size


@pytest.mark.parametrize("size", [None, 0, -1, "16", True, 2**70])
def test_memory_of_unknown_size_has_no_class(size: Any) -> None:
    assert memory_class_gib(size) is None


def test_perfzero_and_perfrun_are_never_in_one_series() -> None:
    assert environment(perfzero_summary()) == "perfzero tensorflow"
    assert environment(perfrun_summary()) == "environment python3.11 tensorflow"


def test_the_order_of_constructor_arguments_does_not_matter_and_secrets_do_not_stay() -> None:
    path = "benchmark_info.flags.perfzero_constructor_args"
    one, two = changed(path, '{"a": 1, "b": 2}'), changed(path, '{"b": 2, "a": 1}')
    assert key(one) == key(two)
    secret = changed("perfrun.benchmark_flags", ["--data=https://u:word@h/d"])
    assert "word" not in key(secret).settings


@pytest.mark.parametrize("wrong", [None, [], "text", 7])
@pytest.mark.parametrize("name", ["perfrun", "system_info", "ml_framework_info", "benchmark_info"])
def test_sections_of_the_wrong_kind_are_taken_for_absent(name: str, wrong: Any) -> None:
    document = {**perfrun_summary(), name: wrong}
    assert subject(document, "m").method == "m"


def test_a_version_of_the_author_stands_for_the_hash_of_the_module() -> None:
    hashed, versioned = key(perfrun_summary()), key(changed("perfrun.benchmark_version", "2"))
    assert (hashed.source, versioned.source) == ("5" * 64, "version 2")
    edited = changed("perfrun.module_sha256", "6" * 64)
    edited["perfrun"]["benchmark_version"] = "2"
    assert key(edited) == versioned
    # What a trial or a stranger wrote is no version unless it is a short text.
    for odd in ("", "2" * 101, 2, 2.0, True, None, ["2"], {"2": 2}):
        assert key(changed("perfrun.benchmark_version", odd)) == hashed
    assert key(changed("perfrun.benchmark_version", "a\0\ud800")).source == "version a\ufffd?"
