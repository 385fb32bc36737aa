"""`--image` and its companions, from texts to values."""

from __future__ import annotations

import pytest

from perfrun.errors import UsageError
from perfrun.options.containment import Containment, cpus_of, parse_containment, parse_size


def test_without_an_image_there_is_no_container() -> None:
    assert parse_containment({"image": "", "memory": None}) is None


@pytest.mark.parametrize(
    "name",
    ["image_python", "trial_network", "cpuset", "memory", "shm_size", "gpus", "pids_limit"],
)
def test_its_companions_are_refused_without_it(name: str) -> None:
    with pytest.raises(UsageError, match=f"--{name} .* name one with --image"):
        parse_containment({name: "1"})


def test_an_image_alone_has_everything_locked_and_enough_shared_memory() -> None:
    found = parse_containment({"image": "perfrun/torch@sha256:" + "a" * 64})
    assert found == Containment(image="perfrun/torch@sha256:" + "a" * 64)
    assert (found.network, found.gpus, found.memory_bytes) == ("none", None, None)
    assert (found.shm_bytes, found.pids) == (2 * 2**30, 4096)


def test_all_of_it_is_parsed_once() -> None:
    given = {
        "image": "i",
        "image_python": "/opt/x y/bin/python",
        "trial_network": "bridge",
        "cpuset": "0, 2-3",
        "memory": "1.5GiB",
        "shm_size": "64m",
        "gpus": "device=GPU-1, GPU-2",
        "pids_limit": "100",
    }
    assert parse_containment(given) == Containment(
        image="i",
        python="/opt/x y/bin/python",
        network="bridge",
        cpuset="0,2-3",
        memory_bytes=3 * 2**29,
        shm_bytes=2**26,
        gpus="device=GPU-1,GPU-2",
        pids=100,
    )
    assert cpus_of("0,2-3") == {0, 2, 3}


@pytest.mark.parametrize(
    ("flag", "text", "words"),
    [
        ("image", "-x", "not the name of an image"),
        ("image", "two words", "not the name of an image"),
        ("python", "/usr/bin/python3", "use --image_python"),
        ("image_python", "a\nb", "must be one line"),
        ("trial_network", "host", "this host's own network"),
        ("trial_network", "container:x", "not the name of a network"),
        ("cpuset", "3-1", "not a list of processors"),
        ("cpuset", "0,,1", "not a list of processors"),
        ("cpuset", "99999999999", "no machine has so many"),
        ("memory", "much", "not a size"),
        ("memory", "0", "not a size"),
        ("memory", "1m", "no less than 6m"),
        ("shm_size", "-1", "not a size"),
        ("gpus", "0", "must be all"),
        ("gpus", "a b", "must be all"),
        ("pids_limit", "3", "from 16 to 4194304"),
        ("pids_limit", "-1", "from 16 to 4194304"),
        ("pids_limit", "99999999999", "from 16 to 4194304"),
    ],
)
def test_what_cannot_be_right_is_one_line(flag: str, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        parse_containment({"image": "i", flag: text})
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("1k", 1024), ("2M", 2**21), ("4g", 2**32), ("1t", 2**40), ("8 GB", 2**33)],
)
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    assert parse_size("--memory", text) == size
