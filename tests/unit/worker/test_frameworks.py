"""Which framework a benchmark is about, told from loaded modules alone."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from perfrun.worker.frameworks import NAMES, loaded_frameworks, main_framework


@pytest.fixture(autouse=True)
def _nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, "jaxlib"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def load(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: Any) -> ModuleType:
    """Put a module with these attributes where an import would have put it."""
    module = ModuleType(name)
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def benchmark_class(monkeypatch: pytest.MonkeyPatch, **names: Any) -> type:
    """A class whose module has these global names."""
    load(monkeypatch, "made_cases", **names)
    return type("Cases", (), {"__module__": "made_cases"})


def name_of(framework: dict[str, str | None] | None) -> str | None:
    return framework["name"] if framework else None


def test_no_framework_is_none_not_a_name() -> None:
    assert loaded_frameworks() == []
    assert main_framework(object) is None


@pytest.mark.parametrize(
    ("git_version", "expected"),
    [
        ("v2.21.0-rc1-5-ga481b10260d", "v2.21.0-rc1-5-ga481b10260d"),
        ("b'v1.15.0-rc3-22-g590d6eef7e'", "v1.15.0-rc3-22-g590d6eef7e"),  # PerfZero's rule
        (b"v1.15.0-rc3-22-g590d6eef7e", "v1.15.0-rc3-22-g590d6eef7e"),
        (None, None),
    ],
)
def test_tensorflows_build_is_its_git_version(
    monkeypatch: pytest.MonkeyPatch, git_version: Any, expected: str | None
) -> None:
    load(monkeypatch, "tensorflow", __version__="2.21.0", __git_version__=git_version)
    assert loaded_frameworks() == [
        {"name": "tensorflow", "version": "2.21.0", "build_version": expected}
    ]


def test_torchs_build_is_its_commit_and_jaxs_is_jaxlib(monkeypatch: pytest.MonkeyPatch) -> None:
    version = ModuleType("torch.version")
    vars(version)["git_version"] = "abc123"
    load(monkeypatch, "torch", __version__="2.13.0+cpu", version=version)
    load(monkeypatch, "jax", __version__="0.9")
    load(monkeypatch, "jaxlib", __version__="0.9.1")
    assert loaded_frameworks() == [
        {"name": "torch", "version": "2.13.0+cpu", "build_version": "abc123"},
        {"name": "jax", "version": "0.9", "build_version": "0.9.1"},
    ]


def test_a_folder_or_a_half_imported_module_of_the_name_is_no_framework(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load(monkeypatch, "torch")  # a namespace package: a folder called torch somewhere
    monkeypatch.setitem(sys.modules, "jax", None)  # import forbidden
    assert loaded_frameworks() == []


def test_a_class_derived_from_tensorflows_is_tensorflows(monkeypatch: pytest.MonkeyPatch) -> None:
    load(monkeypatch, "tensorflow", __version__="2.21.0")
    torch = load(monkeypatch, "torch", __version__="2.13.0")
    base = type("Benchmark", (), {"__module__": "tensorflow.python.platform.benchmark"})
    load(monkeypatch, "made_cases", torch=torch)
    cls = type("Cases", (base,), {"__module__": "made_cases"})
    assert name_of(main_framework(cls)) == "tensorflow"


def test_the_framework_that_the_module_names_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    load(monkeypatch, "tensorflow", __version__="2.21.0")  # pulled in by a data library, say
    torch = load(monkeypatch, "torch", __version__="2.13.0")
    assert name_of(main_framework(benchmark_class(monkeypatch, torch=torch))) == "torch"
    assert name_of(main_framework(benchmark_class(monkeypatch))) == "tensorflow"
    assert name_of(main_framework(None)) == "tensorflow"


@pytest.mark.parametrize("kind", ["submodule", "class", "function", "instance"])
def test_a_part_of_a_framework_names_it_too(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    load(monkeypatch, "tensorflow", __version__="2.21.0")
    load(monkeypatch, "torch", __version__="2.13.0")
    tensor = type("Tensor", (), {"__module__": "torch"})

    def relu() -> None: ...

    relu.__module__ = "torch.nn.functional"
    imported = {
        "submodule": ModuleType("torch.nn"),
        "class": tensor,
        "function": relu,
        "instance": tensor(),
    }[kind]
    assert name_of(main_framework(benchmark_class(monkeypatch, it=imported))) == "torch"


def test_names_that_cannot_be_asked_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    class Proxy:
        """Like those of web frameworks, which raise outside of a request."""

        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("working outside of request context")

    load(monkeypatch, "tensorflow", __version__="2.21.0")
    torch = load(monkeypatch, "torch", __version__="2.13.0")
    cls = benchmark_class(monkeypatch, request=Proxy(), torch=torch)
    assert name_of(main_framework(cls)) == "torch"
