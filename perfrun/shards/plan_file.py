"""The file of a plan: `<workspace>/submissions/<id>/plan.json`, written once and never changed."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from perfrun.durable import make_folder, sync_names
from perfrun.errors import UsageError, WorkspaceError
from perfrun.shards.plan import FOLDER, Plan, Shard
from perfrun.shown import line
from perfrun.untrusted import Folder, Refused, opened

FILE = "plan.json"
LOCK = ".submit.lock"  # beside it; held by who submits
FORMAT, VERSION = "perfrun submission", 1
MOST_SHARDS = 100_000
_LARGEST_BYTES = 256 * 2**20
_LATEST_S = 1e11
# What a path may be on every machine. Anything else, as a stale handle, is this machine's.
_NO_PLAN = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.EACCES, errno.EPERM, errno.ENXIO),
)
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,199}\Z")]
Text = Annotated[str, Meta(pattern=r"^[^\0]*\Z", max_length=1_000_000)]
_Flag = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}\Z")]


class _Shard(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    index: Annotated[int, Meta(ge=0, lt=MOST_SHARDS)]
    method: Text
    environment: Text
    round: Annotated[int, Meta(ge=1, le=MOST_SHARDS)]
    setting: Annotated[tuple[tuple[_Flag, Text], ...], Meta(max_length=100)]
    node: Annotated[str, Meta(pattern=r"^[^\0-\x20]*\Z", max_length=255)] = ""
    words: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=10_000)]


class _File(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    format: str
    version: int
    submission: Name
    suite: Name
    digest: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    created: Annotated[float, Meta(ge=0, le=_LATEST_S)]
    engine: Name
    options: dict[_Flag, Text]
    store: Text = ""
    shards: Annotated[list[_Shard], Meta(min_length=1, max_length=MOST_SHARDS)]


def write_plan(plan: Plan) -> None:
    """Write the file of a new plan, for its owner alone: variables and the store may be secret.

    Raises WorkspaceError when it is there already, or cannot be written.
    """
    text = _text(plan)
    try:
        folders = make_folder(plan.folder)
        if plan.path.exists():
            raise WorkspaceError(f"{plan.path}: is there already; a plan is never changed")
        with Folder(plan.folder) as folder:
            folder.write(FILE, text, 0o600)
        for above in folders:
            sync_names(above)
    except OSError as error:
        raise WorkspaceError(f"{plan.path}: cannot be written: {error.strerror}") from None


def sent_text(plan: Plan) -> bytes:
    """Return the file as another machine gets it: without the store, which may have a password.

    Who collects is here.
    """
    return _text(replace(plan, store=""))


def _text(plan: Plan) -> bytes:
    file = _File(
        format=FORMAT,
        version=VERSION,
        submission=plan.submission,
        suite=plan.suite,
        digest=plan.digest,
        created=plan.created,
        engine=plan.engine,
        options=dict(plan.options),
        store=plan.store,
        shards=[_Shard(**vars(shard)) for shard in plan.shards],
    )
    return msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n"


def plan_files(workspace: Path) -> list[Path]:
    """Return the files of the plans of a workspace, the newest first."""
    try:
        return sorted((workspace / FOLDER).glob(f"*/{FILE}"), key=_written, reverse=True)
    except OSError:  # a name that is too long
        return []


def _written(path: Path) -> int:
    """Return when a plan was written, which is once, in nanoseconds."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def read_plan(path: Path) -> Plan:
    """Read and check a plan, or that of a submission's folder.

    Raises UsageError for what is no plan, and WorkspaceError when the disk cannot say.
    """
    if os.path.isdir(path):  # noqa: PTH112 - pathlib raises for a name that is too long
        path = path / FILE
    path = Path(os.path.abspath(path))  # noqa: PTH100 - no links resolved
    try:
        with opened(path) as (number, size), open(number, "rb", closefd=False) as stream:
            if size > _LARGEST_BYTES:
                raise UsageError(f"{path}: is larger than {_LARGEST_BYTES // 2**20} MiB: no plan")
            content = stream.read(size)
    except (OSError, Refused) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        if isinstance(error, OSError) and error.errno not in _NO_PLAN:
            raise WorkspaceError(f"{path}: cannot be read: {why}") from None
        raise UsageError(
            f"{path}: no plan of a submission can be read: {why}; `perfrun submit` writes them"
        ) from None
    try:
        head = msgspec.json.decode(content, type=_Head)
        if head.format == FORMAT and head.version != VERSION:
            raise UsageError(
                f"{path}: is of another perfrun: its version is {head.version}, this one reads "
                f"{VERSION}; use the same perfrun on every machine"
            )
        if head.format != FORMAT:
            raise UsageError(f"{path}: is no plan of a submission")
        file = msgspec.json.decode(content, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is no plan of a submission: {line(str(error), 300)}") from None
    if [shard.index for shard in file.shards] != list(range(len(file.shards))):
        raise UsageError(f"{path}: is no plan of a submission: its shards are not numbered 0, 1...")
    return Plan(
        submission=file.submission,
        suite=file.suite,
        digest=file.digest,
        created=file.created,
        engine=file.engine,
        options=file.options,
        store=file.store,
        shards=tuple(Shard(**msgspec.structs.asdict(one)) for one in file.shards),
        folder=path.parent,
    )


class _Head(Struct, frozen=True):
    format: str = ""
    version: int = 0
