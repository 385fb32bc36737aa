"""Run git in a hardened environment; its errors become one redacted line.

`ask` runs a read-only command, `command` one that changes something or talks to a remote. `opened`
opens a repository with GitPython, for commits as objects; `import git` takes 75 ms, half of what a
second run of a pinned checkout may take, so no ordinary run uses it.

A repository's own configuration can name programs, and a partial clone fetches what it lacks
through them. So only `fetch` and `ls-remote` may use a transport at all, and of a repository that
perfrun did not make nothing is read but its objects (`objects_alone`).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from perfrun.dataclass import dataclass
from perfrun.errors import WorkspaceError
from perfrun.text import redact
from perfrun.worker.procfs import descendants

if TYPE_CHECKING:
    import git

SHA256_DIGITS = 64  # of a commit's hash; SHA-1 has 40
# Settings that a user's or a repository's configuration must not change in perfrun's calls.
_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "fetch.prune=false",
    "fetch.pruneTags=false",
    "fetch.recurseSubmodules=no",
    # What was fetched stays one pack, which git renames into place when it is complete. Loose
    # objects of a killed fetch would leave a commit whose files are missing.
    "fetch.unpackLimit=1",
    "protocol.ext.allow=never",
    # A server that has gone silent ends the fetch after two minutes.
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=120",
)
_OPTIONS = tuple(part for setting in _CONFIG for part in ("-c", setting))
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",  # git 2.44 and later; before, no transport is allowed
    "LC_ALL": "C",
    "LANGUAGE": "C",
}
_PROTOCOLS = "http:https:ssh:git:file"
_ON_THE_NETWORK = ("fetch", "ls-remote")  # every other command is refused each transport
# Inherited from a git hook that started perfrun, these would point git elsewhere.
_REPOSITORY_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_PREFIX",
)
_NO_GIT = "git is not installed, or not on PATH; --git_repos needs it"
_NOISE = r"^(warning:|hint:|Please make sure|and the repository exists|From |\s*$)"
_ASK_LIMIT_S = 600.0  # for what needs no network
_LIMIT_S = 6 * 3600.0  # for a fetch of a server that goes on sending
_END_GRACE_S = 5.0
_GENERIC = "Could not read from remote repository"


class GitFailed(Exception):  # noqa: N818 - always caught within the workspace code
    """A git command failed; the text is the line of its output that names the cause, redacted."""

    def __init__(self, status: int, stderr: str) -> None:
        super().__init__(cause_line(stderr) or f"git ended with status {status}")
        self.status = status
        self.stderr = stderr


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A repository, named in full so that git neither searches for it nor refuses another owner."""

    git_dir: Path
    work_tree: Path | None = None
    objects: Path | None = None  # objects of another repository, to be read in place of its own

    @property
    def folder(self) -> Path:
        """The folder in which git runs."""
        return self.work_tree or self.git_dir


def checkout_at(folder: Path) -> Repository:
    """Return the repository of an ordinary checkout."""
    return Repository(git_dir=folder / ".git", work_tree=folder)


