"""Real engines, a base image that needs no registry, and users who may use them.

`engine_kind` says which engine a test is about; the other fixtures follow it. See engines.py.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from actors import Caller, give
from engines import (
    IMAGES,
    ROOTFUL,
    Site,
    copy_interpreter,
    find_rootful,
    find_rootless,
    give_up,
)


@pytest.fixture(scope="session")
def base_image() -> str:
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


@pytest.fixture(scope="session")
def settings(base_image: str) -> dict[str, str]:
    """What a user would have in `.env`: these tests touch no image or container but their own."""
    return {
        "PERFRUN_BASE_IMAGE": base_image,
        "PERFRUN_IMAGE": IMAGES["torch"],
        "PERFRUN_TENSORFLOW_IMAGE": IMAGES["tensorflow"],
        "COMPOSE_PROJECT_NAME": f"perfrun-test-{os.getpid()}",
    }


@pytest.fixture(scope="session")
def somebody(place: Path, settings: dict[str, str]) -> Caller:
    """Somebody who is not root: a number that no password file knows, or whoever runs the tests."""
    is_root = os.geteuid() == 0
    return Caller(
        uid=4321 if is_root else os.getuid(),
        gid=4322 if is_root else os.getgid(),
        groups=(),
        home=make_home(place, "somebody"),
        host=os.environ.get("DOCKER_HOST", ""),
        settings=settings,
    )


def make_home(place: Path, name: str) -> Path:
    home = place / f"home of {name}"
    home.mkdir()
    return home


@pytest.fixture(scope="session")
def harness_python(place: Path, somebody: Caller) -> str:
    """An interpreter with perfrun's libraries that everybody may run.

    That of the tests may lie in root's home; then a copy of its environment is made.
    """
    probe = ("-c", "import docker, git, psutil; print('here')")
    done = somebody.try_run(sys.executable, *probe, cwd=place)
    if done is not None and done.stdout == "here\n":
        return sys.executable
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    copy = copy_interpreter(somebody.python(), sorted(libraries), place / "harness")
    done = somebody.run(copy, *probe, cwd=place)
    assert done.returncode == 0, f"{copy} is no interpreter for the harness: {done.stderr}"
    return copy


@pytest.fixture(scope="session")
def rootful(place: Path, base_image: str, somebody: Caller, harness_python: str) -> Site:
    """The machine's own engine."""
    user = replace(
        somebody, home=make_home(place, "the user of rootful"), harness_python=harness_python
    )
    give(user.home, user)
    return find_rootful(place, base_image, user)


@pytest.fixture(scope="session")
def rootless(place: Path, base_image: str, somebody: Caller, harness_python: str) -> Site:
    """A rootless engine."""
    user = replace(
        somebody, home=make_home(place, "the user of rootless"), harness_python=harness_python
    )
    return find_rootless(place, base_image, user)


@pytest.fixture
def engine_kind(request: pytest.FixtureRequest) -> str:
    """`rootful`, unless the test is marked `both_engines` or `only_rootless`."""
    return str(getattr(request, "param", ROOTFUL))


@pytest.fixture
def site(engine_kind: str, request: pytest.FixtureRequest) -> Site:
    """The engine that this test is about."""
    found = request.getfixturevalue(engine_kind)
    assert isinstance(found, Site)
    return found


@pytest.fixture
def engine(user: Caller) -> str:
    """The version of the running engine, which has Compose and the base image."""
    return user.docker("version", "--format", "{{.Server.Version}}")


@pytest.fixture
def user(site: Site) -> Caller:
    """Who types the commands: not root, and allowed to use the engine."""
    return site.user


@pytest.fixture
def checkout(site: Site) -> Path:
    """A checkout of the user's, in a folder whose name has spaces and quotes."""
    return site.checkout


@pytest.fixture
def torch_image(site: Site) -> str:
    """The image for torch as `setup.py` builds it."""
    return site.image("torch")


@pytest.fixture
def tensorflow_image(site: Site) -> str:
    """The image for TensorFlow as `setup.py` builds it, with PerfZero's flags."""
    return site.image("tensorflow")


@pytest.fixture
def workspace(place: Path, user: Caller) -> Iterator[Path]:
    """A fresh folder of the user's, for nobody else to read."""
    path = Path(tempfile.mkdtemp(prefix="work space ", dir=place))
    path.chmod(0o700)
    give(path, user)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def stranger(place: Path) -> Caller:
    """Somebody whom no engine serves."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    host = os.environ.get("DOCKER_HOST", "")
    return Caller(uid=5432, gid=5433, groups=(), home=place, host=host)


@pytest.fixture(scope="session")
def root(place: Path, somebody: Caller, harness_python: str) -> Caller:
    """Root, at the machine's own engine."""
    if os.geteuid() != 0:
        pytest.skip("this is about root")
    home = make_home(place, "root")
    return replace(somebody, uid=0, gid=0, groups=(0,), home=home, harness_python=harness_python)


@pytest.fixture
def context_user(rootless: Site, place: Path) -> Caller:
    """The user of the rootless engine, whose `docker` knows it by a context, not by DOCKER_HOST."""
    home = Path(tempfile.mkdtemp(prefix="home with a context ", dir=place))
    caller = replace(rootless.user, home=home, host="")
    give(home, caller)
    caller.docker("context", "create", "mine", "--docker", f"host={rootless.user.host}")
    caller.docker("context", "use", "mine")
    return caller
