"""`--allocator` where the environment under test lacks what it needs, by the worker's answer."""

from __future__ import annotations

from typing import Any

import pytest

from perfrun.errors import UsageError
from perfrun.options.command_line import parse
from perfrun.run.allocator import RETAIN, _check_effect, _variables

METHOD = "--benchmark_methods=pkg.mod.Class.method"


def answer(**changed: Any) -> dict[str, Any]:
    """The answer of a worker on Debian with jemalloc installed, with changes."""
    in_use = {"name": "glibc", "library": None, "libc": "glibc 2.36", "settings": {}}
    return {
        "in_use": {**in_use, **changed.pop("in_use", {})},
        "found": "/usr/lib/libjemalloc.so.2",
        "preload": "",
        "probe_faults": 0,
        "page_bytes": 4096,
        "probe_bytes": 80 * 2**20,
        **changed,
    }


def variables(found: dict[str, Any], *flags: str) -> dict[str, str]:
    return _variables(found, parse([METHOD, *flags]), "--python=p")


def test_retain_sets_what_the_user_has_not_set() -> None:
    assert variables(answer(), "--allocator=retain") == RETAIN
    own = variables(answer(), "--allocator=retain", "--env=MALLOC_ARENA_MAX=2")
    assert own == {name: RETAIN[name] for name in RETAIN if name != "MALLOC_ARENA_MAX"}


def test_a_library_goes_before_those_that_are_loaded_already_and_is_not_loaded_twice() -> None:
    flag = "--allocator=jemalloc"
    assert variables(answer(), flag) == {"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}
    both = variables(answer(preload="libmine.so libtoo.so"), flag)
    assert both == {"LD_PRELOAD": "/usr/lib/libjemalloc.so.2:libmine.so libtoo.so"}
    there = answer(in_use={"name": "jemalloc"}, preload="libjemalloc.so.2")
    assert variables(there, flag) == {}


@pytest.mark.parametrize(
    ("changed", "flag", "says"),
    [
        ({"found": None}, "jemalloc", "install the package libjemalloc2"),
        ({"found": None}, "tcmalloc", "install the package libtcmalloc-minimal4"),
        ({"found": "/a b/libjemalloc.so.2"}, "jemalloc", "cannot be loaded"),
        ({"in_use": {"name": "musl", "libc": "musl"}}, "retain", "has musl, and only glibc's"),
        ({"in_use": {"name": None, "libc": None}}, "retain", "another C library"),
        ({"in_use": {"name": "tcmalloc", "library": "/l/t.so"}}, "retain", "/l/t.so (LD_PRELOAD)"),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_line(
    changed: dict[str, Any], flag: str, says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        variables(answer(**changed), f"--allocator={flag}")
    assert says in caught.value.line
    assert caught.value.line.startswith(f"--allocator={flag}: ")


@pytest.mark.parametrize(
    "changed",
    [{"probe_faults": 20480}, {"probe_faults": None}, {"probe_faults": "0"}, {"page_bytes": 0}],
)
def test_an_effect_that_is_not_proved_is_none(changed: dict[str, Any]) -> None:
    _check_effect(answer(), "retain", "--python=p")
    if changed == {"page_bytes": 0}:
        changed["probe_faults"] = 1
    with pytest.raises(UsageError, match="has no effect"):
        _check_effect(answer(**changed), "retain", "--python=p")


def test_an_unknown_allocator_is_refused() -> None:
    with pytest.raises(UsageError, match="--allocator=hoard: must be one of default, retain"):
        parse([METHOD, "--allocator=hoard"])
