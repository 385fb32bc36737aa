"""Files and folders that flags of setup.py name: whether they are there, and what they may be.

Standard library only, Python >= 3.8.
"""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

from perfrun.errors import UsageError

DOCKERFILE = "Dockerfile"
NO_GOOGLE_STORAGE = (
    "gs:// needs Google's tools, which perfrun does without; "
    "fetch the file and give its path, or an https:// url"
)


def parse_dockerfile(text: str, checkout: Path) -> Path | None:
    """A Dockerfile as given or, like PerfZero, relative to the checkout; None for our own."""
    if text == DOCKERFILE:
        return None
    if text.startswith("gs://"):
        raise UsageError(f"--dockerfile_path={text}: {NO_GOOGLE_STORAGE}")
    for path in (Path(text), checkout / text):
        if path.is_file():
            return path.resolve()
    raise UsageError(f"--dockerfile_path={text}: there is no such file, here or in {checkout}")


def parse_certificate(text: str) -> Path | None:
    """A file of PEM certificates."""
    if not text:
        return None
    path = Path(text)
    try:
        content = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"--ca_certificate={text}: cannot be read ({error.strerror})") from None
    if "-----BEGIN CERTIFICATE-----" not in content:
        raise UsageError(f"--ca_certificate={text}: holds no certificate in PEM form")
    if "PRIVATE KEY-----" in content:
        raise UsageError(f"--ca_certificate={text}: holds a private key, which no image may carry")
    return path.resolve()


def check_offline(is_offline: bool, find_links: Sequence[str], index_url: str) -> None:
    """Without network there must be wheels, and there can be no index."""
    if is_offline and index_url:
        raise UsageError("--offline and --index_url contradict each other: give only one of them")
    if is_offline and not any("://" not in link for link in find_links):
        raise UsageError("--offline needs --find_links=DIR, a folder of wheels of this machine")


def parse_site_packages(text: str) -> tuple[tuple[Path, str], ...]:
    """`src_dir:new_name,...`: folders that exist, and names that are one plain word each."""
    pairs = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        source, separator, name = item.rpartition(":")
        if not separator or not source:
            raise UsageError(f"--site_package_downloads={item}: must be SRC_DIR:NEW_NAME")
        if name in ("", ".", "..") or "/" in name or name.startswith("."):
            raise UsageError(f"--site_package_downloads={item}: {name!r} is no name for a folder")
        if not Path(source).is_dir():
            raise UsageError(f"--site_package_downloads={item}: there is no folder {source}")
        pairs.append((Path(source).resolve(), name))
    names = [name for _, name in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"--site_package_downloads: {twice[0]} is named twice")
    return tuple(pairs)
