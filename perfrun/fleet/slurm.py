"""`perfrun submit --engine=slurm`: shards as tasks of arrays, each with nodes of its own."""

from __future__ import annotations

import importlib.util
import math
import re
import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from perfrun.errors import UsageError
from perfrun.fleet.dispatch import shuffled
from perfrun.fleet.engines import EngineFlag, Options, shard_words
from perfrun.fleet.slurm_batches import Batch, Batches, Said
from perfrun.fleet.slurm_jobs import (
    EXCLUSIVE,
    SubmissionFailedError,
    Wishes,
    shard_line,
    submit_array,
)
from perfrun.fleet.slurm_queue import (
    ENDED,
    OPEN,
    PAUSES_S,
    STATES,
    Job,
    SlurmError,
    accounted,
    answer,
    is_no_controller,
    limits,
    nodes_of,
    queue,
    shown,
)
from perfrun.locks import FileLock
from perfrun.options.parsers import parse_duration, parse_shell_words, parse_whole, parse_word
from perfrun.shards.places import ShardPlace
from perfrun.shards.plan import Plan, ShardState

PROGRAMS = ("sbatch", "scancel", "scontrol", "squeue", "srun")  # submitit asks for srun
POLL_S = 15.0  # at least, between two questions about a submission
MOST_TASKS = 1000  # of an array: its script names each shard
_MOST_CANCELLED = 500  # names in one command line
_TIME = re.compile(r"(?:(\d{1,4})-)?(\d{1,4}):([0-5]\d):([0-5]\d)", re.ASCII)
_SBATCH_FLAG = re.compile(r"--([a-z][a-z-]*)(?:=(.*))?", re.DOTALL)
# What perfrun itself says to sbatch.
_OURS = {"array", "chdir", "error", "job-name", "no-requeue", "open-mode", "output", "requeue"}
_OURS |= {"signal", "test-only", "wait", "wrap"}

FLAGS = (
    EngineFlag(name="partition", metavar="NAME", text="the partition; else the site's default"),
    EngineFlag(name="account", metavar="NAME", text="the account that is charged"),
    EngineFlag(name="constraint", metavar="FEATURES", text="features that the nodes must have"),
    EngineFlag(name="gres", metavar="LIST", text="devices of each node, such as gpu:h100:8"),
    EngineFlag(
        name="exclusive",
        metavar="WHAT",
        text="node (default): no other job shares its nodes; devices: only those of --gres are its",
    ),
    EngineFlag(name="nodes", metavar="N", text="nodes for each shard (default 1)"),
    EngineFlag(
        name="walltime",
        metavar="TIME",
        text="the most time for a shard: 90m, 2h, or 1-12:00:00; else the partition's",
    ),
    EngineFlag(
        name="sbatch_flags", metavar="FLAGS", text="more flags of sbatch: '--qos=low --mem=64G'"
    ),
    EngineFlag(
        name="max_jobs",
        metavar="N",
        text="the most jobs of yours in the queue; else MaxSubmitJobs of the site's accounting",
    ),
    EngineFlag(name="poll", metavar="TIME", text="between two questions to Slurm (default 15s)"),
    EngineFlag(
        name="node_python",
        metavar="PATH",
        text="perfrun's interpreter on the nodes, where it is not the one that runs here",
    ),
    EngineFlag(
        name="node_setup", metavar="LINE", text="a line of the shell first: 'module load cuda'"
    ),
    EngineFlag(
        name="node_prefix",
        metavar="WORDS",
        text="words before the shard's command: 'apptainer exec --nv IMAGE', "
        "'srun --container-image=IMAGE'",
    ),
)


def engine() -> Slurm:
    """Return the engine."""
    return Slurm()


