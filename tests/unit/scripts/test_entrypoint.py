"""scripts/container/entrypoint.py: who a container becomes before it runs perfrun.

The rules are tested here, value in and value out; that they hold in a container, in tests/docker.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "scripts" / "container" / "entrypoint.py"
ROOTFUL_MAP = "         0          0 4294967295\n"
ROOTLESS_MAP = "         0       1000          1\n         1     100000      65536\n"
NARROW_MAP = "         0       1000          1\n"
OVERFLOW_UID = 65534


@pytest.fixture(scope="module")
def entrypoint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("entrypoint", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("workspace", "checkout", "uid_map", "becomes"),
    [
        pytest.param((1000, 100), (1000, 100), ROOTFUL_MAP, (1000, 100), id="the usual user"),
        pytest.param((0, 0), (1000, 100), ROOTFUL_MAP, (1000, 100), id="workspace just made"),
        pytest.param((7, 8), (1000, 100), ROOTFUL_MAP, (7, 8), id="workspace of somebody else"),
        pytest.param((7, 8), None, ROOTFUL_MAP, (7, 8), id="plain docker run"),
        pytest.param((0, 0), (0, 0), ROOTFUL_MAP, (0, 0), id="root's own checkout"),
        pytest.param((0, 0), None, ROOTFUL_MAP, (0, 0), id="nothing mounted"),
        pytest.param(None, None, ROOTFUL_MAP, (0, 0), id="nothing there"),
        pytest.param((65534, 65534), None, ROOTFUL_MAP, (65534, 65534), id="nobody, for real"),
        pytest.param((0, 0), (0, 0), ROOTLESS_MAP, (0, 0), id="rootless: root is the user"),
        pytest.param((65534, 65534), (0, 0), ROOTLESS_MAP, (0, 0), id="rootless: a stranger's"),
        pytest.param((33, 33), (0, 0), ROOTLESS_MAP, (33, 33), id="rootless: a subordinate user's"),
        pytest.param((33, 33), (0, 0), NARROW_MAP, (0, 0), id="rootless: no such user in here"),
    ],
)
def test_a_container_becomes_the_owner_of_the_results(
    entrypoint: ModuleType,
    workspace: tuple[int, int] | None,
    checkout: tuple[int, int] | None,
    uid_map: str,
    becomes: tuple[int, int],
) -> None:
    found = entrypoint.choose_identity(workspace, None, checkout, uid_map, OVERFLOW_UID)

    assert found == becomes


@pytest.mark.parametrize(
    ("workspace", "caller", "checkout", "uid_map", "becomes"),
    [
        pytest.param((0, 0), (1000, 100), (5, 5), ROOTFUL_MAP, (1000, 100), id="shared checkout"),
        pytest.param((7, 8), (1000, 100), (5, 5), ROOTFUL_MAP, (7, 8), id="another's workspace"),
        pytest.param((0, 0), (0, 0), (33, 33), ROOTLESS_MAP, (0, 0), id="rootless: the user"),
        pytest.param((0, 0), None, (5, 5), ROOTFUL_MAP, (5, 5), id="setup.py did not run"),
    ],
)
def test_who_ran_setup_py_goes_before_the_owner_of_the_checkout(
    entrypoint: ModuleType,
    workspace: tuple[int, int],
    caller: tuple[int, int] | None,
    checkout: tuple[int, int],
    uid_map: str,
    becomes: tuple[int, int],
) -> None:
    found = entrypoint.choose_identity(workspace, caller, checkout, uid_map, OVERFLOW_UID)

    assert found == becomes


def test_a_user_of_the_host_is_found_in_either_kind_of_engine(entrypoint: ModuleType) -> None:
    told = {"PERFRUN_HOST_UID": "1000", "PERFRUN_HOST_GID": "1000"}

    assert entrypoint.find_caller(told, ROOTFUL_MAP, ROOTFUL_MAP) == (1000, 1000)
    assert entrypoint.find_caller(told, ROOTLESS_MAP, ROOTLESS_MAP) == (0, 0)
    assert entrypoint.find_caller({"PERFRUN_HOST_UID": "5"}, ROOTLESS_MAP, ROOTLESS_MAP) is None
    assert entrypoint.find_caller({"PERFRUN_HOST_UID": ""}, ROOTFUL_MAP, ROOTFUL_MAP) is None
    assert entrypoint.translate(100001, ROOTLESS_MAP) == 2
    with pytest.raises(entrypoint.RefusalError, match="PERFRUN_HOST_UID"):
        entrypoint.find_caller({"PERFRUN_HOST_UID": "me"}, ROOTFUL_MAP, ROOTFUL_MAP)


@pytest.mark.parametrize(
    ("environment", "identity"),
    [
        ({}, None),
        ({"PERFRUN_UID": "", "PERFRUN_GID": ""}, None),
        ({"PERFRUN_GID": "5"}, None),
        ({"PERFRUN_UID": "77"}, (77, 77)),
        ({"PERFRUN_UID": "77", "PERFRUN_GID": "88"}, (77, 88)),
        ({"PERFRUN_UID": "0"}, (0, 0)),
    ],
)
def test_the_environment_can_name_the_user(
    entrypoint: ModuleType, environment: dict[str, str], identity: tuple[int, int] | None
) -> None:
    assert entrypoint.requested_identity(environment) == identity


@pytest.mark.parametrize("uid", ["alice", "-1", "1.5", "1000:1000", " 7"])
def test_a_user_that_is_no_number_is_refused(entrypoint: ModuleType, uid: str) -> None:
    with pytest.raises(entrypoint.RefusalError, match="must be numbers"):
        entrypoint.requested_identity({"PERFRUN_UID": uid})


def test_this_process_exists_in_its_own_user_namespace(entrypoint: ModuleType) -> None:
    assert entrypoint.is_mapped(os.getuid(), Path("/proc/self/uid_map").read_text("ascii"))


def test_a_home_that_can_be_written_to_is_kept(entrypoint: ModuleType) -> None:
    environment: dict[str, str] = {}

    entrypoint.settle_in(environment)

    assert os.access(environment["HOME"], os.W_OK)
    assert environment["USER"] == environment["LOGNAME"] != ""


@pytest.mark.root
def test_who_stays_root_gives_up_the_capabilities_of_becoming_another() -> None:
    if os.geteuid() != 0:
        pytest.skip("this is about root")
    code = (
        "import os, runpy, sys; "
        "found = runpy.run_path(sys.argv[1]); found['give_up_capabilities'](); "
        "os.execvp('cat', ['cat', '/proc/self/status'])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(SOURCE)], check=True, capture_output=True, text=True
    )

    status = dict(line.split(":\t", 1) for line in done.stdout.splitlines())
    held = {name: int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")}
    given_up = 1 << 0 | 1 << 5 | 1 << 6 | 1 << 7
    assert {name: mask & given_up for name, mask in held.items()} == dict.fromkeys(held, 0)
    own = Path("/proc/self/status").read_text().partition("CapEff:\t")[2]
    assert held["CapEff"] == int(own.split()[0], 16) & ~given_up


def draw(
    entrypoint: ModuleType,
    asked: str = "",
    taken: set[int] | None = None,
    uid_map: str = ROOTFUL_MAP,
) -> int | None:
    found: int | None = entrypoint.choose_trial_user(
        *(asked, (1000, 1001), taken or {0, 1000}, uid_map, uid_map, 7)
    )
    return found


def test_the_user_of_the_trials_is_nobody_else(entrypoint: ModuleType) -> None:
    first = draw(entrypoint)
    assert first in entrypoint.PASSING_USERS
    assert draw(entrypoint, taken={0, 1000, first or 0}) not in (first, None)
    assert draw(entrypoint, uid_map=ROOTLESS_MAP) == first
    few = "         0       1000          1\n         1     100000       5000\n"
    assert draw(entrypoint, uid_map=few) == 5000
    assert draw(entrypoint, uid_map=NARROW_MAP) is None  # there is one user, and no other


def test_the_user_of_the_trials_can_be_named(entrypoint: ModuleType) -> None:
    assert draw(entrypoint, "same") is None
    assert draw(entrypoint, "1000") is None  # that is perfrun's own
    assert draw(entrypoint, "2000") == 2000
    for wrong in ("0", "-1", "me", "\u0662"):
        with pytest.raises(entrypoint.RefusalError, match="PERFRUN_TRIAL_UID must be a number"):
            draw(entrypoint, wrong)
    with pytest.raises(entrypoint.RefusalError, match="is the group of the results"):
        draw(entrypoint, "1001")
    with pytest.raises(entrypoint.RefusalError, match="this engine has no such user"):
        draw(entrypoint, "2000", uid_map=NARROW_MAP)
