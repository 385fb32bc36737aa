"""The engines that the container tests use, and what these tests have built there.

There are two kinds: `rootful`, the machine's own, and `rootless`, a user's (scripts/ci_rootless.sh
starts one). A test uses the first unless it is marked `both_engines`.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import pytest
from actors import Caller, Completed, copy_checkout, give

ROOTFUL, ROOTLESS = "rootful", "rootless"
both_engines = pytest.mark.parametrize("engine_kind", [ROOTFUL, ROOTLESS], indirect=True)
only_rootless = pytest.mark.parametrize("engine_kind", [ROOTLESS], indirect=True)
# What the tests build is kept afterwards, because the classic builder's cache is nothing but the
# layers of images that exist.
IMAGES = {"torch": "perfrun-test/torch", "tensorflow": "perfrun-test/tensorflow"}
BUILD_FLAGS = {
    "torch": (),
    # With PerfZero's flags, spelled as its users do.
    "tensorflow": (
        "--framework=tensorflow",
        "--extra_pip_specs=iniconfig>=2;  pluggy>=1,<2 ;",
        "--extra_docker_build_args",
        "note=two words; and 'quotes'",
        "--device=cpu",
    ),
}


def give_up(reason: str) -> NoReturn:
    """Skips, or fails where container engines are part of the promise (.ci/run)."""
    if os.environ.get("PERFRUN_REQUIRE_DOCKER") == "1":
        pytest.fail(f"PERFRUN_REQUIRE_DOCKER=1, but {reason}", pytrace=False)
    pytest.skip(reason)


@dataclass(frozen=True, kw_only=True)
class Site:
    """An engine, the user who types commands at it, that user's checkout and images."""

    kind: str
    user: Caller
    """Somebody who is not root. To a rootless engine its owner; one who may use the other."""
    base_image: str
    place: Path
    _builds: dict[str, Completed] = field(default_factory=dict)

    @cached_property
    def checkout(self) -> Path:
        """A checkout of the user's, in a folder whose name has spaces and quotes."""
        return copy_checkout(self.place / f'the {self.kind} user\'s "own" checkout', self.user)

    def image(self, framework: str) -> str:
        """The image for a framework as `setup.py` builds it here, when it is first asked for."""
        if framework not in self._builds:  # nor is a build that failed tried again
            self._builds[framework] = self.user.setup_py(
                self.checkout,
                f"--docker_tag={IMAGES[framework]}",
                f"--base_image={self.base_image}",
                *BUILD_FLAGS[framework],
            )
        done = self._builds[framework]
        assert done.returncode == 0, done.stdout + done.stderr
        return IMAGES[framework]


def find_rootful(place: Path, base_image: str, user: Caller) -> Site:
    """The machine's own engine, for a user who is in the group that may use it."""
    host = os.environ.get("DOCKER_HOST", "")
    if os.geteuid() == 0:
        socket = urlsplit(host or "unix:///var/run/docker.sock").path
        if Path(socket).exists():
            user = replace(user, groups=(Path(socket).stat().st_gid,))
    return check(Site(kind=ROOTFUL, user=user, base_image=base_image, place=place))


def find_rootless(place: Path, base_image: str, user: Caller) -> Site:
    """The engine that PERFRUN_TEST_ROOTLESS_HOST names, for its owner (.._USER, or ourselves)."""
    host = os.environ.get("PERFRUN_TEST_ROOTLESS_HOST", "")
    if not host:
        give_up(
            "PERFRUN_TEST_ROOTLESS_HOST names no rootless engine (scripts/ci_rootless.sh has one)"
        )
    user = replace(user, host=host)
    if os.geteuid() == 0:
        owner = pwd.getpwnam(os.environ["PERFRUN_TEST_ROOTLESS_USER"])
        user = replace(user, uid=owner.pw_uid, gid=owner.pw_gid)
        give(user.home, user)
    return check(Site(kind=ROOTLESS, user=user, base_image=base_image, place=place))


def check(site: Site) -> Site:
    """The same, if the user has an engine of that kind, the base image in it, and Compose."""
    if shutil.which("docker") is None:
        give_up("there is no command `docker`")
    options = ask(site, "docker", "info", "--format", "{{json .SecurityOptions}}")
    is_rootless = any(option.startswith("name=rootless") for option in json.loads(options))
    if is_rootless != (site.kind == ROOTLESS):
        found = ROOTLESS if is_rootless else ROOTFUL
        give_up(f"the engine for the tests of a {site.kind} one is {found}")
    ask(site, "docker", "compose", "version")
    ask(site, "docker", "image", "inspect", "--format", "{{.Id}}", site.base_image)
    return site


def ask(site: Site, *argv: str) -> str:
    done = site.user.run(*argv, cwd=site.place)
    if done.returncode:
        give_up(f"`{' '.join(argv)}` failed for the {site.kind} engine: {done.stderr.strip()}")
    return done.stdout


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def copy_interpreter(python: str, libraries: Iterable[str], folder: Path) -> str:
    """An environment of `python` in `folder`, with what is installed in the folders `libraries`."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    copy = str(folder / "bin" / "python")
    answer = subprocess.run(
        [copy, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    )
    for library in libraries:
        shutil.copytree(
            library, answer.stdout.strip(), copy_function=link_or_copy, dirs_exist_ok=True
        )
    return copy
