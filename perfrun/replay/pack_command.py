"""`perfrun pack RESULT`: a capsule with all that a result needs to be run again, or its lock."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from perfrun import __version__
from perfrun.compare.one_result import Asked, add_trust, find, refuse_without_consent
from perfrun.errors import UsageError
from perfrun.options.parsers import CommandParser, parse_word, parse_workspace
from perfrun.options.plan import RunPlan
from perfrun.replay.asked import plan_of, recorded_sha256
from perfrun.replay.capsule import (
    LOCK,
    SUMMARY,
    is_capsule,
    plain_name,
    sha256_of,
    write_capsule,
)
from perfrun.replay.installed import Distribution, NotPackable, distributions, refuse_changed
from perfrun.replay.lock import lock_text
from perfrun.replay.repositories import write_bundle
from perfrun.replay.wheels import INDEX, INSTALLED, Wheel, collect, perfrun_wheel, remade
from perfrun.reports.terminal import Terminal
from perfrun.shown import line, write_json, write_lines
from perfrun.summary.series_identity import section, text

_ABOUT = "Put all that a result needs to be run again into one file, a capsule."
_EPILOG = """\
The capsule has the summary, the commits, the wheels of the environment, the data and perfrun's own
wheel, each with its SHA-256. `perfrun replay CAPSULE` runs it on a machine without network.

Exit status: 0, or 2 when something cannot be packed. All of it is in docs/guides/replaying.md.
"""
_MOST_CODE = 64 << 20  # bytes of a folder of --python_path
Notify = Callable[[str], None]


def parser() -> CommandParser:
    """Return the parser of `perfrun pack`."""
    made = CommandParser("perfrun pack", _ABOUT, _EPILOG)
    made.add_argument("result", metavar="RESULT", help="what to pack; as for perfrun replay")
    made.add_argument("-o", "--output", metavar="FILE", help="the capsule (default capsule.tar)")
    made.switch("--lock", "write only the environment's lock (default pylock.toml, PEP 751)")
    made.switch("--with_code", "pack the folders of --python_path as they are now, too")
    origin = "where wheels come from: the configured index if it has what is installed, or here"
    words = partial(parse_word, words=(INDEX, INSTALLED))
    made.flag("--wheels", f"{INDEX}|{INSTALLED}", origin, words, INDEX)
    add_trust(made)
    made.add_workspace()
    made.add_format()
    return made


def pack_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun pack`."""
    given = parser().parse_args(list(argv))
    workspace = parse_workspace(given.workspace)
    asked = find(given.result, workspace)
    target = Path(given.output or (LOCK if given.lock else "capsule.tar")).absolute()
    screen = Terminal(sys.stderr, sys.stderr, quiet=False)
    plan = plan_of(asked, workspace)
    refuse_without_consent(asked, plan, workspace, given.trust, "replay it")
    if given.lock and plan.container:
        raise UsageError("--lock: the result is of a container; its image is the lock")
    try:
        # Beside the file that is made: /tmp may have no room for a framework.
        with tempfile.TemporaryDirectory(prefix=".perfrun-pack-", dir=target.parent) as made:
            packing = _Packing(asked, plan, Path(made), workspace, screen.note)
            if given.lock:
                packing.environment(use_index=given.wheels == INDEX)
                (Path(made) / LOCK).replace(target)  # whole, or not at all
            else:
                _pack(packing, target, given)
            digest, size = sha256_of(target), target.stat().st_size
    except OSError as error:
        raise UsageError(
            f"{target}: cannot be packed: {error.strerror} ({error.filename})"
        ) from None
    if given.format == "json":
        about = {"file": str(target), "sha256": digest, "bytes": size}
        write_json({**about, **packing.content()})
    else:
        said = ", ".join(packing.words())
        how_much = "" if given.lock else f"{size / 2**20:,.1f} MiB, "
        write_lines([line(f"{target}: {how_much}{said}; SHA-256 {digest}")])
    return 0