class Slurm:
    """Arrays of jobs, and one question about all of them. The jobs go on without perfrun."""

    flags = FLAGS
    stays = False

    def check(self, options: Options) -> None:
        """Refuse wrong options, and a machine from which nothing can be submitted."""
        wishes_of(options)
        if absent := [name for name in PROGRAMS if shutil.which(name) is None]:
            raise UsageError(
                f"--engine=slurm: no command `{absent[0]}` here; submit where Slurm's programs are "
                "installed, on a login node for example"
            )
        if importlib.util.find_spec("submitit") is None:
            python = shlex.quote(sys.executable)
            raise UsageError(
                f"--engine=slurm needs submitit: `{python} -m pip install 'submitit>=1.5.4,<1.6'`, "
                "or from a checkout of perfrun `pip install '.[slurm]'`"
            )

    def nodes(self, options: Options) -> Sequence[str]:
        """Return the nodes of the partition that are not down or drained. Raises SlurmError."""
        return nodes_of(options.get("partition", ""))

    def submit(self, plan: Plan, indices: Sequence[int], options: Options) -> None:
        """Submit arrays as large as the site allows. Raises SlurmError when not all could be."""
        wishes = wishes_of(options)
        if "%" in str(plan.folder) or "\n" in str(plan.folder):
            raise UsageError(f"{plan.folder}: Slurm takes % and line ends in a path for its own")
        batches = Batches(plan)
        known = limits(wishes.account)
        most = wishes.most_jobs or known.jobs
        room = len(indices) if most is None else most - _open_jobs()
        left = len(indices)
        for node, own in _by_node(plan, shuffled(plan, indices)):
            while own and room > 0:
                size = min(room, known.array, MOST_TASKS, len(own))
                part, own = own[:size], own[size:]
                left, room = left - size, room - size
                self._submit_batch(plan, batches, part, replace(wishes, node=node), left)
        if left:
            raise SlurmError(
                f"{len(indices) - left} of {len(indices)} shards are submitted: you may have "
                f"{most} jobs in the queue; `perfrun submit --resume` submits the others when some "
                "have ended"
            )

    def states(self, plan: Plan, indices: Sequence[int]) -> Mapping[int, ShardState]:
        """Return the states as Slurm said them, asked again when the last answer is old."""
        batches = Batches(plan)
        with FileLock(batches.folder / "lock") as lock:
            # Another process that asks now will have written the answer down.
            said = _asked(plan, batches) if lock.try_own() else batches.said()
        found = {}
        for index in indices:
            _, word = said.states.get(index, (0, ""))
            if (state := STATES.get(word)) is not None:
                found[index] = state
            elif word == "FAILED" and not ShardPlace(plan, index).attempts():
                found[index] = ShardState.MACHINE  # the node could not even begin
        return found

    def cancel(self, plan: Plan, indices: Sequence[int]) -> None:
        """Cancel the tasks of these shards that wait or run. Raises SlurmError."""
        batches = Batches(plan)
        wanted = set(indices)
        jobs = _jobs_by_shard(batches.all(), queue())
        ours = [f"{j.job}_{j.task}" for i, j in jobs.items() if i in wanted and j.state in OPEN]
        for start in range(0, len(ours), _MOST_CANCELLED):
            answer("scancel", *ours[start : start + _MOST_CANCELLED])
        batches.keep(replace(batches.said(), asked=0.0))

    def _submit_batch(
        self, plan: Plan, batches: Batches, part: Sequence[int], wishes: Wishes, others: int
    ) -> None:
        batch = batches.new(part)
        words = shard_words(plan, 0, *([wishes.python] if wishes.python else []))
        tasks = [(index, ShardPlace(plan, index).log) for index in part]
        command = shard_line(words, wishes)
        pauses = list(PAUSES_S)
        while True:
            try:
                job = submit_array(batches.folder, batch.name, tasks, command, wishes)
                break
            except SubmissionFailedError as error:
                why = str(error)
            # Nobody may have answered, and the jobs be there all the same.
            is_away = not why.strip() or is_no_controller(why)
            if is_away and (jobs := [one.job for one in queue() if one.name == batch.name]):
                job = jobs[0]
                break
            if not is_away or not pauses:
                if not is_away:  # or else the jobs may still come
                    batches.refused(batch)
                count = len(part) + others
                raise SlurmError(
                    f"`sbatch` failed: {shown(why) or 'no answer'}; {count} shards are not "
                    "submitted, and `perfrun submit --resume` submits them"
                )
            time.sleep(pauses.pop(0))
        batches.submitted(batch, job)
        said = batches.said()
        new = dict.fromkeys(part, (batch.number, "PENDING"))
        batches.keep(replace(said, states={**said.states, **new}))


