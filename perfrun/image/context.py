"""Files of this machine that a build needs: local wheels, a lock, certificates.

The build finds them in a copy of its context; the checkout is never changed.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import List, Sequence
from urllib.parse import unquote

from perfrun.errors import UsageError
from perfrun.image.lock import Lock
from perfrun.image.spec import SITE_IN_IMAGE, SiteFile, parse_line

# The parts of a checkout that the Dockerfile reads; no others are copied.
CONTEXT = (".dockerignore", "Dockerfile", "pyproject.toml", "perfrun", "benchmarks", "scripts")
PACKAGE_ENDINGS = (".whl", ".tar.gz", ".zip")


class Site:
    """The files of one build, each under a name of its own."""

    def __init__(self) -> None:
        self._files: dict[str, SiteFile] = {}

    def place_spec(self, flag: str, spec: str) -> str:
        """Return a pip spec as the build sees it; a local wheel is added to the files."""
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
        """Return an item of --find_links; a folder of this machine is added to the files."""
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
        """Return all files, with the lock as pip constraints and the certificates."""
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


def context_commands(checkout: Path, files: Sequence[SiteFile]) -> List[str]:
    """Return the commands that copy parts of the checkout and the files into `$context`."""
    if not files:
        return []
    names = " ".join(quote(str(checkout / name)) for name in CONTEXT)
    lines = [f'cp -RL {names} "$context"']
    for file in files:
        folder = f'"$context"/{quote(str(Path("scripts/site", file.name).parent))}'
        target = f'"$context"/{quote(f"scripts/site/{file.name}")}'
        lines.append(f"mkdir -p {folder}")
        if file.source is None:
            lines.append(f"printf %s {quote(file.text)} >{target}")
            continue
        source = quote(str(file.source))
        # Hard links where they are possible: folders of wheels have gigabytes.
        copy = f"cp -RL {source}{'/.' if file.source.is_dir() else ''} {target}"
        lines.append(f"{{ cp -RLl {source} {target} 2>/dev/null || {copy}; }}")
    return lines
