"""scripts/container/write_sbom.py: a bill of materials that others can read, and the same again."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

SOURCE = Path(__file__).resolve().parents[3] / "scripts" / "container" / "write_sbom.py"


@pytest.fixture
def write_sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_sbom", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_bill_is_valid_complete_and_the_same_again(tmp_path: Path) -> None:
    texts = []
    for name in ("first", "second"):
        argv = [sys.executable, "-I", str(SOURCE), str(tmp_path / name), f"own={sys.executable}"]
        subprocess.run(argv, check=True)
        texts.append((tmp_path / name).read_text("ascii"))
    assert texts[0] == texts[1]
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(texts[0]) is None
    components = json.loads(texts[0])["components"]
    own = {c["name"]: c for c in components if c["purl"].startswith("pkg:pypi/")}
    assert own.keys() == {one.metadata["Name"] for one in importlib.metadata.distributions()}
    psutil = own["psutil"]
    version = importlib.metadata.version("psutil")
    assert (psutil["version"], psutil["purl"]) == (version, f"pkg:pypi/psutil@{version}")
    assert psutil["licenses"]
    assert psutil["properties"] == [{"name": "perfrun:environment", "value": "own"}]
    if shutil.which("dpkg-query"):
        debian = {c["name"]: c for c in components if c["purl"].startswith("pkg:deb/")}
        assert "libc6" in debian
        assert any(c.get("licenses") for c in debian.values())


def test_licences_are_those_that_a_package_states(write_sbom: ModuleType, tmp_path: Path) -> None:
    def stated(expression: str = "", licence: str = "", *classifiers: str) -> object:
        words = {"expression": [expression] if expression else [], "licence": [licence]}
        return write_sbom.python_licences({**words, "classifiers": list(classifiers)})

    bsd = "License :: OSI Approved :: BSD License"
    assert stated("MIT OR Apache-2.0", "MIT", bsd) == [{"expression": "MIT OR Apache-2.0"}]
    assert stated("", "BSD-3-Clause", bsd) == [{"license": {"name": "BSD-3-Clause"}}]
    assert stated("", "UNKNOWN", bsd) == [{"license": {"name": "BSD License"}}]
    assert stated("", "Copyright 1999\nAll rights", bsd) == [{"license": {"name": "BSD License"}}]
    assert stated("", "", "Topic :: System") == []

    machine_readable = tmp_path / "copyright"
    machine_readable.write_text(
        "Format: https://example.org/dep5\n\nFiles: *\nLicense: GPL-2+\n text\n\nLicense: Expat\n"
    )
    names = [each["license"]["name"] for each in write_sbom.debian_licences(machine_readable)]
    assert names == ["Expat", "GPL-2+"]
    assert write_sbom.debian_licences(tmp_path / "none") == []