def _by_node(plan: Plan, indices: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Return the shards of each node; those of any node are of the node without a name."""
    found: dict[str, list[int]] = {}
    for index in indices:
        found.setdefault(plan.shards[index].node, []).append(index)
    return list(found.items())


def _asked(plan: Plan, batches: Batches) -> Said:
    """Return what Slurm says now, or said a moment ago."""
    said = batches.said()
    known = batches.all()
    latest = {index: batch for batch in known for index in batch.indices}
    still = {
        index: batch
        for index, batch in latest.items()
        if said.states.get(index, (0, ""))[0] != batch.number or said.states[index][1] in OPEN
    }
    poll_s = parse_duration(plan.options.get("poll"), "--poll") or POLL_S
    age = time.time() - said.asked
    if not still or 0 <= age < poll_s:
        return said
    jobs = _jobs_by_shard(known, queue())
    forgotten = sorted({latest[i].job for i in still if i not in jobs and latest[i].job})
    if forgotten:
        later = _jobs_by_shard(known, accounted(forgotten))
        jobs = {**later, **jobs}
    states = {index: one for index, one in said.states.items() if index not in still}
    for index, batch in still.items():
        # Of a job that nobody remembers only the files are left.
        if (job := jobs.get(index)) is not None and (job.state in STATES or job.state in ENDED):
            states[index] = (batch.number, job.state)
    for batch in known:
        if not batch.job and (job := jobs.get(batch.indices[0])) and job.name == batch.name:
            batches.submitted(batch, job.job)
    new = Said(asked=time.time(), states=states)
    batches.keep(new)
    return new


def _jobs_by_shard(batches: Sequence[Batch], jobs: Sequence[Job]) -> dict[int, Job]:
    """Return the job of each shard's last batch."""
    by_name = {batch.name: batch for batch in batches}
    latest = {index: batch.number for batch in batches for index in batch.indices}
    found = {}
    for job in jobs:
        batch = by_name.get(job.name)
        if batch is not None and job.task < len(batch.indices):
            index = batch.indices[job.task]
            if latest[index] == batch.number:
                found[index] = job
    return found


def _open_jobs() -> int:
    """Return how many jobs of this user wait or run."""
    return sum(job.state in OPEN for job in queue())


def wishes_of(options: Options) -> Wishes:
    """Check the flags of this engine. Raises UsageError."""
    for name, value in options.items():
        if any(ord(character) < 32 or ord(character) == 127 for character in value):
            raise UsageError(f"--{name}: has a control character, which a batch script cannot have")
    exclusive = parse_word(options.get("exclusive"), "--exclusive", EXCLUSIVE)
    gres = options.get("gres", "")
    if exclusive == "devices" and not gres:
        raise UsageError("--exclusive=devices: say which devices a shard gets, with --gres")
    parse_duration(options.get("poll"), "--poll")
    prefix = parse_shell_words(options.get("node_prefix", ""), "--node_prefix")
    return Wishes(
        partition=options.get("partition", ""),
        account=options.get("account", ""),
        constraint=options.get("constraint", ""),
        gres=gres,
        minutes=_minutes(options.get("walltime", "")),
        nodes=parse_whole(options.get("nodes"), "--nodes") or 1,
        exclusive=exclusive,
        more=_more(options.get("sbatch_flags", "")),
        setup=options.get("node_setup", ""),
        prefix=tuple(prefix),
        python=options.get("node_python", ""),
        most_jobs=parse_whole(options.get("max_jobs"), "--max_jobs"),
    )


def _minutes(text: str) -> int | None:
    """Parse a time as perfrun (`90m`) or Slurm (`1-12:00:00`, `12:00:00`) writes it."""
    if found := _TIME.fullmatch(text):
        days, hours, minutes, more = (int(one or 0) for one in found.groups())
        seconds: float | None = ((days * 24 + hours) * 60 + minutes) * 60 + more
        if not seconds:
            raise UsageError(f"--walltime={text}: must be more than 0 seconds")
    elif ":" in text or "-" in text:  # 12:00 are minutes and seconds to Slurm, hours to people
        raise UsageError(f"--walltime={shown(text)}: write 90m, 2h, 12:00:00 or 1-12:00:00")
    else:
        seconds = parse_duration(text, "--walltime")
    return None if seconds is None else math.ceil(seconds / 60)


def _more(text: str) -> dict[str, str | bool]:
    found: dict[str, str | bool] = {}
    for word in parse_shell_words(text, "--sbatch_flags"):
        flag = _SBATCH_FLAG.fullmatch(word)
        if flag is None:
            raise UsageError(f"--sbatch_flags: {word!r} is no flag; write --NAME or --NAME=VALUE")
        if flag[1] in _OURS:
            raise UsageError(f"--sbatch_flags: perfrun itself sets --{flag[1]}")
        found[flag[1]] = True if flag[2] is None else flag[2]
    return found
