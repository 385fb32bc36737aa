"""Open a capsule: unpack and check it, then put its code, data and environment in place."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from perfrun.compare.one_result import ALL, Asked, read
from perfrun.errors import UsageError, WorkspaceError
from perfrun.locks import FileLock
from perfrun.options.plan import RunPlan, parse_repos, split_items
from perfrun.replay.asked import plan_of
from perfrun.replay.capsule import SUMMARY, Manifest, read_manifest
from perfrun.replay.repositories import read_bundle
from perfrun.summary.series_identity import objects, section, text
from perfrun.untrusted import Refused, opened, remove_tree
from perfrun.workspace.archives import unpack_beside
from perfrun.workspace.programs import fitting_python, install_from, make_venv

_BLOCK = 1 << 20
_COPY = "capsule.tar"
Notify = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A capsule that is unpacked and whose files are those of its manifest."""

    asked: Asked
    manifest: Manifest
    digest: str  # SHA-256 of the file
    place: Path  # where its trials run
    folder: Path  # its files

    def plan(self, python: str, notify: Notify) -> RunPlan:
        """Put everything in place and return the plan. Programs of the capsule run here.

        `python` is the interpreter that the user names for its environment. Raises UsageError.
        """
        for row in self.manifest.repositories:
            self._unbundle(row["directory"], row["commit"], self.folder / row["file"], notify)
        more, without = self._python_path(), ["python_path", "root_data_dir"]
        more.append(f"--root_data_dir={self.place / 'data'}")
        if not section(section(self.asked.record.document, "perfrun"), "container"):
            more.append(f"--python={self._environment(python, notify)}")
            without.append("python")
        elif python:
            raise UsageError("--python: the capsule is of a container, whose image has it")
        plan = plan_of(self.asked, self.place, more=more, without=without)
        return replace(plan, data=tuple(replace(item, **self._data(item)) for item in plan.data))

    def _environment(self, python: str, notify: Notify) -> Path:
        version, implementation = self.manifest.python
        base = fitting_python(version, implementation, python)
        notify(f"making the environment; wheels: {len(self.manifest.wheels)}")
        made = make_venv(self.place / "venv", base)
        wheels = self.folder / "wheels"
        tools = sorted((self.folder / "tools").glob("pip-*.whl"))
        pip = next(iter(sorted(wheels.glob("pip-*.whl")) + tools), None)
        pinned = {
            row["name"]: (row["version"], self.manifest.files[row["file"]])
            for row in self.manifest.wheels
        }
        if pinned:
            install_from(wheels, made, pip, pinned)
        return made

    def _unbundle(self, directory: str, commit: str, bundle: Path, notify: Notify) -> None:
        own = section(self.asked.record.document, "perfrun")
        for one in objects(own.get("git")):
            if text(one.get("directory")) == directory and text(one.get("git_hash")) == commit:
                repos = parse_repos(f"{text(one.get('url'))};;{commit}")
                if len(repos) == 1:  # a comma in its url would make two of it
                    read_bundle(repos[0], self.place, bundle, notify)
                    return
        raise UsageError(f"{bundle.name}: the capsule's summary names no such commit")

    def _python_path(self) -> list[str]:
        """Return `--python_path` with the capsule's folders in place of those of its maker."""
        info = section(self.asked.record.document, "benchmark_info")
        items = split_items(text(section(info, "flags").get("python_path")))
        packed = {row["path"]: str(self.folder / row["folder"]) for row in self.manifest.code}
        gone = [item for item in items if item.startswith("/") and item not in packed]
        if gone:
            raise UsageError(f"--python_path: {gone[0]} is not in the capsule")
        made = ",".join(packed.get(item, item) for item in items)
        return [f"--python_path={made}"] if made else []

    def _data(self, item: object) -> dict[str, str]:
        """Return url and SHA-256 of an item of data, as a file of the capsule. UsageError."""
        path = getattr(item, "relative_path", "")
        for row in self.manifest.data:
            if row["path"] == path:
                file = self.folder / row["file"]
                return {"url": file.as_uri(), "sha256": self.manifest.files[row["file"]]}
        raise UsageError(f"the capsule lacks the data {path}")


def open_capsule(
    path: Path, workspace: Path, trust: str, notify: Notify, held: ExitStack
) -> Opened:
    """Unpack a capsule into the workspace and check it. Nothing of it runs. Raises UsageError.

    Its place is held until `held` is closed.
    """
    replays = workspace / "replays"
    try:
        replays.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".capsule-", dir=replays))
        try:
            digest = _copied(path, aside / _COPY)
            if trust != ALL:
                raise UsageError(
                    f"{path}: a capsule brings programs that run as you; say --trust=all if you "
                    f"know who made it (its SHA-256 is {digest})"
                )
            notify(f"unpacking the capsule {digest}")
            unpack_beside(aside / _COPY, must_be_tar=True)
            (aside / _COPY).unlink()
            manifest = read_manifest(aside)
            place = hold(replays, digest, notify, held)
            folder = place / "capsule"
            place.mkdir(exist_ok=True)
            remove_tree(folder)
            aside.rename(folder)
            folder.chmod(0o755)  # the trials' user reads its code
        finally:
            remove_tree(aside)
    except (OSError, Refused) as error:
        raise UsageError(f"{path}: cannot be opened: {error}") from None
    except WorkspaceError as error:
        raise UsageError(f"{path}: {error}") from None
    asked = read(folder / SUMMARY, workspace)
    return Opened(asked=asked, manifest=manifest, digest=digest, place=place, folder=folder)


def hold(replays: Path, digest: str, notify: Notify, held: ExitStack) -> Path:
    """Wait until no other replay has the place of a digest; return it, ours until `held` closes.

    Two that prepare one environment would take it from each other. Raises WorkspaceError.
    """
    name = digest[:16]
    lock = held.enter_context(FileLock(replays / ".locks" / name))
    lock.own(lambda: notify(f"waiting for another replay in {replays / name}{lock.holder}"))
    return replays / name


def _copied(path: Path, target: Path) -> str:
    """Copy a file and return its SHA-256: what is checked is what is unpacked."""
    digest = hashlib.sha256()
    with opened(path) as (source, _), target.open("xb") as file:
        while block := os.read(source, _BLOCK):
            digest.update(block)
            file.write(block)
    return digest.hexdigest()
