"""The flags of `--engine=slurm`, what Slurm's programs print, and the batch script."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from perfrun.errors import UsageError
from perfrun.fleet.slurm import Slurm, wishes_of
from perfrun.fleet.slurm_batches import Batches
from perfrun.fleet.slurm_jobs import SubmissionFailedError, shard_line, submit_array
from perfrun.fleet.slurm_queue import Job, is_no_controller, parsed_accounting, parsed_queue
from perfrun.shards.plan import Plan, Shard, ShardState


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"walltime": "12:00"}, "--walltime=12:00: write 90m, 2h, 12:00:00 or 1-12:00:00"),
        ({"walltime": "0:00:00"}, "--walltime=0:00:00: must be more than 0 seconds"),
        ({"walltime": "soon"}, "--walltime=soon: write seconds, or 20m, 1h, 1d"),
        ({"nodes": "0"}, "--nodes=0: must be a whole number, 1 or more"),
        ({"exclusive": "core"}, "--exclusive=core: must be node or devices"),
        ({"exclusive": "devices"}, "--exclusive=devices: say which devices"),
        ({"sbatch_flags": "low"}, "--sbatch_flags: 'low' is no flag; write --NAME"),
        ({"sbatch_flags": "--array=1-9"}, "--sbatch_flags: perfrun itself sets --array"),
        ({"partition": "a\n#SBATCH --x"}, "--partition: has a control character"),
    ],
)
def test_a_wrong_flag_is_one_line(options: Mapping[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        wishes_of(options)
    assert caught.value.line.startswith(message)


@pytest.mark.parametrize(
    ("text", "minutes"), [("90m", 90), ("61s", 2), ("12:00:00", 720), ("1-12:00:01", 2161)]
)
def test_a_walltime_is_perfruns_or_slurms(text: str, minutes: int) -> None:
    assert wishes_of({"walltime": text}).minutes == minutes


def test_every_program_of_slurm_that_is_needed_must_be_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sbatch", "scancel", "scontrol", "squeue"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no command `srun` here"):
        Slurm().check({})


def test_lines_of_slurms_programs_are_read_and_others_left_out() -> None:
    queue = "7|3|RUNNING|perfrun-a-1\n8|N/A|PENDING|x|y\nslurm_load: slow\n|||\n9|1\n"
    assert parsed_queue(queue) == (
        Job(name="perfrun-a-1", job="7", task=3, state="RUNNING"),
        Job(name="x|y", job="8", task=0, state="PENDING"),
    )
    accounting = "7_3|CANCELLED by 1000|perfrun-a-1\n7_[4-9]|PENDING|perfrun-a-1\n7.batch|X|b\n"
    assert parsed_accounting(accounting) == (
        Job(name="perfrun-a-1", job="7", task=3, state="CANCELLED"),
    )


def test_only_silence_is_asked_again() -> None:
    assert is_no_controller("Unable to contact slurm controller (connect failure)")
    assert is_no_controller("Socket timed out on send/recv operation")
    assert not is_no_controller("Invalid feature specification")


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    folder = tmp_path / "a 'b'" / "submissions" / "s"
    folder.mkdir(parents=True)
    shards = tuple(Shard(index=n, method="m", environment="e", words=("x",)) for n in range(3))
    return Plan(
        submission="s",
        suite="s",
        digest="0" * 64,
        created=0.0,
        engine="slurm",
        shards=shards,
        folder=folder,
    )


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put a program of one of Slurm's names first on PATH."""
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")

    def write(name: str, script: str) -> None:
        (place / name).write_text(f"#!/bin/sh\n{script}\n")
        (place / name).chmod(0o755)

    return write


def test_a_batch_script_runs_its_shard_in_place_of_the_shell(
    made: Plan, program: Callable[[str, str], None]
) -> None:
    program("sbatch", 'cp "$1" "$0.script"; echo Submitted batch job 12')
    program("srun", "")
    batches = Batches(made)
    log = made.folder / "shards" / "2" / "log.txt"
    wishes = wishes_of({"node_setup": "export A='b c'", "node_prefix": "env B=d"})
    say = "import os, sys; print(os.getppid(), os.environ['A'], os.environ['B'], sys.argv[1:])"
    line = shard_line([sys.executable, "-c", say, "plan", "0"], wishes)
    assert submit_array(batches.folder, "n", [(1, Path("/dev/null")), (2, log)], line, wishes) == (
        "12"
    )
    (script,) = Path(made.folder.parents[2] / "bin").glob("*.script")
    text = script.read_text()
    assert "#SBATCH --array=0-1%2" in text
    for absent in ("wckey", "--time", "USR", "srun", "partition"):  # the site's own, or none
        assert absent not in text
    subprocess.run(["bash", script], env={"SLURM_ARRAY_TASK_ID": "1"}, check=True)
    parent, said = log.read_text().strip().split(" ", 1)
    assert int(parent) != 0
    assert said == "b c d ['plan', '2']"
    assert not list(batches.folder.rglob("*.pkl"))
    program("sbatch", "echo 'sbatch: error: no such account' >&2; exit 1")
    with pytest.raises(SubmissionFailedError, match="no such account"):
        submit_array(batches.folder, "n", [(1, log)], line, wishes)


