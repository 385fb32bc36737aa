"""Write the bill of materials of an image: `write_sbom.py FILE NAME=PYTHON...`.

Run by the Dockerfile. The file is CycloneDX 1.6 in JSON: what is installed in the environments of
these interpreters, and the packages of Debian, with version, licence and package url, and with the
SHA-256 where pip has kept it (of what was installed from a file or a url; not of what came from an
index). It has neither a time nor a serial number: the same packages give the same bytes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

SPEC_VERSION = "1.6"
ENVIRONMENT = "perfrun:environment"
DOCUMENTS = Path("/usr/share/doc")
MOST_LICENCES, MOST_CHARACTERS = 50, 120
# Run by each interpreter; `-I` keeps the current folder out of the answer.
LISTING = """
import importlib.metadata, json
def values(metadata, name):
    return [str(one) for one in metadata.get_all(name) or ()]
found = []
for one in importlib.metadata.distributions():
    direct = json.loads(one.read_text("direct_url.json") or "{}")
    archive = direct.get("archive_info") or {}
    found.append({
        "name": one.metadata["Name"], "version": one.version,
        "sha256": (archive.get("hashes") or {}).get("sha256"),
        "expression": values(one.metadata, "License-Expression"),
        "licence": values(one.metadata, "License"),
        "classifiers": values(one.metadata, "Classifier"),
    })
print(json.dumps(found))
"""
Component = dict[str, Any]


def python_packages(environment: str, python: str) -> Iterator[Component]:
    """Yield what is installed in the environment of an interpreter."""
    answer = subprocess.run([python, "-I", "-c", LISTING], check=True, stdout=subprocess.PIPE)
    for found in json.loads(answer.stdout):
        if not found["name"]:
            continue
        name = re.sub(r"[-_.]+", "-", found["name"]).lower()
        component = described(
            found["name"],
            found["version"],
            f"pkg:pypi/{quote(name)}",
            f"{environment}/",
            environment,
        )
        hashes = [{"alg": "SHA-256", "content": found["sha256"]}] if found["sha256"] else []
        licences = python_licences(found)
        yield {
            **component,
            **({"hashes": hashes} if hashes else {}),
            **({"licenses": licences} if licences else {}),
        }


def python_licences(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the licences that a package states: one expression, else one name, else classes."""
    if found["expression"]:
        return [{"expression": found["expression"][0]}]
    stated = [text.strip() for text in found["licence"]]
    names = [
        text for text in stated if text not in ("", "UNKNOWN") and len(text) <= MOST_CHARACTERS
    ]
    if not names or "\n" in names[0]:  # some have the whole text there
        classes = (text.split(" :: ") for text in found["classifiers"])
        names = [parts[-1] for parts in classes if parts[0] == "License" and len(parts) > 1]
    return named_licences(names[:MOST_LICENCES])


def debian_packages(documents: Path = DOCUMENTS) -> Iterator[Component]:
    """Yield the packages of Debian or Ubuntu; none on another system."""
    line = "${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\n"
    try:
        answer = subprocess.run(
            ["dpkg-query", "--show", f"--showformat={line}"], check=True, stdout=subprocess.PIPE
        )
    except FileNotFoundError:
        return
    system = read_os_release()
    distro = f"&distro={system.get('ID', 'debian')}-{system.get('VERSION_ID', '')}".rstrip("-")
    for row in answer.stdout.decode("utf-8", "replace").splitlines():
        state, name, version, architecture = row.split("\t")
        if state != "installed":
            continue
        url = f"pkg:deb/{quote(system.get('ID', 'debian'))}/{quote(name)}"
        qualifiers = f"?arch={quote(architecture)}{distro}"
        component = described(name, version, url, f"{architecture}/", "system", qualifiers)
        licences = debian_licences(documents / name / "copyright")
        yield {**component, **({"licenses": licences} if licences else {})}


def debian_licences(copyright_file: Path) -> list[dict[str, Any]]:
    """Return the licences that a machine-readable copyright file names; [] for any other."""
    try:
        text = copyright_file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    if not text.startswith("Format:"):
        return []
    names = re.findall(r"^License:[ \t]*(\S[^\n]*)", text, re.MULTILINE)
    return named_licences(
        sorted({name.strip()[:MOST_CHARACTERS] for name in names})[:MOST_LICENCES]
    )


def named_licences(names: list[str]) -> list[dict[str, Any]]:
    """Return licences by their names, each once."""
    return [{"license": {"name": name}} for name in dict.fromkeys(names)]


def described(
    name: str, version: str, url: str, prefix: str, environment: str, qualifiers: str = ""
) -> Component:
    """Return what every component has."""
    purl = f"{url}@{quote(version)}{qualifiers}"
    return {
        "type": "library",
        "bom-ref": f"{prefix}{purl}",
        "name": name,
        "version": version,
        "purl": purl,
        "properties": [{"name": ENVIRONMENT, "value": environment}],
    }


def read_os_release(path: Path = Path("/etc/os-release")) -> dict[str, str]:
    """Return the fields of os-release(5); {} without it."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip().strip("'\"") for key, _, value in pairs}


def bill(components: list[Component]) -> dict[str, Any]:
    """Return the document: components in order, each once."""
    by_reference = {each["bom-ref"]: each for each in components}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {
            "component": {"type": "container", "bom-ref": "image", "name": "perfrun image"}
        },
        "components": [by_reference[reference] for reference in sorted(by_reference)],
    }


def main() -> None:
    target, *environments = sys.argv[1:]
    components = list(debian_packages())
    for pair in environments:
        name, _, python = pair.partition("=")
        components += python_packages(name, python)
    text = json.dumps(bill(components), indent=1, ensure_ascii=True) + "\n"
    Path(target).write_text(text, encoding="ascii")


if __name__ == "__main__":
    main()
