"""Put a release of uPlot into the page of `perfrun report`: `update_uplot.py VERSION`.

`npm pack` gets the package from npm's registry and checks its integrity. Three files of it are
kept, as they are, beside a JSON file of their version, licence and checksums
(perfrun/page/assets/vendor/uPlot.json), which tests/browser/test_assets.py holds against them.
Then run tests/browser, look at a page, and commit.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parent.parent / "perfrun" / "page" / "assets" / "vendor"
FILES = {
    "uPlot.iife.min.js": "package/dist/uPlot.iife.min.js",
    "uPlot.min.css": "package/dist/uPlot.min.css",
    "uPlot.LICENSE": "package/LICENSE",
}
LIMIT_S = 120.0


def update(version: str) -> None:
    """Replace the files and what is said about them."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", f"--pack-destination={folder}", f"uplot@{version}"]
        subprocess.run(command, check=True, timeout=LIMIT_S)
        (archive,) = Path(folder).glob("*.tgz")
        content = read(archive)
    package = json.loads(content.pop("package.json"))
    for name, data in content.items():
        (VENDOR / name).write_bytes(data)
    said = {
        "name": package["name"],
        "version": package["version"],
        "source": f"https://registry.npmjs.org/uplot/-/uplot-{package['version']}.tgz",
        "licence": package["license"],
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in content.items()},
    }
    (VENDOR / "uPlot.json").write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


def read(archive: Path) -> dict[str, bytes]:
    """Return the wanted files of a package; nothing is unpacked to the disk."""
    found = {}
    with tarfile.open(archive) as package:
        for name, path in {**FILES, "package.json": "package/package.json"}.items():
            member = package.extractfile(path)
            if member is None:
                raise SystemExit(f"{path} is no file in {archive.name}")
            found[name] = member.read()
    return found


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: update_uplot.py VERSION")
    update(sys.argv[1])