def test_what_was_said_outlives_slurms_memory_and_unreadable_files(
    made: Plan, program: Callable[[str, str], None]
) -> None:
    program("squeue", 'cat "$0.out"; echo x >> "$0.asked"')
    program("sacct", "echo '5_0|NODE_FAIL|perfrun-s-1'; echo '5_2|FAILED|perfrun-s-1'")
    place = made.folder.parents[2] / "bin"
    batches = Batches(made)
    batches.submitted(batches.new([0, 1, 2]), "5")
    (place / "squeue.out").write_text("5|0|RUNNING|perfrun-s-1\n5|1|PREEMPTED|perfrun-s-1\n")
    engine = Slurm()
    # Of shard 2 only the accounting knows: it failed before the shard could begin.
    assert engine.states(made, [0, 1, 2]) == {
        0: ShardState.RUNNING,
        1: ShardState.PREEMPTED,
        2: ShardState.MACHINE,
    }
    (place / "squeue.out").write_text("")
    assert engine.states(made, [0])[0] is ShardState.RUNNING  # the answer is a moment old
    assert (place / "squeue.asked").read_text() == "x\n"
    states = batches.folder / "states.json"
    kept = json.loads(states.read_text())
    states.write_text(json.dumps({**kept, "asked": time.time() - 60}))
    assert engine.states(made, [0, 1]) == {0: ShardState.MACHINE, 1: ShardState.PREEMPTED}
    states.write_text('{"asked": "now"}')
    (batches.folder / "batch-00002.json").write_text('{"indices": [7]}')
    assert engine.states(made, [0, 1]) == {0: ShardState.MACHINE}


# `exec [exec options...] <container> <command>` is the use of Apptainer; a bind path is
# `src[:dest[:opts]]` (`apptainer exec --help`). Pyxis adds its flags to srun (its README).
APPTAINER = {"--nv": "", "--bind": r"[^:]+(:[^:]+(:(ro|rw))?)?"}
PYXIS = {
    "--container-image": r"([^@#]+@)?([^#]+#)?[^:]+(:.+)?|/.+",
    "--container-mounts": r"[^:]+:[^:]+(:[a-z+]+)?",
    "--no-container-entrypoint": "",
}
SRUN = {"--nodes": "1", "--ntasks": "1", "--cpu-bind": "none"}


def documented(begin: str) -> dict[str, str]:
    """The flags of perfrun in the line of the guide whose prefix begins so."""
    text = (Path(__file__).parents[3] / "docs" / "guides" / "fleet.md").read_text()
    line = next(one for one in text.splitlines() if f"--node_prefix='{begin}" in one)
    given = (word[2:].partition("=") for word in shlex.split(line) if word.startswith("--"))
    return {name: value for name, _, value in given if name.startswith("node_")}


def test_the_guide_calls_apptainer_as_its_help_says() -> None:
    wishes = wishes_of(documented("apptainer"))
    program, command, *options, container = wishes.prefix
    assert (program, command) == ("apptainer", "exec")
    assert options == ["--nv", "--bind", "/shared"]
    assert all(one in APPTAINER for one in options if one.startswith("--"))
    assert re.fullmatch(APPTAINER["--bind"], options[-1])
    assert container.endswith(".sif")
    line = shard_line(["ignored", "0"], wishes)
    assert line.startswith("exec apptainer exec --nv --bind /shared /shared/torch.sif ")


def test_the_guide_calls_srun_with_the_flags_that_pyxis_adds() -> None:
    program, *options = wishes_of(documented("srun")).prefix
    assert program == "srun"
    for option in options:
        name, _, value = option.partition("=")
        assert re.fullmatch({**PYXIS, **SRUN}[name], value), option
    # A step has as many tasks as its job has nodes, and each would run the shard.
    assert {"--nodes=1", "--ntasks=1"} <= {*options}
