"""Ask Slurm: one question about all jobs of the user, patiently, and the limits of the site."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfrun.errors import PerfrunError
from perfrun.probes.commands import command_output
from perfrun.shards.plan import ShardState
from perfrun.shown import line
from perfrun.text import redact

ANSWER_LIMIT_S = 60.0  # for one question
_NO_PROGRAM = 127  # a program that cannot be started is not asked again, as one that is silent is
# A controller that is restarted answers nobody for a while, and knows all jobs afterwards.
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0)
_NO_CONTROLLER = re.compile(
    "unable to contact|socket timed out|connection refused|connect failure|zero bytes were|"
    "transport endpoint|standby mode|temporarily|connection timed out|communication connection",
    re.IGNORECASE,
)
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
_CAN_RUN = ("idle", "mixed", "allocated", "completing", "reserved", "planned")
_SHOWN = 300  # characters of what a program said

_WAITING = "PENDING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT RESV_DEL_HOLD"
_RUNNING = "RUNNING COMPLETING SUSPENDED STOPPED SIGNALING STAGE_OUT RESIZING"
_MACHINE = "NODE_FAIL BOOT_FAIL TIMEOUT DEADLINE OUT_OF_MEMORY"
STATES: Mapping[str, ShardState] = {
    **dict.fromkeys(_WAITING.split(), ShardState.WAITING),
    **dict.fromkeys(_RUNNING.split(), ShardState.RUNNING),
    **dict.fromkeys(_MACHINE.split(), ShardState.MACHINE),
    "PREEMPTED": ShardState.PREEMPTED,
    "CANCELLED": ShardState.CANCELLED,
    "REVOKED": ShardState.CANCELLED,
}
ENDED = ("COMPLETED", "FAILED")  # the process ended: only its files say with what
OPEN = tuple(name for name, state in STATES.items() if state.is_open)


class SlurmError(PerfrunError):
    """Slurm cannot be asked, or refuses what it is asked for."""

    exit_code = 2


@dataclass(frozen=True, kw_only=True)
class Job:
    """A task of an array, or a job without one, as Slurm knows it."""

    name: str
    job: str  # the number of the array
    task: int
    state: str  # Slurm's own word


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of the site."""

    array: int  # tasks of one array; 1 where there are no arrays
    jobs: int | None  # of this user that may wait or run at once; None when nobody says


def answer(*words: str, patient: bool = True) -> str:
    """Run one of Slurm's programs and return what it printed, retried while no controller answers.

    Raises SlurmError: the controller stayed away, or the program refused.
    """
    pauses = list(PAUSES_S if patient else ())
    while True:
        status, said, why = command_output(*words, most_s=ANSWER_LIMIT_S, unstarted=_NO_PROGRAM)
        if status == 0:
            return said
        is_away = status is None or is_no_controller(why)
        if not is_away or not pauses:
            break
        time.sleep(pauses.pop(0))
    after = "; jobs go on without it: ask again later" if is_away else ""
    raise SlurmError(f"`{words[0]}` failed: {shown(why) or f'exit status {status}'}{after}")


def nodes_of(partition: str) -> list[str]:
    """Return the nodes of a partition, or of the default one, that can run jobs.

    Raises SlurmError when there is none.
    """
    words = [f"--partition={partition}"] if partition else []
    found: dict[str, str] = {}
    for row in answer("sinfo", "--noheader", "--Node", "--format=%N|%T|%P", *words).splitlines():
        name, _, rest = row.strip().partition("|")
        state, _, of = rest.partition("|")
        if _NODE.fullmatch(name) and (partition or of.endswith("*")):
            found[name] = state.rstrip("*~#!%$@^-+").lower()
    fit = sorted(name for name, state in found.items() if state in _CAN_RUN)
    if not fit:
        raise SlurmError(
            f"no node of the partition {shown(partition) or '(default)'} can run a job now; "
            "`sinfo` says why"
        )
    return fit


def is_no_controller(said: str) -> bool:
    """Return True for a message that says nothing about jobs: nobody answered."""
    return _NO_CONTROLLER.search(said) is not None


def shown(said: str) -> str:
    """Return the last line of what a program said, without its name, fit to be shown."""
    lines = [one.strip() for one in said.splitlines() if one.strip()]
    return line(redact(re.sub(r"^\w+: error: ", "", lines[-1])), _SHOWN) if lines else ""


def queue() -> tuple[Job, ...]:
    """Return all jobs of this user that the controller remembers, in one question."""
    words = ["squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}"]
    return parsed_queue(answer(*words, "--format=%F|%K|%T|%j"))


def parsed_queue(text: str) -> tuple[Job, ...]:
    """Parse lines of `number|task|state|name`; what is no such line is left out."""
    found = []
    for one in text.splitlines():
        number, task, state, name = (*one.strip().split("|", 3), "", "", "")[:4]
        if number.isascii() and number.isdigit() and name:
            is_task = task.isascii() and task.isdigit()
            index = int(task[:9]) if is_task else 0
            found.append(Job(name=name, job=number, task=index, state=state.strip()))
    return tuple(found)


def accounted(numbers: Sequence[str]) -> tuple[Job, ...]:
    """Return what the site's accounting says of jobs that the controller has forgotten.

    Nothing, where there is no accounting: the files of the shards say enough.
    """
    words = ["sacct", "--noheader", "--parsable2", "--allocations"]
    try:
        said = answer(*words, f"--jobs={','.join(numbers)}", "--format=JobID,State,JobName")
    except SlurmError:
        return ()
    return parsed_accounting(said)


def parsed_accounting(text: str) -> tuple[Job, ...]:
    """Parse lines of `number_task|state|name`: a state may be `CANCELLED by 1000`."""
    found = []
    for one in text.splitlines():
        number, state, name = (*one.strip().split("|", 2), "", "")[:3]
        numbers = re.fullmatch(r"(\d{1,18})(?:_(\d{1,9}))?", number, re.ASCII)
        if numbers and state and name:
            task = int(numbers[2] or 0)
            found.append(Job(name=name, job=numbers[1], task=task, state=state.split()[0]))
    return tuple(found)


def limits(account: str = "") -> Limits:
    """Return the site's limits. Raises SlurmError when the controller cannot be asked."""
    values = {}
    for one in answer("scontrol", "show", "config").splitlines():
        key, _, value = one.partition("=")
        values[key.strip()] = value.strip()
    size = _whole(values.get("MaxArraySize", ""))
    has_accounting = values.get("AccountingStorageType", "").endswith("slurmdbd")
    return Limits(array=max(1, size or 1), jobs=_most_jobs(account) if has_accounting else None)


def _most_jobs(account: str) -> int | None:
    """Return `MaxSubmitJobs` of this user's associations: the smallest; None without one."""
    words = ["sacctmgr", "--noheader", "--parsable2", "show", "associations"]
    where = [f"user={_user_name()}", *([f"account={account}"] if account else [])]
    try:
        said = answer(*words, "where", *where, "format=MaxSubmit", patient=False)
    except SlurmError:
        return None
    return min((most for one in said.splitlines() if (most := _whole(one))), default=None)


def _user_name() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _whole(text: str) -> int | None:
    plain = text.strip()
    return int(plain) if re.fullmatch(r"\d{1,9}", plain, re.ASCII) else None
