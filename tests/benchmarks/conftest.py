from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:  # benchmarks/ is not part of the installed package
    sys.path.append(str(ROOT))

from shipped_run import RunMethod, run_method  # noqa: E402 (needs the path above)


@pytest.fixture(name="run_method")
def _run_method(tmp_path: Path) -> RunMethod:
    return functools.partial(run_method, tmp_path / "output")


def interpreter_with(framework: str) -> str:
    """Return the interpreter named in the environment; skip, or fail where it is required."""
    variable = f"PERFRUN_TEST_{framework.upper()}_PYTHON"
    python = os.environ.get(variable)
    if not python:
        reason = f"{variable} does not name an interpreter that has {framework}"
        if os.environ.get("PERFRUN_REQUIRE_FRAMEWORKS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return python


@pytest.fixture(scope="session")
def torch_python() -> str:
    return interpreter_with("torch")


@pytest.fixture(scope="session")
def compiling_python(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the interpreter by a path without a space: PyTorch cannot compile with one in it."""
    link = tmp_path_factory.mktemp("environment") / "torch"
    link.symlink_to(Path(torch_python).parents[1])
    return str(link / "bin" / Path(torch_python).name)


@pytest.fixture(scope="session")
def tensorflow_python() -> str:
    return interpreter_with("tensorflow")


@pytest.fixture(scope="session")
def jax_python() -> str:
    return interpreter_with("jax")
