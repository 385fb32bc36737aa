"""Versions of a package as revisions: each is installed into an environment of its own.

An environment has the wheel of that version and otherwise what the interpreter of `--python` has,
so that nothing else differs, but for what the version itself requires.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from perfrun.errors import UsageError
from perfrun.options.plan import split_items
from perfrun.untrusted import Refused, parse_json
from perfrun.workspace.programs import INSTALL_S, carry_out, make_venv, pip_words, variables

_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]{0,98}[A-Za-z0-9])?", re.ASCII)
# The wheel's file name: distribution, version, perhaps a build number, and three tags.
_WHEEL = re.compile(
    r"(?P<name>[\w.]{1,100})-(?P<version>[\w.!+]{1,100})(?:-\d[\w.]{0,50})?"
    r"-[\w.]{1,100}-[\w.]{1,100}-[\w.]{1,200}\.whl",
    re.ASCII,
)
_DIGITS = r"\d{1,18}"
# The grammar of PEP 440, with the spellings that it takes for the same.
_VERSION = re.compile(
    rf"v?(?:(?P<epoch>{_DIGITS})!)?(?P<release>{_DIGITS}(?:\.{_DIGITS}){{0,20}})"
    rf"(?:[-_.]?(?P<stage>alpha|beta|preview|pre|rc|a|b|c)[-_.]?(?P<pre>{_DIGITS})?)?"
    rf"(?:-(?P<short>{_DIGITS})|(?P<is_post>[-_.]?(?:post|rev|r)[-_.]?(?P<post>{_DIGITS})?))?"
    rf"(?P<is_dev>[-_.]?dev[-_.]?(?P<dev>{_DIGITS})?)?"
    r"(?:\+(?P<local>[a-z0-9]{1,40}(?:[-_.][a-z0-9]{1,40}){0,20}))?",
    re.ASCII | re.IGNORECASE,
)
_STAGES = {"a": 0, "alpha": 0, "b": 1, "beta": 1}  # any other one is a release candidate
_MOST_FILES = 100_000
_LOOK_S = 120.0
_SITE_FOLDERS = (
    "import json, os, site; print(json.dumps([os.path.abspath(p) for p in "
    "site.getsitepackages() + ([site.getusersitepackages()] if site.ENABLE_USER_SITE else []) "
    "if os.path.isdir(p)]))"
)
_DONE = "installed"
_MOST_SAID = 200  # characters of a line in a message


@dataclass(frozen=True, kw_only=True)
class PackageVersion:
    """A version of a package that is to be installed."""

    name: str
    version: str
    base: str  # the interpreter whose packages the environment has otherwise
    wheels: Path | None = None  # the folder that has its wheel; None: pip's configured index

    @property
    def shown(self) -> str:
        """The requirement, as pip takes it."""
        return f"{self.name}=={self.version}"


def parse_versions(text: str) -> list[tuple[str, str]]:
    """Parse `NAME==VERSION,VERSION,...` to names and versions. Raises UsageError."""
    found: list[tuple[str, str]] = []
    for item in split_items(text):
        name, equals, version = (part.strip() for part in item.rpartition("=="))
        name = name if equals else found[0][0] if found else ""
        if not _NAME.fullmatch(name) or version_key(version) is None:
            raise UsageError(
                f"--versions: {item!r} is no version; write NAME==VERSION,VERSION,..., as in "
                "torch==2.11,2.12"
            )
        if found and name != found[0][0]:
            raise UsageError(f"--versions: {found[0][0]} and {name}: one package is searched")
        found.append((name, version))
    if len(found) < 2:
        raise UsageError("--versions: name two or more, oldest first")
    for (_, before), (_, after) in pairwise(found):
        if _key(before) >= _key(after):
            raise UsageError(f"--versions: {after} is not newer than {before}; oldest first")
    return found


def versions_in(folder: Path) -> list[tuple[str, str]]:
    """Return the package of which a folder has several versions, by version. Raises UsageError."""
    try:
        names = sorted(one.name for one in folder.iterdir())[:_MOST_FILES]
    except OSError as error:
        raise UsageError(f"--wheels={folder}: {error.strerror}") from None
    found: dict[str, set[str]] = defaultdict(set)
    for file in names:
        match = _WHEEL.fullmatch(file)
        if match and version_key(match["version"]) is not None:
            found[re.sub(r"[-_.]+", "-", match["name"]).lower()].add(match["version"])
    several = [name for name in sorted(found) if len(found[name]) > 1]
    if len(several) != 1:
        there = ", ".join(several) or "none"
        raise UsageError(
            f"--wheels={folder}: one package with several versions is searched, and it has: "
            f"{there}; --versions=NAME==VERSION,... says which"
        )
    ordered = sorted(found[several[0]], key=_key)
    return [(several[0], version) for version in ordered]


def version_key(text: str) -> tuple[object, ...] | None:
    """Return what orders versions as PEP 440 does; None for what is no version."""
    found = _VERSION.fullmatch(text.strip())
    if found is None:
        return None
    release = [int(part) for part in found["release"].split(".")]
    while len(release) > 1 and not release[-1]:
        release.pop()
    is_post = found["short"] is not None or found["is_post"] is not None
    is_dev = found["is_dev"] is not None
    if found["stage"]:
        stage = (_STAGES.get(found["stage"].lower(), 2), int(found["pre"] or 0))
    else:  # 1.0.dev1 comes before 1.0a1
        stage = (-1, 0) if is_dev and not is_post else (3, 0)
    post = int(found["short"] or found["post"] or 0) if is_post else -1
    dev = (0, int(found["dev"] or 0)) if is_dev else (1, 0)
    local = tuple(
        (1, int(part), "") if part.isdecimal() else (0, 0, part.lower())
        for part in re.split(r"[-_.]", found["local"] or "")
        if part
    )
    return (int(found["epoch"] or 0), tuple(release), stage, post, dev, local)


def _key(version: str) -> tuple[object, ...]:
    return version_key(version) or ()


def installed(wanted: PackageVersion, folder: Path, notify: Callable[[str], None]) -> str:
    """Install a version into an environment in `folder`, unless that is done; return its python.

    Raises PerfrunError, with pip's reason.
    """
    python = folder / "bin" / "python"
    if (folder / _DONE).exists():
        return str(python)
    notify(f"installing {wanted.shown}")
    own = _made(wanted.base, folder)
    source: tuple[str, ...] = ()
    if wanted.wheels is not None:
        source = ("--isolated", "--no-index", "--find-links", str(wanted.wheels))
    pip = [*pip_words(python, None), "install", "--quiet", "--only-binary=:all:", *source]
    env = variables(isolated=wanted.wheels is not None)
    words = [*pip, "--no-warn-script-location", wanted.shown]
    what = f"{wanted.shown} cannot be installed"
    carry_out(words, what, INSTALL_S, env)
    if not _has(own, wanted.name):  # the base has that version, perhaps of another build
        carry_out([*words, "--no-deps", "--ignore-installed"], what, INSTALL_S, env)
    (folder / _DONE).touch()
    return str(python)


def _made(base: str, folder: Path) -> Path:
    """Make an environment that also has the packages of `base`; return its folder of packages."""
    env = variables()
    python = make_venv(folder, base)
    theirs, own = _site_folders(base, env), _site_folders(str(python), env)
    if not own:
        raise UsageError(f"{python}: has no folder for packages")
    lines = [f"import site; site.addsitedir({one!r})\n" for one in theirs if one not in own]
    # A path file is read when an interpreter starts: these folders come after the own one.
    (Path(own[0]) / "perfrun-base.pth").write_text("".join(lines), encoding="utf-8")
    return Path(own[0])


def _site_folders(python: str, env: Mapping[str, str]) -> list[str]:
    """Return the folders of an interpreter's packages. Raises UsageError.

    They are the last line of what it prints: a wrapper that loads modules may say something first.
    """
    said = carry_out([python, "-c", _SITE_FOLDERS], python, _LOOK_S, env)
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "")
    try:
        found = parse_json(last.encode())
    except Refused:
        found = None
    if not (isinstance(found, list) and all(isinstance(one, str) for one in found)):
        raise UsageError(
            f"{python}: does not say where its packages are, but {last[:_MOST_SAID]!r}"
        )
    return found


def _has(packages: Path, name: str) -> bool:
    stem = re.sub(r"[-_.]+", "_", name).lower()
    found = (one.name.partition("-")[0] for one in packages.glob("*.dist-info"))
    return any(re.sub(r"[-_.]+", "_", one).lower() == stem for one in found)
