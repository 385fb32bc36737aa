"""What is different where the engine is a user's own: no root anywhere, and often a context."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from actors import Caller, read_summary, results
from engines import ROOTLESS, Site, only_rootless

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800), only_rootless]

NOOP = "--benchmark_methods=benchmarks.python.calibration.Calibration.noop"


@pytest.fixture
def fresh(checkout: Path) -> Iterator[Path]:
    """The user's checkout as after `git clone`: no workspace yet."""
    yield checkout
    shutil.rmtree(checkout / "workspace", ignore_errors=True)


def test_a_context_is_as_good_as_an_address(
    fresh: Path, context_user: Caller, site: Site, base_image: str
) -> None:
    image = site.image("torch")
    built = context_user.setup_py(fresh, f"--docker_tag={image}", f"--base_image={base_image}")
    assert built.returncode == 0, built.stderr
    assert built.stderr.splitlines()[0].endswith(f", {ROOTLESS}")

    done = context_user.compose(fresh, "run", "--rm", "perfrun", NOOP, "--format=json")

    assert done.returncode == 0, done.stderr
    assert [result["status"] for result in results(done.stdout)] == ["passed"]
    assert context_user.owns(fresh / "workspace")


def test_root_in_a_container_is_the_user_outside(
    user: Caller, workspace: Path, torch_image: str
) -> None:
    script = "id -u; id -g; touch /workspace/made-by-root"
    mount = f"type=bind,source={workspace},target=/workspace"
    words = ("docker", "run", "--rm", "--mount", mount, "--entrypoint", "sh", torch_image)

    done = user.run(*words, "-c", script, cwd=workspace)

    assert done.stdout == "0\n0\n", done.stderr
    assert user.owns(workspace / "made-by-root")


def test_a_workspace_of_somebody_else_is_nothing_that_root_in_there_can_write_to(
    fresh: Path, place: Path, user: Caller, torch_image: str
) -> None:
    theirs = place / "work space of somebody else"
    theirs.mkdir(mode=0o755)

    done = user.compose(
        fresh, "run", "--rm", "perfrun", NOOP, "--format=json", PERFRUN_WORKSPACE=str(theirs)
    )

    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    assert list(theirs.iterdir()) == []


def test_what_a_run_has_left_can_be_read_and_resumed_without_a_container(
    fresh: Path, user: Caller, torch_image: str
) -> None:
    done = user.compose(fresh, "run", "--rm", "perfrun", NOOP, "--format=json")
    (result,) = results(done.stdout)
    assert read_summary(result, fresh / "workspace")["benchmark_result"]["succeeded"] is True

    again = user.perfrun(fresh, NOOP, "--format=json", cwd=fresh)

    assert again.returncode == 0, again.stderr
    assert len(list((fresh / "workspace" / "output").iterdir())) == 2
    assert user.owns(fresh / "workspace")
