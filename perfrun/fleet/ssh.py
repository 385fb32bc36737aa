"""The engine `ssh`: the shards of a submission on a list of hosts, one at a time on each.

Everything goes through the ssh client of this machine, with its configuration, keys and known
hosts: a host that it does not know is a host that does not answer. perfrun has to be installed
there, in the same version. A shard ends when its connection does, and a host that does not answer
any more is a failed machine, whose shards go to others.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from perfrun import __version__
from perfrun.errors import PerfrunError, UsageError, WorkspaceError
from perfrun.fleet.dispatch import Answer, Dispatch, shuffled
from perfrun.fleet.engines import EngineFlag, Options, Staying
from perfrun.fleet.local import wait_for
from perfrun.fleet.shard_command import BENCHMARK_FAILED, BUSY, RAN
from perfrun.fleet.transfer import (
    LIMIT_FLAGS,
    Limits,
    limits_of,
    receive_results,
    send_plan,
    with_result,
)
from perfrun.options.parsers import parse_shell_words, shown
from perfrun.run.digest import sha256_of
from perfrun.run.interruption import taking_signals
from perfrun.shards.places import WITH_RESULT, Attempt, Ended, How, ShardPlace
from perfrun.shards.plan import Plan
from perfrun.shards.telling import Teller
from perfrun.shown import line

_NO_ANSWER = 255  # of the ssh client
_ANSWER_S = 120.0  # for everything but a shard, its results and its code
_RESULTS_S = 3600.0  # and the code; large results get more
_LEAST_BYTES_S = 4 * 2**20
_MOST_HOSTS = 1000
_MOST_HOSTS_BYTES = 1 << 20
_LONGEST_REASON = 500
_HOST = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.@:%\[\]-]{0,254}")
_FOLDER = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./-]{0,999}")
# Nobody is there to answer a question; a dead connection ends within a minute and a half. What the
# user gives comes before, and the first value counts.
_SETTINGS = (
    *("-T", "-oBatchMode=yes", "-oConnectTimeout=20"),
    *("-oServerAliveInterval=15", "-oServerAliveCountMax=6"),
)


class Ssh(Staying):
    """Runs shards on hosts, by the ssh client."""

    flags = (
        EngineFlag(name="hosts", metavar="A,B|FILE", text="hosts, or a file with one on each line"),
        EngineFlag(
            name="ssh_options", metavar="WORDS", text="options of the ssh client, as '-F FILE'"
        ),
        EngineFlag(
            name="remote_perfrun",
            metavar="COMMAND",
            text="how perfrun is called there (default perfrun)",
        ),
        EngineFlag(
            name="remote_folder",
            metavar="DIR",
            text="where submissions lie there (default .cache/perfrun/fleet, from home)",
        ),
        *LIMIT_FLAGS,
    )

    def check(self, options: Options) -> None:
        """Refuse wrong options. Raises UsageError."""
        _Connection.of(options, "any")
        _hosts(options)
        limits_of(options)

    def nodes(self, options: Options) -> Sequence[str]:
        """Return the hosts. Raises UsageError."""
        return _hosts(options)

    def submit(self, plan: Plan, indices: Sequence[int], options: Options) -> None:
        """Run shards until all have ended. Raises Interrupted, and PerfrunError."""
        teller = Teller(plan, indices)
        limits = limits_of(options)
        slots = [
            Host(plan, name, _Connection.of(options, name), limits) for name in _hosts(options)
        ]
        with taking_signals() as interruption:
            order = shuffled(plan, indices)
            bound = {index: plan.shards[index].node for index in indices}
            kinds = {index: plan.shards[index].environment for index in indices}
            Dispatch(slots, order, teller.note, teller.ended, bound, kinds).run(interruption)


class _Connection:
    """The commands of the ssh client for one host."""

    def __init__(self, host: str, settings: Sequence[str], perfrun: Sequence[str], top: str):
        self._words = ["ssh", *settings, *_SETTINGS, "--", host]
        self._perfrun, self.top = list(perfrun), top

    @classmethod
    def of(cls, options: Options, host: str) -> _Connection:
        """Return the connection to a host. Raises UsageError for wrong options."""
        settings = parse_shell_words(options.get("ssh_options", ""), "--ssh_options")
        if settings and not settings[0].startswith("-"):
            raise UsageError(f"--ssh_options={shown(settings[0])}: options of ssh begin with -")
        perfrun = parse_shell_words(options.get("remote_perfrun", "perfrun"), "--remote_perfrun")
        top = options.get("remote_folder", ".cache/perfrun/fleet")
        if not _FOLDER.fullmatch(top):
            raise UsageError(f"--remote_folder={shown(top)}: letters, digits, ._-/ make its name")
        if not perfrun:
            raise UsageError("--remote_perfrun: is empty")
        return cls(host, settings, perfrun, top.rstrip("/") or "/")

    def folder(self, plan: Plan) -> str:
        """Return the folder of a submission there: the host's own, as hosts may share a home."""
        return f"{self.top}/{plan.submission}-{sha256_of(self._words[-1].encode())[:8]}"

    def perfrun(self, *words: str) -> list[str]:
        """Return the command that calls perfrun there.

        A shell stays between: ssh cannot tell a process that a signal ended from a lost connection.
        """
        return self.shell(f"{shlex.join([*self._perfrun, *words])}; exit $?")

    def shell(self, text: str) -> list[str]:
        """Return the command that has a POSIX shell do something there, in the user's home."""
        return [*self._words, f"sh -c {shlex.quote(f'cd && {text}')}"]


