"""scripts/ci/carry_pip_settings.py: this machine's pip settings, for an image made on it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "scripts" / "ci" / "carry_pip_settings.py"
LISTING = """\
:env:.cert='/etc/ssl/ours.crt'
:env:.find-links='/wheels'
:env:.disable-pip-version-check='1'
global.cert='/etc/ssl/theirs.crt'
global.extra-index-url='file:///mirror/simple https://packages.example/simple'
global.find-links='/wheels\\n/more'
install.user='true'
"""


@pytest.fixture(scope="module")
def carry() -> ModuleType:
    spec = importlib.util.spec_from_file_location("carry_pip_settings", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_environment_wins_except_where_places_add_up(carry: ModuleType) -> None:
    assert carry.parse_settings(LISTING) == {
        "cert": "/etc/ssl/ours.crt",
        "find-links": "/wheels /more",
        "extra-index-url": "file:///mirror/simple https://packages.example/simple",
    }


def test_local_places_are_copied_and_distant_ones_only_named(
    carry: ModuleType, tmp_path: Path
) -> None:
    wheels, mirror = tmp_path / "wheels", tmp_path / "mirror"
    (mirror / "simple").mkdir(parents=True)
    (mirror / "files").mkdir()
    wheels.mkdir()
    settings = {
        "find-links": str(wheels),
        "extra-index-url": f"file://{mirror}/simple https://packages.example/simple /not/there",
    }

    kept, folders = carry.choose(settings, max_mib=1)

    assert kept == settings
    assert sorted(folders) == [mirror, wheels]  # all of the mirror: its index links to its files


def test_a_folder_that_is_too_large_stays_behind_with_its_setting(
    carry: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "big.whl").write_bytes(bytes(2**20 + 1))

    kept, folders = carry.choose({"find-links": str(tmp_path), "retries": "2"}, max_mib=1)

    assert (kept, folders) == ({"retries": "2"}, [])
    assert "too large" in capsys.readouterr().err


def test_the_copy_has_the_settings_the_certificates_and_the_wheels(
    carry: ModuleType, tmp_path: Path
) -> None:
    wheels, certificates, root = tmp_path / "wheels", tmp_path / "ca.crt", tmp_path / "root"
    wheels.mkdir()
    (wheels / "a.whl").write_text("a wheel")
    certificates.write_text("certificates")
    (root / "etc").mkdir(parents=True)

    carry.carry({"cert": str(certificates), "find-links": str(wheels)}, [wheels], root)

    inside = root / "etc/ssl/certs/ca-certificates.crt"
    assert inside.read_text() == "certificates"
    assert (root / str(wheels).lstrip("/") / "a.whl").read_text() == "a wheel"
    assert (root / "etc/pip.conf").read_text() == (
        f"[global]\ncert = /etc/ssl/certs/ca-certificates.crt\nfind-links = {wheels}\n"
    )


def test_the_description_changes_with_the_certificates_and_the_wheels(
    carry: ModuleType, tmp_path: Path
) -> None:
    wheels, certificates = tmp_path / "wheels", tmp_path / "ca.crt"
    wheels.mkdir()
    certificates.write_text("one")
    settings = {"cert": str(certificates)}

    first = carry.describe(settings, [wheels])
    certificates.write_text("two")
    second = carry.describe(settings, [wheels])
    (wheels / "a.whl").write_text("a wheel")
    third = carry.describe(settings, [wheels])

    assert len({first, second, third}) == 3
    assert carry.describe(settings, [wheels]) == third