def _pack(packing: _Packing, target: Path, given: Any) -> None:
    packing.summary()
    packing.repositories()
    packing.data()
    packing.code(is_wanted=given.with_code, without=(packing.workspace, target))
    if packing.plan.container is None:
        packing.environment(use_index=given.wheels == INDEX)
    packing.perfrun()
    write_capsule(packing.folder, packing.manifest(), target)


def _counted(what: Sequence[object], name: str) -> str:
    return f"{len(what)} {name}" if len(what) == 1 else f"{len(what)} {name}s"


@dataclass
class _Packing:
    """The folder of which the capsule is made, and what its manifest says."""

    asked: Asked
    plan: RunPlan
    folder: Path
    workspace: Path
    notify: Notify

    def __post_init__(self) -> None:
        self.own = section(self.asked.record.document, "perfrun")
        self.wheels: tuple[Wheel, ...] = ()
        self.repos: list[dict[str, str]] = []
        self.files: list[dict[str, str]] = []
        self.folders: list[dict[str, str]] = []

    def summary(self) -> None:
        (self.folder / SUMMARY).write_bytes(self.asked.content)

    def repositories(self) -> None:
        """Bundle each checkout at the commit that the trial had."""
        target = self.folder / "repositories"
        target.mkdir()
        commits = self.asked.record.commits
        for number, repo in enumerate(self.plan.repos):
            pinned = replace(repo, git_hash=commits.get(repo.directory) or repo.git_hash)
            name = f"repositories/{number}-{plain_name(repo.directory)}.bundle"
            self.notify(f"bundling {repo.shown_url}")
            write_bundle(pinned, self.workspace, self.folder / name, self.notify)
            commit = pinned.git_hash or ""
            self.repos.append({"directory": repo.directory, "commit": commit, "file": name})

    def data(self) -> None:
        """Copy each file of data that still has the SHA-256 that is on record."""
        target = self.folder / "data"
        target.mkdir()
        for number, item in enumerate(self.plan.data):
            root = self.plan.root_data_dir
            wanted = recorded_sha256(self.asked.record, root, item.relative_path)
            path = Path(root) / item.relative_path
            if not wanted:
                raise UsageError(f"{path}: is a folder, or not on record: only files are packed")
            if not path.is_file():
                raise UsageError(f"{path}: is not there any more; it is data of the result")
            name = f"data/{number}-{plain_name(path.name)}"
            shutil.copyfile(path, self.folder / name)
            if sha256_of(self.folder / name) != wanted:
                raise UsageError(
                    f"{path}: is not the data of the result, whose SHA-256 is {wanted}"
                )
            self.files.append({"path": item.relative_path, "file": name})

    def code(self, *, is_wanted: bool, without: Sequence[Path]) -> None:
        """Copy the folders of `--python_path` that are no checkouts.

        `without` are paths in them that are none of their code.
        """
        for number, item in enumerate(one for one in self.plan.python_path if one.startswith("/")):
            if not is_wanted:
                raise UsageError(
                    f"--python_path: {item} is no checkout of perfrun, so no commit says what it "
                    "was; --with_code packs its files as they are now"
                )
            folder = f"code/{number}"
            copy_code(Path(item), self.folder / folder, without)
            self.folders.append({"path": item, "folder": folder})
        self._check_module()

    def _check_module(self) -> None:
        """Refuse a module that is no longer the one that ran."""
        wanted, path = text(self.own.get("module_sha256")), text(self.own.get("module_file"))
        if not wanted or not any(path.startswith(f"{row['path']}/") for row in self.folders):
            return
        if not Path(path).is_file() or sha256_of(Path(path)) != wanted:
            raise UsageError(
                f"{path}: is not the code that ran: it has been edited since the trial"
            )

    def environment(self, *, use_index: bool) -> None:
        """Collect the wheels of the environment, and write its lock."""
        recorded = section(self.own, "environment")
        found = distributions(self.plan.python)
        refuse_changed(found, section(recorded, "distributions"))
        folder = self.folder / "wheels"
        self.wheels = collect(
            found, folder, python=self.plan.python, use_index=use_index, notify=self.notify
        )
        if "pip" not in found:
            add_pip(distributions(sys.executable).get("pip"), self.folder / "tools", self.notify)
        about = {
            "execution-id": self.asked.record.execution_id,
            "method": self.asked.record.method,
            "summary-sha256": hashlib.sha256(self.asked.content).hexdigest(),
        }
        text_ = lock_text(self.wheels, self._python(), about)
        (self.folder / LOCK).write_text(text_, encoding="utf-8")

    def perfrun(self) -> None:
        """Add perfrun itself."""
        perfrun_wheel(self.folder / "perfrun")

    def _python(self) -> tuple[str, str]:
        python = section(section(self.own, "environment"), "python")
        version = ".".join(text(python.get("version")).split(".")[:2])
        return version, text(python.get("implementation")) or "cpython"

    def words(self) -> list[str]:
        """Return what was packed, in words."""
        remade = sum(one.origin == INSTALLED for one in self.wheels)
        how = f" ({remade} made again from installed files)" if remade else ""
        return [
            f"{_counted(self.wheels, 'wheel')}{how}",
            *([_counted(self.repos, "commit")] if self.repos else []),
            *([_counted(self.folders, "folder")] if self.folders else []),
            *([f"{_counted(self.files, 'file')} of data"] if self.files else []),
        ]

    def manifest(self) -> Mapping[str, Any]:
        """Return what the manifest says, the list of files excepted."""
        version, implementation = self._python()
        container = section(self.own, "container")
        return {
            "perfrun": __version__,
            "execution_id": self.asked.record.execution_id,
            "method": self.asked.record.method,
            "python": {"version": version, "implementation": implementation},
            "image": {"image_id": text(container.get("image_id"))} if container else None,
            **self.content(),
        }

    def content(self) -> dict[str, Any]:
        """Return what was packed, as rows."""
        return {
            "repositories": self.repos,
            "wheels": [
                {
                    "name": one.name,
                    "version": one.version,
                    "file": f"wheels/{one.file}",
                    "origin": one.origin,
                    "source": one.source,
                    "note": one.note,
                }
                for one in self.wheels
            ],
            "data": self.files,
            "code": self.folders,
        }


