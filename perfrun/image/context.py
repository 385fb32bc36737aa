"""Files of this machine that a build needs: local wheels, a lock, certificates.

They reach the build in a copy of the context; the checkout is never touched. Standard library
only, Python >= 3.8.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from urllib.parse import unquote

from perfrun.errors import UsageError
from perfrun.image.lock import Lock
from perfrun.image.spec import SITE_IN_IMAGE, SiteFile, parse_line

# What the Dockerfile reads; the rest of a checkout is not copied.
CONTEXT = (".dockerignore", "Dockerfile", "pyproject.toml", "perfrun", "benchmarks", "scripts")
PACKAGE_ENDINGS = (".whl", ".tar.gz", ".zip")


class Site:
    """Collects the files of one build, each under a name that is its own."""

    def __init__(self) -> None:
        self._files: dict[str, SiteFile] = {}

    def place_spec(self, flag: str, spec: str) -> str:
        """A pip spec as the build sees it: a local wheel is brought along, the rest stays."""
        if spec.startswith("gs://"):
            raise UsageError(
                f"{flag}={spec}: gs:// needs Google's tools, which perfrun does without; "
                "fetch the wheel and give file:///path/to/it"
            )
        if spec.startswith(SITE_IN_IMAGE):
            raise UsageError(
                f"--lock: that image was built from the local wheel {Path(spec).name}; "
                f"give it again with {flag}=file:///path/to/{Path(spec).name}"
            )
        is_url = spec.startswith("file://")
        if not is_url and not (spec.endswith(".whl") and "://" not in spec and "@" not in spec):
            return spec
        path = Path(spec[len("file://") :] if is_url else spec)
        path = path if path.is_file() or not is_url else Path(unquote(str(path)))
        if not path.is_file():
            raise UsageError(f"{flag}={spec}: there is no file {path}")
        if not path.name.endswith(PACKAGE_ENDINGS):
            raise UsageError(f"{flag}={spec}: {path.name} is no package that pip can install")
        return self._place(f"specs/{path.name}", path.resolve(), flag)

    def place_links(self, link: str) -> str:
        """An item of --find_links: urls stay, a folder of this machine is brought along."""
        parse_line("--find_links", link)
        if "://" in link and not link.startswith("file://"):
            return link
        path = Path(unquote(link[len("file://") :]) if link.startswith("file://") else link)
        if not path.is_dir():
            raise UsageError(f"--find_links={link}: there is no folder {path}")
        if not any(entry.name.endswith(PACKAGE_ENDINGS) for entry in path.iterdir()):
            raise UsageError(f"--find_links={link}: no wheels in {path}")
        return self._place(f"wheels/{len(self._files)}", path.resolve(), "--find_links")

    def files(self, lock: Lock, certificate: Path | None) -> tuple[SiteFile, ...]:
        """All of them, with the lock as pip constraints and the certificates."""
        found = list(self._files.values())
        for environment, distributions in lock.constraints().items():
            found.append(SiteFile(f"{environment}.txt", None, distributions))
        if certificate is not None:
            found.append(SiteFile("ca/site.pem", certificate))
        return tuple(found)

    def _place(self, name: str, source: Path, flag: str) -> str:
        known = self._files.setdefault(name, SiteFile(name, source))
        if known.source != source:
            raise UsageError(f"{flag}: there are two files named {source.name}, give one of them")
        return f"{SITE_IN_IMAGE}/{name}"


def make_context(checkout: Path, files: tuple[SiteFile, ...], context: Path) -> None:
    """A build context in the empty folder `context`: the checkout's part and the site's files."""
    for name in CONTEXT:
        _copy(checkout / name, context / name)
    for file in files:
        target = context / "scripts" / "site" / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.source is None:
            target.write_text(file.text, encoding="utf-8")
        else:
            _copy(file.source, target)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
        shutil.copytree(source, target, copy_function=_link_or_copy, ignore=ignore)
    else:
        _link_or_copy(str(source), str(target))


def _link_or_copy(source: str, target: str) -> None:
    """A hard link where it can be had: folders of wheels have gigabytes."""
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copy2(source, target)
