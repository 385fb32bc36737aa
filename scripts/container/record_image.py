"""Record what an image was built from: `record_image.py FILE GIT_FOLDER key=value...`.

Run by the Dockerfile. The file is a JSON object: the build arguments as given (an empty one is
null), `harness_info` with url, branch and hash of perfrun's own checkout (Compose does not pass
them: then branch and hash are those of the git folder, if there is one), and for the framework's
environment and perfrun's own the version of Python and, under `distributions`, name and version of
everything installed. perfrun copies the file into every summary made inside the image;
`setup.py --lock` builds such an image again from it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ENVIRONMENTS = {"framework": "/opt/framework/bin/python", "perfrun": "/opt/perfrun/bin/python"}
REFERENCE, HEADS = "ref: ", "refs/heads/"
HARNESS = {"harness_url": "url", "harness_branch": "branch", "harness_hash": "hash"}
# Run by each interpreter; `-I` keeps the current folder out of the answer.
LISTING = (
    "import importlib.metadata as m, json, platform; "
    "print(json.dumps([platform.python_version(), "
    "{d.metadata['Name']: d.version for d in m.distributions()}]))"
)


def describe(python: str) -> tuple[str, dict[str, str]]:
    """Return the version of an interpreter, and its distributions by name with their versions."""
    answer = subprocess.run(
        [python, "-I", "-c", LISTING], check=True, stdout=subprocess.PIPE
    ).stdout
    version, found = json.loads(answer)
    return version, {name: found[name] for name in sorted(found, key=str.lower)}


def read_commit(git: Path) -> dict[str, str]:
    """Return branch and hash of a git folder; {} when they cannot be read. Needs no git."""
    try:
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        name = head[len(REFERENCE) :] if head.startswith(REFERENCE) else ""
        commit = read_reference(git, name) if name else head
    except (OSError, ValueError):
        return {}
    branch = name[len(HEADS) :] if name.startswith(HEADS) else name
    return {"url": "", "branch": branch, "hash": commit} if commit else {}


def read_reference(git: Path, name: str) -> str:
    """Return the commit of a reference, loose or packed; empty when it is not there."""
    if (git / name).is_file():
        return (git / name).read_text(encoding="utf-8").strip()
    for line in (git / "packed-refs").read_text(encoding="utf-8").splitlines():
        commit, _, packed = line.partition(" ")
        if packed == name:
            return commit
    return ""


def parse_facts(pairs: list[str]) -> dict[str, object]:
    """Return the build arguments as facts; those of perfrun's checkout have PerfZero's keys."""
    facts: dict[str, object] = {}
    harness: dict[str, str] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key in HARNESS:
            harness[HARNESS[key]] = value
        else:
            facts[key] = value or None
    facts["harness_info"] = harness if harness.get("hash") else {}
    return facts


def main() -> None:
    target, git, *pairs = sys.argv[1:]
    facts = parse_facts(pairs)
    facts["harness_info"] = facts["harness_info"] or read_commit(Path(git))
    described = {name: describe(python) for name, python in ENVIRONMENTS.items()}
    facts["python"] = {name: version for name, (version, _) in described.items()}
    facts["distributions"] = {name: found for name, (_, found) in described.items()}
    Path(target).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