def add_pip(own: Distribution | None, tools: Path, notify: Notify) -> None:
    """Add perfrun's own pip: the environment has none, and something must install it."""
    if own is None:
        return
    tools.mkdir()
    try:
        remade(own, tools)
    except NotPackable as error:
        notify(f"perfrun's own pip cannot be packed ({error}): who replays the capsule needs one")


def copy_code(source: Path, target: Path, without: Sequence[Path] = ()) -> None:
    """Copy a folder's files: no links, nothing hidden, nothing that Python has compiled.

    Capsules are left out: one in another would double with each. Raises UsageError.
    """
    size = 0
    others = {path.resolve() for path in without}
    for place, folders, names in os.walk(source.resolve()):
        folders[:] = sorted(
            one
            for one in folders
            if one[:1] != "." and one != "__pycache__" and Path(place, one) not in others
        )
        for name in sorted(names):
            path = Path(place, name)
            if name.startswith(".") or path.is_symlink() or not path.is_file():
                continue
            if path in others or is_capsule(path):
                continue
            size += path.stat().st_size
            if size > _MOST_CODE:
                raise UsageError(
                    f"--with_code: {source} holds more than {_MOST_CODE >> 20} MiB; name a folder "
                    "that has the benchmark's code alone"
                )
            inside = path.relative_to(source.resolve())
            if not _is_utf8(str(inside)):
                raise UsageError(f"--with_code: {source}: {str(inside)!r} is no name in UTF-8")
            copy = target / inside
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    target.mkdir(parents=True, exist_ok=True)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
