"""Submit an array of shards through submitit.

Of submitit's executor only what writes and submits the batch script is used, with the command line
of the shard in it: so no pickle is written or read anywhere, the nodes need no submitit, nothing
waits beside the benchmark, and its signal handlers, which end a job a minute and a half before its
time is up, are not in the way.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import submitit

_SBATCH_LIMIT_S = 120
EXCLUSIVE = ("node", "devices")


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The flags of `--engine=slurm`, checked."""

    partition: str = ""
    account: str = ""
    constraint: str = ""
    gres: str = ""
    minutes: int | None = None  # of a shard; None: the partition's own limit
    nodes: int = 1
    exclusive: str = "node"
    more: Mapping[str, str | bool] | None = None  # flags of sbatch
    setup: str = ""  # a line of the shell before each shard
    prefix: tuple[str, ...] = ()  # words before the shard's command
    python: str = ""  # perfrun's interpreter on the nodes; empty: the same as here
    most_jobs: int | None = None
    node: str = ""  # the only one that may run the array


class SubmissionFailedError(Exception):
    """`sbatch` failed; the text is what it said."""


def submit_array(
    folder: Path, name: str, tasks: Sequence[tuple[int, Path]], command: str, wishes: Wishes
) -> str:
    """Submit one array, and return its number. Each task has a shard's index and its log.

    `command` is a line of the shell that runs the shard `$shard`. Raises SubmissionFailedError.
    """
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    executor = _executor(folder)
    executor.update_parameters(**_parameters(folder, name, tasks, wishes))
    executor.parameters["map_count"] = len(tasks)
    try:
        return str(executor._submit_command(command).job_id)
    except (FailedJobError, FailedSubmissionError, OSError) as error:
        raise SubmissionFailedError(str(error)) from None


def shard_line(words: Sequence[str], wishes: Wishes) -> str:
    """Return the line of the shell that runs a shard: in place of the shell, so no signal is lost.

    The last word of `words` is the shard's index, which the script has in a variable.
    """
    return f'exec {shlex.join([*wishes.prefix, *words[:-1]])} "$shard" >> "$log" 2>&1'


def _parameters(
    folder: Path, name: str, tasks: Sequence[tuple[int, Path]], wishes: Wishes
) -> dict[str, Any]:
    """Return submitit's parameters of an array. What is None is left to the site."""
    indices = " ".join(str(index) for index, _ in tasks)
    logs = shlex.join(str(log) for _, log in tasks)
    by_node = wishes.exclusive == "node"
    return {
        "job_name": name,
        "partition": wishes.partition or None,
        "account": wishes.account or None,
        "constraint": wishes.constraint or None,
        "gres": wishes.gres or None,
        "time": wishes.minutes,  # submitit's default is five minutes
        "nodes": wishes.nodes,
        "exclusive": True if by_node else None,
        "mem": "0" if by_node else None,  # all of it: the site's default may be that of a core
        "wckey": None,  # submitit's default is refused where keys are checked
        # In the order of the array, where it has an order.
        "array_parallelism": 1 if wishes.node else len(tasks),
        "stderr_to_stdout": True,
        "use_srun": False,  # a step would have a part of the node's cores only
        "setup": [
            f"shards=({indices})",
            f"logs=({logs})",
            "shard=${shards[$SLURM_ARRAY_TASK_ID]}",
            "log=${logs[$SLURM_ARRAY_TASK_ID]}",
            'mkdir -p "${log%/*}"',
            *([wishes.setup] if wishes.setup else []),
        ],
        "additional_parameters": {
            "requeue": True,
            # One file an array; what a shard prints is in the shard's own.
            "output": str(folder / "array-%A.log"),
            # submitit's own signal would end what does not handle it; this one ends nothing.
            "signal": "CONT@1",
            **({"nodelist": wishes.node} if wishes.node else {}),
            **(wishes.more or {}),
        },
    }


def _executor(folder: Path) -> submitit.SlurmExecutor:
    import submitit

    class Executor(submitit.SlurmExecutor):
        def _make_submission_command(self, submission_file_path: Path) -> list[str]:
            limit = ["timeout", "--kill-after=5", str(_SBATCH_LIMIT_S)]
            return [*limit, "sbatch", str(submission_file_path)]

    return Executor(folder)
