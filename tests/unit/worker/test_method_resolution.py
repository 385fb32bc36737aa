"""A module that a checkout holds must come from there."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from perfrun.worker.method import ResolutionError, check_loaded, check_module


def module_file(folder: Path, relative: str) -> str:
    path = folder / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return str(path)


def loaded(monkeypatch: pytest.MonkeyPatch, name: str, path: str | None) -> None:
    module = ModuleType(name)
    module.__file__ = path
    monkeypatch.setitem(sys.modules, name, module)


def test_a_module_from_its_checkout_is_right_also_through_a_link(tmp_path: Path) -> None:
    path = module_file(tmp_path / "code", "pkg/mod.py")
    (tmp_path / "link").symlink_to(tmp_path / "code")
    check_module("pkg.mod", path, [str(tmp_path / "code")])
    check_module("pkg.mod", path, [str(tmp_path / "link")])


def test_a_module_from_elsewhere_is_refused_and_both_places_are_named(tmp_path: Path) -> None:
    module_file(tmp_path / "code", "pkg/__init__.py")
    other = module_file(tmp_path / "installed", "pkg/__init__.py")
    with pytest.raises(ResolutionError) as caught:
        check_module("pkg", other, [str(tmp_path / "code")])
    assert str(tmp_path / "code") in str(caught.value)
    assert other in str(caught.value)
    with pytest.raises(ResolutionError):
        check_module("pkg", None, [str(tmp_path / "code")])


def test_a_module_that_no_checkout_holds_may_come_from_anywhere(tmp_path: Path) -> None:
    other = module_file(tmp_path / "installed", "pkg/__init__.py")
    check_module("pkg", other, [str(tmp_path)])
    check_module("pkg", other, [])


def test_of_several_checkouts_the_first_one_that_holds_it_is_meant(tmp_path: Path) -> None:
    first = module_file(tmp_path / "first", "pkg.py")
    second = module_file(tmp_path / "second", "pkg.py")
    checkouts = [str(tmp_path / "empty"), str(tmp_path / "first"), str(tmp_path / "second")]
    check_module("pkg", first, checkouts)
    with pytest.raises(ResolutionError):
        check_module("pkg", second, checkouts)


def test_a_package_that_the_benchmark_uses_is_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = module_file(tmp_path / "code", "official_models/__init__.py")
    wrong = module_file(tmp_path / "installed", "official_models/__init__.py")
    loaded(monkeypatch, "official_models", right)
    check_loaded([str(tmp_path / "code")])
    loaded(monkeypatch, "official_models", wrong)
    with pytest.raises(ResolutionError, match="official_models is in the checkout"):
        check_loaded([str(tmp_path / "code")])
    check_loaded([])


def test_pythons_own_modules_and_perfrun_have_no_rival_in_a_checkout(tmp_path: Path) -> None:
    for name in ("json/__init__.py", "os.py", "perfrun/__init__.py", "encodings/__init__.py"):
        module_file(tmp_path / "code", name)
    check_loaded([str(tmp_path / "code")])


def test_modules_without_a_file_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module_file(tmp_path / "code", "made_up.py")
    loaded(monkeypatch, "made_up", None)
    check_loaded([str(tmp_path / "code")])