class Host:
    """A host as a slot: it gets the submission once, and then a shard at a time."""

    def __init__(
        self, plan: Plan, name: str, connection: _Connection, limits: Limits | None = None
    ) -> None:
        self._plan, self.name, self._connection = plan, name, connection
        self._limits = limits or Limits()
        self._folder = connection.folder(plan)
        self._is_ready = False
        self._leaves_files = False  # of the last shard

    def run(self, index: int, stop: threading.Event) -> Answer:
        """Run a shard there, and bring its results here, into an attempt of their own."""
        place = ShardPlace(self._plan, index)
        place.make()
        with place.held() as free:
            if free:
                place.settle()
            if not free or place.counted() is not None:
                return Answer.ENDED
            attempt = place.claim(host=self.name)
            with place.log.open("ab") as log:
                begin = log.seek(0, os.SEEK_END)
                answer, ended = self._run(index, attempt, log, stop)
            if not ended.reason and ended.how is not How.RAN:
                ended = replace(ended, reason=_last_line(place.log, begin))
            place.end(attempt, ended)
        if answer is Answer.ENDED and ended.how in WITH_RESULT:
            # Or else a shard that is run again would find the old result there.
            self._clear(place, attempt)
        return answer

    def _run(
        self, index: int, attempt: Attempt, log: BinaryIO, stop: threading.Event
    ) -> tuple[Answer, Ended]:
        if not self._is_ready:
            why = self._prepare(log)
            if why is not None:
                return Answer.LOST, _failed(why)
            self._is_ready = True
        words = ("shard", self._folder, str(index), "--until_stdin_closes")
        command = self._connection.perfrun(*words, f"--alone={self._connection.top}")
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        ) as process:
            status = wait_for(process, stop)
        if status in (RAN, BENCHMARK_FAILED):
            return self._fetch(index, attempt, log)
        if stop.is_set():
            return Answer.ENDED, Ended(
                how=How.INTERRUPTED, ended=time.time(), reason="perfrun submit was interrupted"
            )
        if status == _NO_ANSWER:
            return Answer.LOST, _failed("")
        return Answer.MACHINE, _failed("another shard ran there" if status == BUSY else "")

    def _prepare(self, log: BinaryIO) -> str | None:
        """Send the submission; return why that is not possible."""
        try:
            answer = subprocess.run(
                self._connection.perfrun("--version"),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_ANSWER_S,
                check=False,
            )
            if answer.returncode:
                log.write(answer.stderr[-_MOST_HOSTS_BYTES:])
                log.flush()
                return _last_of(answer.stderr) or f"ssh ended with status {answer.returncode}"
            said = answer.stdout.decode("utf-8", "replace").strip()
            if said != f"perfrun {__version__}":
                return f"perfrun {__version__} is wanted there, not {said[:100]!r}"
            with tempfile.TemporaryFile() as packed:
                send_plan(self._plan, packed)
                packed.seek(0)
                sent = subprocess.run(
                    self._connection.perfrun("shard", self._folder, "--receive"),
                    stdin=packed,
                    stdout=log,
                    stderr=subprocess.PIPE,
                    timeout=_RESULTS_S,
                    check=False,
                )
            if sent.returncode:
                return _last_of(sent.stderr) or "the submission could not be sent"
        except subprocess.TimeoutExpired as error:
            return f"no answer within {error.timeout:.0f} s"
        except FileNotFoundError:
            raise UsageError("--engine=ssh: there is no ssh client here; install OpenSSH") from None
        except OSError as error:
            raise WorkspaceError(f"the submission cannot be sent: {error}") from None
        return None

    def _fetch(self, index: int, attempt: Attempt, log: BinaryIO) -> tuple[Answer, Ended]:
        """Bring the results here. They are what the host says, until they are checked."""
        now = time.time()  # the attempt began by this clock, too
        words = ("shard", self._folder, str(index), "--send", *self._limits.words)
        try:
            with (
                _limited(
                    subprocess.Popen(
                        self._connection.perfrun(*words),
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        start_new_session=True,
                    ),
                    _RESULTS_S + self._limits.results / _LEAST_BYTES_S,
                ) as process,
                contextlib.closing(process.stdout) as stream,  # type: ignore[type-var]
            ):
                received = receive_results(attempt, stream, self._limits)  # type: ignore[arg-type]
        except PerfrunError as error:
            return Answer.LOST, _failed(f"its results did not come: {error}")
        self._leaves_files = bool(received.left_out)
        kept = f"which stays in {self._kept(ShardPlace(self._plan, index), attempt)}"
        ended = with_result(attempt, received, now, kept)
        return (Answer.MACHINE, _failed(ended)) if isinstance(ended, str) else (Answer.ENDED, ended)

    def _kept(self, place: ShardPlace, attempt: Attempt) -> str:
        """Return the folder there of what was too large to come."""
        of = posixpath.basename(self._folder)
        return f"{self._connection.top}/kept/{of}/{place.folder.name}-{attempt.number}"

    def _clear(self, place: ShardPlace, attempt: Attempt) -> None:
        """Remove a shard there, or put it aside where something was too large to come."""
        folder = f"{self._folder}/shards/{place.folder.name}"
        if not self._leaves_files:
            self._remove(folder)
            return
        kept = self._kept(place, attempt)
        above, source, target = map(shlex.quote, (posixpath.dirname(kept), folder, kept))
        self._do(f"mkdir -p -- {above} && mv -- {source} {target}")

    def close(self) -> None:
        """Remove the submission there, but for what was too large to come. Never raises."""
        if self._is_ready:
            self._remove(self._folder)

    def _remove(self, folder: str) -> None:
        self._do(f"rm -rf -- {shlex.quote(folder)}")

    def _do(self, text: str) -> None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                self._connection.shell(text),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_ANSWER_S,
                check=False,
            )


