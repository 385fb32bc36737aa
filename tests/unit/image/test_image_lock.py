"""Locks: what an image holds, and whether another holds the same."""

from __future__ import annotations

from perfrun.image.lock import Lock, differences

WANTED = {
    "framework": {"torch": "2.13.0+cpu", "numpy": "2.4.6", "pip": "23.0"},
    "perfrun": {"rich": "15.0.0", "perfrun": "0.1.0"},
}


def test_an_image_as_locked_differs_in_nothing() -> None:
    found = {
        "framework": {**WANTED["framework"], "pip": "25.1"},
        "perfrun": {**WANTED["perfrun"], "perfrun": "0.2.0"},
    }

    assert differences(WANTED, found) == ()


def test_what_differs_from_a_lock_is_said_by_name() -> None:
    found = {"framework": {"torch": "2.13.0+cpu", "numpy": "2.5.0"}, "perfrun": {"new": "1"}}

    assert differences(WANTED, found) == (
        "framework: numpy 2.5.0 instead of 2.4.6",
        "perfrun: new 1 instead of nothing",
        "perfrun: rich missing instead of 15.0.0",
    )


def test_the_framework_of_a_lock_is_pinned_even_if_the_default_moves_on() -> None:
    both = {"torch": "2.13.0+cpu", "tensorflow": "2.21.0", "numpy": "2.4.6"}
    lock = Lock({}, {"framework": both, "perfrun": {}})

    assert lock.framework_spec("torch") == "torch==2.13.0"
    assert lock.framework_spec("tensorflow") == "tensorflow==2.21.0"
    assert lock.framework_spec("both") == "torch==2.13.0; tensorflow==2.21.0"
    third = Lock({}, {"framework": {**both, "jax": "0.10.2"}, "perfrun": {}})
    assert third.framework_spec("jax") == "jax==0.10.2"
    assert third.framework_spec("both") == "torch==2.13.0; tensorflow==2.21.0"
