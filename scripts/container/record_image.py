"""Writes down what an image was built from: `record_image.py FILE key=value...`.

Run by the Dockerfile. The file is a JSON object: the build arguments as given (an empty one is
null), and under `distributions` the name and version of everything installed, once for the
framework's environment and once for perfrun's own. perfrun copies it into every summary made
inside the image.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ENVIRONMENTS = {"framework": "/opt/framework/bin/python", "perfrun": "/opt/perfrun/bin/python"}
# Asked of each interpreter itself; `-I` keeps the folder this runs in out of the answer.
LISTING = (
    "import importlib.metadata as m, json; "
    "print(json.dumps({d.metadata['Name']: d.version for d in m.distributions()}))"
)


def distributions(python: str) -> dict[str, str]:
    """Name and version of every distribution installed beside `python`, sorted by name."""
    answer = subprocess.run(
        [python, "-I", "-c", LISTING], check=True, stdout=subprocess.PIPE
    ).stdout
    found = json.loads(answer)
    return {name: found[name] for name in sorted(found, key=str.lower)}


def main() -> None:
    target, *pairs = sys.argv[1:]
    facts: dict[str, object] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        facts[key] = value or None
    facts["distributions"] = {name: distributions(python) for name, python in ENVIRONMENTS.items()}
    Path(target).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
