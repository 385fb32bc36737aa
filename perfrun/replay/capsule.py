"""The file of a capsule: an ordinary tar archive, with a manifest as its first member.

The same content gives the same bytes: members are in the order of their names, and have neither
times nor owners.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun import schema
from perfrun.errors import UsageError
from perfrun.untrusted import Refused, opened, parse_json, read_file
from perfrun.workspace.http_transfer import sha256_of as sha256_of_open

MANIFEST = "manifest.json"
SUMMARY = "summary.json"
LOCK = "pylock.toml"
FORMAT, VERSION = "perfrun capsule", 1
_MOST_MANIFEST = 64 << 20
_MOST_FILES = 100_000
_MAGIC = (257, b"ustar")  # of tar, in the header of the first member
_WORD = r"[\w.!+-]{1,200}"
_SHA256 = schema.matching("[0-9a-f]{64}", "a SHA-256")
_NAME = schema.matching(f"(?a:{_WORD})", "a name or a version")
_PATH = schema.matching(r"[^\0]+", "a path")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The checked content of a manifest."""

    python: tuple[str, str]  # version as 3.11, and implementation
    repositories: tuple[Mapping[str, str], ...]  # directory, commit, file
    wheels: tuple[Mapping[str, str], ...]  # name, version, file
    data: tuple[Mapping[str, str], ...]  # path below --root_data_dir, file
    code: tuple[Mapping[str, str], ...]  # path of --python_path, folder
    files: Mapping[str, str]  # path to SHA-256


def is_capsule(path: Path) -> bool:
    """Return True for a file that begins as a capsule does."""
    try:
        with opened(path) as (file, _):
            head = os.pread(file, 512, 0)
    except (OSError, Refused):
        return False
    at, magic = _MAGIC
    return head[: len(MANIFEST) + 1] == f"{MANIFEST}\0".encode() and head[at:].startswith(magic)


def write_capsule(folder: Path, manifest: Mapping[str, Any], target: Path) -> str:
    """Write all files of a folder and their manifest into `target`; return its SHA-256."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    files = {
        name: {"sha256": sha256_of(path), "bytes": path.stat().st_size}
        for name, path in sorted(names.items())
    }
    whole = {"format": FORMAT, "version": VERSION, **manifest, "files": files}
    text = json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")
    aside = target.with_name(f".{target.name}.new")
    try:
        with tarfile.open(aside, "w", format=tarfile.PAX_FORMAT) as tar:
            for name in (MANIFEST, *sorted(names)):
                path = folder / name
                member = tarfile.TarInfo(name)
                member.size = path.stat().st_size
                member.mode = 0o644
                with path.open("rb") as file:
                    tar.addfile(member, file)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    return sha256_of(target)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb", buffering=0) as file:
        return sha256_of_open(file.fileno())


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an unpacked capsule and check every file. Raises UsageError."""
    try:
        said = parse_json(read_file(folder / MANIFEST, _MOST_MANIFEST))
    except (OSError, Refused) as error:
        raise UsageError(f"the capsule's {MANIFEST} cannot be read: {error}") from None
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        raise UsageError(f"the capsule's {MANIFEST} is none of `perfrun pack`")
    if said.get("version") != VERSION:
        raise UsageError(
            f"the capsule is of another perfrun: its version is {said.get('version')!r:.40}, "
            f"this one reads {VERSION}"
        )
    try:
        manifest = _checked(said)
    except (schema.Wrong, KeyError, TypeError) as error:
        raise UsageError(f"the capsule's {MANIFEST} cannot be used: {error!r:.200}") from None
    _check_files(folder, manifest.files)
    return manifest


def _checked(said: Mapping[str, Any]) -> Manifest:
    notes = schema.Notes(MANIFEST)
    python = said["python"]
    files = said["files"]
    if not isinstance(files, dict) or len(files) > _MOST_FILES:
        raise schema.Wrong("files is no object of a sensible size")
    sums = {_path(name): _SHA256(one["sha256"], name, notes) for name, one in files.items()}

    def rows(key: str, **wanted: schema.Check) -> tuple[Mapping[str, str], ...]:
        listed = said[key]
        if not isinstance(listed, list) or len(listed) > _MOST_FILES:
            raise schema.Wrong(f"{key} is no list of a sensible size")
        found = []
        for row in listed:
            one = {name: check(row[name], f"{key}.{name}", notes) for name, check in wanted.items()}
            if "file" in one and one["file"] not in sums:
                raise schema.Wrong(f"{key} names a file that it does not list")
            found.append(one)
        return tuple(found)

    return Manifest(
        python=(
            schema.matching(r"3\.[0-9]{1,3}", "a version of Python")(python["version"], "", notes),
            _NAME(python["implementation"], "", notes),
        ),
        repositories=rows(
            "repositories",
            directory=_PATH,
            commit=schema.matching("[0-9a-f]{40}|[0-9a-f]{64}", "a commit"),
            file=_PATH,
        ),
        wheels=rows("wheels", name=_NAME, version=_NAME, file=_PATH),
        data=rows("data", path=_PATH, file=_PATH),
        code=rows("code", path=_PATH, folder=schema.matching("code/[0-9]{1,3}", "a folder")),
        files=sums,
    )


def _path(name: str) -> str:
    """Return a path below the capsule's folder. Raises Wrong for a way out of it."""
    parts = name.split("/")
    if not 0 < len(name) <= 1024 or "\0" in name or any(one in ("", ".", "..") for one in parts):
        raise schema.Wrong(f"{name!r:.100} is no path in a capsule")
    return name


def _check_files(folder: Path, sums: Mapping[str, str]) -> None:
    """Refuse links, files that are not listed, and other bytes than are listed."""
    there = set()
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        if name == MANIFEST:
            continue
        if name not in sums:
            raise UsageError(f"the capsule has a file that its {MANIFEST} does not list: {name}")
        there.add(name)
        if sha256_of(path) != sums[name]:
            raise UsageError(f"the capsule is damaged: {name} is not what its {MANIFEST} says")
    missing = sorted(sums.keys() - there)
    if missing:
        raise UsageError(f"the capsule is damaged: {missing[0]} is not in it")


def _walk(folder: Path) -> list[Path]:
    found = []
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(place, name)
            mode = path.lstat().st_mode
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                raise UsageError(f"the capsule holds what is no file: {path.relative_to(folder)}")
            found += [path] if stat.S_ISREG(mode) else []
    return sorted(found)


def plain_name(name: str) -> str:
    """Return a name of a file in a capsule, made of a directory's or a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:100] or "_"
