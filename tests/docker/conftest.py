"""A real engine, a base image that needs no registry, and users who may use both."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import pytest
from actors import Caller, copy_checkout, give

FRAMEWORKS = ("torch", "tensorflow")
# The names under which these tests build; kept afterwards, because the classic builder's cache
# is nothing but the layers of images that exist.
TORCH_IMAGE = "perfrun-test/torch"
TENSORFLOW_IMAGE = "perfrun-test/tensorflow"


def give_up(reason: str) -> NoReturn:
    """Skips, or fails where a container engine is part of the promise (.ci/run)."""
    if os.environ.get("PERFRUN_REQUIRE_DOCKER") == "1":
        pytest.fail(f"PERFRUN_REQUIRE_DOCKER=1, but {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def engine() -> str:
    """The version of the running engine, which has Compose."""
    if shutil.which("docker") is None:
        give_up("there is no command `docker`")
    for argv in (("docker", "info"), ("docker", "compose", "version")):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            give_up(f"`{' '.join(argv)}` failed: {done.stderr.strip()}")
    version = ("docker", "version", "--format", "{{.Server.Version}}")
    return subprocess.run(version, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="session")
def base_image(engine: str) -> str:
    """The image to build on; made by scripts/ci_engine.sh where nothing can be pulled."""
    name = os.environ.get("PERFRUN_TEST_BASE_IMAGE", "")
    if not name:
        give_up("PERFRUN_TEST_BASE_IMAGE names no base image (scripts/ci_engine.sh makes one)")
    return name


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A folder that every user can reach, which pytest's own are not."""
    path = Path(tempfile.mkdtemp(prefix="perfrun docker tests "))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def socket_group() -> int:
    address = urlsplit(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    return Path(address.path).stat().st_gid


@pytest.fixture(scope="session")
def settings(base_image: str) -> dict[str, str]:
    """What a user would have in `.env`: these tests touch no image but their own."""
    return {
        "PERFRUN_BASE_IMAGE": base_image,
        "PERFRUN_IMAGE": TORCH_IMAGE,
        "PERFRUN_TENSORFLOW_IMAGE": TENSORFLOW_IMAGE,
    }


@pytest.fixture(scope="session")
def user(place: Path, settings: dict[str, str]) -> Caller:
    """Somebody who is not root: a number that no password file knows, or whoever runs the tests."""
    home = place / "home of the user"
    home.mkdir()
    if os.geteuid() != 0:
        return Caller(uid=os.getuid(), gid=os.getgid(), groups=(), home=home, settings=settings)
    caller = Caller(uid=4321, gid=4322, groups=(socket_group(),), home=home, settings=settings)
    give(home, caller)
    return caller


@pytest.fixture(scope="session")
def stranger(place: Path, user: Caller) -> Caller:
    """Somebody whom the engine does not serve."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    return Caller(uid=5432, gid=5433, groups=(), home=place)


@pytest.fixture(scope="session")
def root(place: Path, settings: dict[str, str]) -> Caller:
    if os.geteuid() != 0:
        pytest.skip("this is about root")
    home = place / "home of root"
    home.mkdir()
    return Caller(uid=0, gid=0, groups=(0,), home=home, settings=settings)


@pytest.fixture(scope="session")
def checkout(place: Path, user: Caller) -> Path:
    """A checkout of the user's, in a folder whose name has spaces and quotes."""
    return copy_checkout(place / 'the user\'s "own" checkout', user)


@pytest.fixture
def workspace(place: Path, user: Caller) -> Iterator[Path]:
    """A fresh folder of the user's, for nobody else to read."""
    path = Path(tempfile.mkdtemp(prefix="work space ", dir=place))
    path.chmod(0o700)
    give(path, user)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def torch_image(checkout: Path, user: Caller, base_image: str) -> str:
    """The image for torch as `setup.py` builds it."""
    done = user.setup_py(checkout, f"--docker_tag={TORCH_IMAGE}", f"--base_image={base_image}")
    assert done.returncode == 0, done.stdout + done.stderr
    return TORCH_IMAGE


@pytest.fixture(scope="session")
def tensorflow_image(checkout: Path, user: Caller, base_image: str) -> str:
    """The image for TensorFlow as `setup.py` builds it, with PerfZero's flags."""
    done = user.setup_py(
        checkout,
        "--framework=tensorflow",
        f"--docker_tag={TENSORFLOW_IMAGE}",
        f"--base_image={base_image}",
        "--extra_pip_specs=iniconfig>=2;  pluggy>=1,<2 ;",
        "--extra_docker_build_args",
        "note=two words; and 'quotes'",
        "device=cpu",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return TENSORFLOW_IMAGE