@contextlib.contextmanager
def objects_alone(git_dir: Path, *, is_sha256: bool) -> Iterator[Repository]:
    """Yield an empty repository that reads the objects of another one, and nothing else of it.

    Its configuration, hooks, refs and attributes are never opened, so none of them can start a
    program. Raises OSError.
    """
    import tempfile  # 7 ms that runs without this question save

    # Made by hand: git would take longer than the question.
    with tempfile.TemporaryDirectory(prefix="perfrun-git-") as made:
        folder = Path(made)
        (folder / "refs").mkdir()
        (folder / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
        version = "1\n[extensions]\n\tobjectFormat = sha256" if is_sha256 else "0"
        config = f"[core]\n\tbare = true\n\trepositoryformatversion = {version}\n"
        (folder / "config").write_text(config, encoding="ascii")
        yield Repository(git_dir=folder, objects=git_dir / "objects")


def ask(repository: Repository, *arguments: str, index: Path | None = None) -> bytes:
    """Return the output of a read-only git command.

    Raises:
        GitFailed: the command failed.
        WorkspaceError: git is not installed.
    """
    process = _started(repository, arguments, index=index)
    output, errors = _communicate(process, _ASK_LIMIT_S)
    if process.returncode:
        raise GitFailed(process.returncode, os.fsdecode(errors))
    return output


def command(
    repository: Repository,
    *arguments: str,
    keep_open: Sequence[int] = (),
    timeout_s: float | None = None,
) -> str:
    """Run a git command that changes something or talks to a remote; return its output.

    `keep_open` are descriptors of locks that git holds as long as it runs, even if this process is
    killed. git is ended after `timeout_s` (six hours without it), or when this process is
    interrupted.

    Raises:
        GitFailed: the command failed, or the time is over.
        WorkspaceError: git is not installed.
    """
    process = None
    try:
        with _signals_deferred():  # or nobody would end a child that has just begun
            process = _started(repository, arguments, keep_open=keep_open)
    except BaseException:
        if process is not None:
            _end(process)
        raise
    output, errors = _communicate(process, _LIMIT_S if timeout_s is None else timeout_s)
    if process.returncode:
        raise GitFailed(process.returncode, os.fsdecode(errors))
    return os.fsdecode(output)


def _communicate(process: subprocess.Popen[bytes], limit_s: float) -> tuple[bytes, bytes]:
    """Return what git writes; end it when the time is over, or when this process is interrupted."""
    try:
        return process.communicate(timeout=limit_s)
    except BaseException as error:
        _end(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise GitFailed(-1, f"fatal: no answer within {limit_s:g} s") from None
        raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """End git and what it has started: in order, so that it removes its locks, else at once.

    On SIGTERM alone git waits for the program that talks to the server, which waits for the server.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        below = descendants(process.pid) if process.returncode is None else []
        process.send_signal(number)
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_END_GRACE_S)
            return
    # A program that git started has its pipes; it is not waited for.
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_GRACE_S)


@contextlib.contextmanager
def opened(repository: Repository) -> Iterator[git.Repo]:
    """Open a repository with GitPython, which runs git in the same environment.

    Raises:
        GitFailed: a command failed, inside the block, too.
        WorkspaceError: git is not installed.
    """
    try:
        import git  # slow; raises ImportError when there is no git
    except ImportError:
        raise WorkspaceError(_NO_GIT) from None
    # GitPython can add variables to the environment of its processes, and remove none.
    inherited = {name: os.environ.pop(name, None) for name in _REPOSITORY_VARIABLES}
    try:
        with git.Repo(repository.git_dir) as opened_one:
            opened_one.git.update_environment(**_settings(), **_variables(repository))
            yield opened_one
    except git.GitCommandNotFound:
        raise WorkspaceError(_NO_GIT) from None
    except git.GitCommandError as error:
        raise GitFailed(_status(error), _complaint(error)) from None
    except (git.InvalidGitRepositoryError, git.NoSuchPathError, ValueError) as error:
        raise GitFailed(128, f"fatal: {error}") from None
    finally:
        os.environ.update({name: value for name, value in inherited.items() if value is not None})


def _status(error: Any) -> int:
    return error.status if isinstance(error.status, int) else 128


def _complaint(error: Any) -> str:
    """Return git's standard error without the heading and quotes that GitPython adds."""
    return str(error.stderr).strip().removeprefix("stderr: ").strip("'")


def _started(
    repository: Repository,
    arguments: Sequence[str],
    *,
    index: Path | None = None,
    keep_open: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start git. Raises GitFailed without the folder, WorkspaceError without git."""
    environment = {k: v for k, v in os.environ.items() if k not in _REPOSITORY_VARIABLES}
    on_the_network = bool(arguments) and arguments[0] in _ON_THE_NETWORK
    environment |= _settings(on_the_network=on_the_network) | _variables(repository)
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    try:
        return subprocess.Popen(
            ["git", *_OPTIONS, *arguments],
            cwd=repository.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=tuple(keep_open),
        )
    except FileNotFoundError:
        if not repository.folder.is_dir():
            raise GitFailed(128, f"fatal: no folder {repository.folder}") from None
        raise WorkspaceError(_NO_GIT) from None


@contextlib.contextmanager
def _signals_deferred() -> Iterator[None]:
    """Run handlers of SIGINT and SIGTERM at the end of the block instead of inside it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread only
        return
    came: list[tuple[int, FrameType | None]] = []
    before: dict[int, Any] = {}
    for wanted in (signal.SIGINT, signal.SIGTERM):
        if callable(signal.getsignal(wanted)):
            before[wanted] = signal.signal(wanted, lambda *what: came.append(what))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number, frame in came:
        before[number](number, frame)


def cause_line(stderr: str) -> str:
    """Return the line of git's errors that names the cause, redacted, at most 300 characters."""
    lines = [line.strip() for line in stderr.splitlines() if not re.match(_NOISE, line)]
    causes = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
    if not causes:
        return ""
    cause = causes[0]
    if _GENERIC in cause and lines[0] != cause:
        cause = lines[0]  # what ssh said
    return redact(re.sub(r"^(fatal|error): ", "", cause))[:300]


def _settings(*, on_the_network: bool = False) -> dict[str, str]:
    allowed = os.environ.get("GIT_ALLOW_PROTOCOL", _PROTOCOLS) if on_the_network else "none"
    return _ENVIRONMENT | {"GIT_ALLOW_PROTOCOL": allowed}


def _variables(repository: Repository) -> dict[str, str]:
    values = {"GIT_DIR": str(repository.git_dir)}
    if repository.work_tree is not None:
        values["GIT_WORK_TREE"] = str(repository.work_tree)
    if repository.objects is not None:
        values["GIT_OBJECT_DIRECTORY"] = str(repository.objects)
    return values