@contextlib.contextmanager
def _limited(process: subprocess.Popen[bytes], most_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """Kill a process that takes longer than results may, or whose reader has given up."""
    timer = threading.Timer(most_s, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield process
    finally:
        timer.cancel()
        process.kill()
        process.wait()


def _failed(reason: str) -> Ended:
    return Ended(how=How.MACHINE, ended=time.time(), reason=line(reason, _LONGEST_REASON))


def _last_line(log: Path, begin: int) -> str:
    """Return the last line that was written into a log since a place."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(begin, end - 8192))
        return _last_of(file.read(8192))
    return ""


def _last_of(text: bytes) -> str:
    lines = [one.strip() for one in text.decode("utf-8", "replace").splitlines() if one.strip()]
    return line(lines[-1], _LONGEST_REASON).removeprefix("perfrun: ") if lines else ""


def _hosts(options: Options) -> tuple[str, ...]:
    """Return the hosts of `--hosts=a,b` or of its file. Raises UsageError."""
    text = options.get("hosts", "")
    if not text:
        raise UsageError("--engine=ssh: name the hosts: --hosts=a,b, or a file with one a line")
    if "/" in text or os.path.isfile(text):  # noqa: PTH113 - pathlib raises for a long name
        try:
            with open(text, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                lines = file.read(_MOST_HOSTS_BYTES).splitlines()
        except OSError as error:
            raise UsageError(f"--hosts={shown(text)}: {error.strerror}") from None
        names = [name for one in lines if (name := one.partition("#")[0].strip())]
    else:
        names = [name.strip() for name in text.split(",") if name.strip()]
    wrong = next((name for name in names if not _HOST.fullmatch(name)), None)
    if wrong is not None:
        raise UsageError(f"--hosts: {shown(wrong)} is no name of a host, as lab1 or user@lab1")
    if not names or len(names) > _MOST_HOSTS:
        raise UsageError(f"--hosts={shown(text)}: names {len(names)} hosts, not 1 to {_MOST_HOSTS}")
    return tuple(dict.fromkeys(names))


def engine() -> Ssh:
    """Return the engine."""
    return Ssh()
