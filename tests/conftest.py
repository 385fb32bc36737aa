"""What every test gets: no home directory, no network, and interpreters that have a framework."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Generator, Iterator
from typing import Any

import hypothesis
import postgres
import pytest
from leftovers import Started
from no_home import SET, dropped

# A shell's background job ignores SIGINT, one under `nohup` SIGHUP, and all that it starts would.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The threads of an operation wait for each other asleep, and not busily, as OpenMP's do by default:
# where other tests run beside it, a model in PyTorch took twice the processor to do the same.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# A machine may stop for a second at any moment, so no example has a deadline. In CI (.ci/run) the
# examples are the same every time: what is rare is found where somebody can look into it.
hypothesis.settings.register_profile(
    "here", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile(
    "ci", hypothesis.settings.get_profile("here"), derandomize=True, database=None
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """A test that fails leaves no process behind, and shows what its processes said."""
    started = Started()
    try:
        with started.watching():
            return (yield)
    except BaseException:
        if said := started.end_all():
            item.add_report_section("call", "processes", said)
        raise


# What is done first where tests run side by side: a folder whose tests are many and short is last.
LONGEST_FIRST = ("tests/docker/", "tests/benchmarks/", "tests/integration/", "tests/chaos/")
SHORTEST = "tests/unit/"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give tests of real processes a second try in CI, and put the longest tests first.

    In CI a test of real processes gets a second try, and the closing line says that it took it.
    Noise on a machine that nobody chose costs a trial, not a red build. What failed first is shown
    (`--rerun-show-tracebacks`), and a fault fails twice. The unit tests are given their figures,
    and get none.
    """
    if os.environ.get("CI"):
        for item in items:
            if not item.nodeid.startswith("tests/unit/"):
                item.add_marker(pytest.mark.flaky(reruns=1))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid: str) -> int:
    """Return the place of a test's folder among those that begin; `sort` keeps the rest."""
    if nodeid.startswith(SHORTEST):
        return len(LONGEST_FIRST) + 1
    ranks = (n for n, folder in enumerate(LONGEST_FIRST) if nodeid.startswith(folder))
    return next(ranks, len(LONGEST_FIRST))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A second try looks at runs of its own, not at those of the module that failed it before."""
    if getattr(item, "execution_count", 1) > 1 and isinstance(item, pytest.Function):
        for name in item.fixturenames:
            for fixture in item._fixtureinfo.name2fixturedefs.get(name, ()):
                if fixture.scope in ("class", "module"):
                    fixture.finish(item._request)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where tests run side by side (`make test`), this says which of them stay in one process.

    Those of an engine: they build each image once a process, and some look at all containers of
    their engine. The two engines know nothing of each other. A module's tests of whole runs: many
    of them look at one run, which each process would make for itself. The unit tests, each on its
    own, come last and fill what is left of the time in every process.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith("tests/docker/"):
                return "rootless" if "rootless" in nodeid.partition("[")[2] else "rootful"
            return nodeid if nodeid.startswith(SHORTEST) else nodeid.partition("::")[0]

    config.option.loadscopereorder = False  # in the order of pytest_collection_modifyitems
    return Scheduling(config, log)


@pytest.fixture(autouse=True)
def no_home_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make touching the home directory, or any host but this one, an error."""
    for name, value in SET.items():
        monkeypatch.setenv(name, value)
    for name in dropped(os.environ):
        monkeypatch.delenv(name)
    connect = socket.socket.connect

    def local_connect(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in (
            "127.0.0.1",
            "localhost",
            "::1",
        ):
            raise AssertionError(f"a test tried to reach {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_connect)


def interpreter(variable: str, requirement: str) -> str:
    """Return the interpreter that has a framework, or skip; CI makes a missing one a failure."""
    python = os.environ.get(variable)
    if python:
        return python
    reason = f"no interpreter with {requirement}: set {variable}"
    if os.environ.get("PERFRUN_REQUIRE_FRAMEWORKS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def tensorflow_python() -> str:
    """An interpreter with TensorFlow."""
    return interpreter("PERFRUN_TEST_TENSORFLOW_PYTHON", "TensorFlow")


@pytest.fixture(scope="session")
def torch_python() -> str:
    """An interpreter with PyTorch."""
    return interpreter("PERFRUN_TEST_TORCH_PYTHON", "PyTorch")


@pytest.fixture(scope="session")
def jax_python() -> str:
    """An interpreter with JAX."""
    return interpreter("PERFRUN_TEST_JAX_PYTHON", "JAX")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[postgres.Server]:
    """A PostgreSQL server that runs."""
    folder = postgres.programs()
    if folder is None:
        reason = "no PostgreSQL server: install Debian's package postgresql, or put initdb on PATH"
        if os.environ.get("PERFRUN_REQUIRE_POSTGRES") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with postgres.running(folder) as server:
        yield server
