"""Copy the pip settings of this machine into a root file system: builds find the same packages.

    carry_pip_settings.py ROOT      writes ROOT/etc/pip.conf and copies the folders it names
    carry_pip_settings.py --show    prints what would be carried, and changes nothing

Copied are the settings that decide where packages come from, the certificates that pip and the
system trust, and the local folders of packages that the settings name. A folder larger than
PERFRUN_CI_CARRY_MAX_MIB (1024) stays behind, and so does the setting that names it.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Settings whose value is a list of places, each of which may be a folder of this machine.
PLACES = ("index-url", "extra-index-url", "find-links")
PLAIN = (
    "trusted-host",
    "proxy",
    "default-timeout",
    "timeout",
    "retries",
    "no-index",
    "prefer-binary",
)
SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def parse_settings(listing: str) -> dict[str, str]:
    """Return the effective settings of `pip config list`: the environment wins over files.

    Lists of places are joined, the environment's first: a build may need any of them.
    """
    settings: dict[str, str] = {}
    for line in sorted(listing.splitlines(), key=lambda line: not line.startswith(":env:")):
        key, separator, literal = line.partition("=")
        name = key.rpartition(".")[2]
        if not separator or name not in (*PLACES, *PLAIN, "cert"):
            continue
        value = str(ast.literal_eval(literal))
        if name in PLACES and name != "index-url" and name in settings:
            value = " ".join(dict.fromkeys(f"{settings[name]} {value}".split()))
            settings[name] = value
        settings.setdefault(name, value)
    return settings


def local_folder(place: str) -> Path | None:
    """Return the folder of this machine that a place names; None when it names none."""
    path = Path(unquote(urlsplit(place).path) if place.startswith("file://") else place)
    return path if path.is_absolute() and path.is_dir() else None


def carried_root(folder: Path) -> Path:
    """Return the folder to copy for a place: a simple index links to files beside itself."""
    return folder.parent if folder.name == "simple" else folder


def size_mib(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def choose(settings: dict[str, str], max_mib: float) -> tuple[dict[str, str], list[Path]]:
    """Return the settings without places that are too large to copy, and the folders to copy."""
    kept, folders = dict(settings), []
    for name in PLACES:
        places = []
        for place in settings.get(name, "").split():
            folder = local_folder(place)
            if folder is not None:
                root = carried_root(folder)
                if size_mib(root) > max_mib:
                    sys.stderr.write(f"carry_pip_settings: {root} is too large and stays behind\n")
                    continue
                folders.append(root)
            places.append(place)
        kept.pop(name, None)
        if places:
            kept[name] = " ".join(places)
    return kept, folders


def find_certificates(settings: dict[str, str]) -> Path:
    """Return the file of certificates that pip trusts; it becomes the system's in the copy."""
    return Path(settings.get("cert", SYSTEM_CERTIFICATES))


def carry(settings: dict[str, str], folders: list[Path], root: Path) -> None:
    """Write the settings, certificates and folders below `root`."""
    for folder in folders:
        shutil.copytree(folder, root / folder.relative_to("/"), dirs_exist_ok=True)
    certificates = find_certificates(settings)
    if certificates.is_file():
        target = root / SYSTEM_CERTIFICATES.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(certificates, target)
        settings = {**settings, "cert": str(SYSTEM_CERTIFICATES)}
    lines = [f"{name} = {value}\n" for name, value in sorted(settings.items())]
    (root / "etc/pip.conf").write_text("[global]\n" + "".join(lines), encoding="utf-8")


def describe(settings: dict[str, str], folders: list[Path]) -> str:
    """Return all that `carry` would copy, as text that changes when any of it does."""
    lines = [f"{name} = {value}" for name, value in sorted(settings.items())]
    certificates = find_certificates(settings)
    if certificates.is_file():
        lines.append(f"certificates {hashlib.sha256(certificates.read_bytes()).hexdigest()}")
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    lines += [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files]
    return "".join(f"{line}\n" for line in lines)


def main() -> int:
    """Run the command line; return the exit status."""
    if len(sys.argv) != 2:
        sys.stderr.write((__doc__ or "").partition("\n\n")[2])
        return 2
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    max_mib = float(os.environ.get("PERFRUN_CI_CARRY_MAX_MIB", "1024"))
    settings, folders = choose(parse_settings(listing), max_mib)
    if sys.argv[1] != "--show":
        carry(settings, folders, Path(sys.argv[1]))
        return 0
    sys.stdout.write(describe(settings, folders))
    return 0


if __name__ == "__main__":
    sys.exit(main())
