"""A benchmark puts links, pipes, devices and endless files where perfrun reads and writes.

Nothing of this host gets into a result, nothing outside the trial's folder is changed, nobody waits
and every trial has its summary. The tests may run as root, as a benchmark in a container does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gitrepos import make_repository
from nested import nest
from worlds import World, finish, wait_held

from perfrun.dataclass import replace
from perfrun.dlbs.trial_files import device_times, step_times, use_over_time
from perfrun.errors import WorkspaceError
from perfrun.launchers.interpreter_wrapper import Lifeline
from perfrun.launchers.launcher import has_outcome, stream_file, write_order_file
from perfrun.launchers.local import LocalLauncher
from perfrun.options.plan import parse_repos
from perfrun.probes.device_log import DeviceLog
from perfrun.probes.process_tree import Timeline
from perfrun.run.companion import fingerprint, read_requests
from perfrun.run.digest import digest_of_module
from perfrun.run.environment import Paths, Service
from perfrun.run.outcome import read_leftovers
from perfrun.run.progress import Follower
from perfrun.run.taken_back import take_back
from perfrun.summary.result_folder import SUMMARY, ResultFolder, Storage, write_whole
from perfrun.untrusted import remove_tree
from perfrun.worker.companion import write_request
from perfrun.worker.outcome_file import OUTCOME
from perfrun.worker.test_log import encode_entry
from perfrun.workspace.checkouts import checked_out
from perfrun.workspace.worktree import EditedPath, diff_digest, read_note, write_note

# Whoever follows a pipe waits for ever: a test that hangs is an attack that succeeded.
pytestmark = pytest.mark.timeout(120)
SECRET = "-----BEGIN PRIVATE KEY-----"
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave this behind")
HEADER = json.dumps({"name": SECRET, "statistics": {}, "notes": []})


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A folder of the host with a file that is none of the benchmark's business."""
    folder = tmp_path / "host"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    # What a reader of each of the files would understand.
    (folder / "outcome.json").write_text(json.dumps({"complete": True, "notes": [SECRET]}))
    (folder / "series_1.json").write_text(HEADER)
    (folder / "series_1.rows").write_bytes(b"\1" * 64)
    (folder / "proto_C.m").write_bytes(encode_entry(SECRET))
    return folder


@pytest.fixture
def trial(tmp_path: Path, host: Path) -> ResultFolder:
    storage = Storage(tmp_path / "workspace" / "output", "run", print)
    storage.open()
    return storage.new_folder("a 'trial'\n")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def removed(tmp_path: Path) -> Iterator[None]:
    """Folders that are as deep as these cannot be removed by pytest itself."""
    yield
    remove_tree(tmp_path)


@pytest.fixture(autouse=True)
def unharmed(host: Path) -> Iterator[None]:
    """Whatever a test does: the host's files are what they were, and there are no more."""
    before = {path.name: path.read_bytes() for path in host.iterdir()}
    yield
    assert {path.name: path.read_bytes() for path in host.iterdir()} == before


def link(path: Path, host: Path) -> None:
    same = host / path.name
    path.symlink_to(same if same.exists() else host / "secret")


def hanging_link(path: Path, host: Path) -> None:
    path.symlink_to(host / "made-by-perfrun")


def endless_device(path: Path, host: Path) -> None:
    path.symlink_to("/dev/zero")


def pipe(path: Path, host: Path) -> None:
    os.mkfifo(path)


def folder(path: Path, host: Path) -> None:
    path.mkdir()
    (path / "kept").touch()


def sparse(path: Path, host: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**42)


def socket_file(path: Path, host: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket is short
        try:
            one.bind(path.name)
        finally:
            os.chdir(here)


def own_link(path: Path, host: Path) -> None:
    path.symlink_to(path.name)


Plant = Callable[[Path, Path], None]
PLANTS = (link, hanging_link, endless_device, pipe, folder, sparse, socket_file, own_link)
each_plant = pytest.mark.parametrize("plant", PLANTS, ids=lambda one: one.__name__)


# --- what is read after a trial -------------------------------------------------------------------


@each_plant
@pytest.mark.parametrize(
    "name",
    [
        "perfrun/outcome.json",
        "perfrun/outcome.next",
        "perfrun/series_1.json",
        "perfrun/series_1.rows",
        "perfrun/stack.txt",
        "stderr.log",
        "proto_C.m",
        "proto_2_C.m",
    ],
)
def test_a_trial_shows_no_file_of_the_host_and_holds_nobody_up(
    trial: ResultFolder, host: Path, name: str, plant: Plant
) -> None:
    if name.endswith(".rows"):
        (trial.private / "series_1.json").write_text(HEADER.replace(SECRET, "s"))
    elif name.endswith("series_1.json"):
        (trial.private / "series_1.rows").write_bytes(struct.pack("<4q", 1, 1, -1, 1))
    plant(trial.path / name, host)
    left = read_leftovers(trial.path, trial.private)
    assert SECRET not in repr(left)
    assert (left.record, left.reports, left.series) == ({}, (), ())
    text = (left.stack or "") + (left.stderr_tail or "")
    if plant is sparse and name.endswith((".txt", ".log")):  # its end is what may be read
        assert text == ""
    else:
        [note] = left.notes
        assert note.startswith("series_1.json" if name.endswith(".rows") else Path(name).name)


@pytest.mark.parametrize("name", ["perfrun", ""])
def test_a_folder_that_became_a_link_is_not_read(
    trial: ResultFolder, host: Path, name: str
) -> None:
    path = trial.path / name if name else trial.path
    if not name:
        trial.private.rmdir()
    path.rmdir()
    path.symlink_to(host)
    left = read_leftovers(trial.path, trial.private)
    assert SECRET not in repr(left)
    assert left.record == {}
    assert left.notes


@pytest.mark.parametrize("prefix", ["perfrun/series_", "proto_"])
def test_thousands_of_files_cost_a_bounded_time_and_few_notes(
    trial: ResultFolder, prefix: str
) -> None:
    for number in range(1, 1200):
        name = f"{prefix}{number}.json" if "series" in prefix else f"{prefix}{number}_x"
        (trial.path / name).write_text("no such thing")
    left = read_leftovers(trial.path, trial.private)
    assert len(left.notes) <= 25
    assert "more than 1000" in "".join(left.notes)


def test_rows_of_gigabytes_are_refused_before_they_are_read(trial: ResultFolder) -> None:
    for number in range(1, 4):
        (trial.private / f"series_{number}.json").write_text(HEADER)
        with (trial.private / f"series_{number}.rows").open("wb") as file:
            file.truncate(2**29)
    left = read_leftovers(trial.path, trial.private)
    assert left.series == ()
    assert len(left.notes) == 3


@each_plant
def test_a_request_to_the_companion_is_no_file_of_the_host(
    trial: ResultFolder, host: Path, plant: Plant
) -> None:
    plant(trial.private / "companion_1.json", host)
    requests, notes = read_requests(trial.private)
    assert requests == []
    assert len(notes) == 1
    assert SECRET not in notes[0]


def test_requests_in_a_folder_that_is_a_link_are_none(trial: ResultFolder, host: Path) -> None:
    elsewhere = host.parent / "elsewhere"
    elsewhere.mkdir()
    write_request(str(elsewhere), {})
    trial.private.rmdir()
    trial.private.symlink_to(elsewhere)
    assert read_requests(trial.private) == ([], [])


@pytest.mark.parametrize("plant", [endless_device, pipe, folder], ids=lambda one: one.__name__)
def test_a_companion_that_names_a_device_as_its_module_makes_nobody_wait(
    tmp_path: Path, host: Path, plant: Plant
) -> None:
    plant(tmp_path / "module.py", host)
    assert fingerprint(tmp_path / "module.py") == (None, 0)


@each_plant
def test_what_dlbs_shows_is_no_file_of_the_host(
    trial: ResultFolder, host: Path, plant: Plant
) -> None:
    (trial.path / "scaling_weak").mkdir()
    for name in ("process_info.log", "perfrun/series_1.rows", "scaling_weak/scaling.json"):
        plant(trial.path / name, host)
    assert step_times({"rows_file": "series_1.rows", "times_s": [1.0]}, trial.path) == [1.0]
    assert step_times({"rows_file": "../../host/series_1.rows"}, trial.path) == []
    assert device_times(trial.path) is None
    assert use_over_time(trial.path, 1) == {}


@pytest.mark.parametrize("plant", [pipe, folder, own_link], ids=lambda one: one.__name__)
def test_an_outcome_that_is_no_file_is_no_outcome(
    trial: ResultFolder, host: Path, plant: Plant
) -> None:
    plant(trial.private / OUTCOME, host)
    assert not has_outcome(trial.private)


# --- the summary ----------------------------------------------------------------------------------


@each_plant
@pytest.mark.parametrize("suffix", ["", ".next"])
def test_a_summary_takes_the_place_of_what_the_trial_put_there(
    trial: ResultFolder, host: Path, tmp_path: Path, plant: Plant, suffix: str
) -> None:
    plant(trial.path / (SUMMARY + suffix), host)
    said: list[str] = []
    path = Storage(tmp_path / "workspace" / "output", "run", said.append).write_summary(trial, "{}")
    assert path == trial.path / SUMMARY
    assert path.read_text() == "{}"
    assert not path.is_symlink()
    assert said == []


def test_a_summary_is_not_written_into_another_file_with_a_name_in_the_folder(
    trial: ResultFolder, host: Path, tmp_path: Path
) -> None:
    os.link(host / "secret", trial.path / SUMMARY)
    os.link(host / "secret", trial.path / f"{SUMMARY}.next")
    Storage(tmp_path / "workspace" / "output", "run", print).write_summary(trial, "{}")
    assert (trial.path / SUMMARY).read_text() == "{}"


@pytest.mark.parametrize("what", ["link", "hanging link", "nothing"])
def test_a_summary_lands_in_the_workspace_where_the_trial_replaced_its_folder(
    trial: ResultFolder, host: Path, tmp_path: Path, what: str
) -> None:
    trial.path.rename(tmp_path / "moved")
    if what != "nothing":
        trial.path.symlink_to(host if what == "link" else host / "made-by-perfrun")
    path = Storage(tmp_path / "workspace" / "output", "run", print).write_summary(trial, "{}")
    assert path == trial.path / SUMMARY
    assert not trial.path.is_symlink()
    assert path.read_text() == "{}"


def test_a_profile_is_kept_where_the_trial_replaced_the_folder_of_profiles(
    trial: ResultFolder, host: Path
) -> None:
    (trial.path / "profiles").symlink_to(host)
    inner = ResultFolder(trial.path / "profiles" / "torch", depth=3)
    inner.write("profile_summary.json", "{}")
    assert not (trial.path / "profiles").is_symlink()
    assert (inner.path / "profile_summary.json").read_text() == "{}"


def test_a_workspace_that_is_the_users_own_link_is_followed(tmp_path: Path, host: Path) -> None:
    disk = tmp_path / "large disk"
    disk.mkdir()
    output = tmp_path / "linked"
    output.symlink_to(disk)
    storage = Storage(output, "run", print)
    storage.open()
    inner = storage.new_folder("id")
    inner.private.rmdir()
    inner.path.rmdir()
    inner.path.symlink_to(host)
    assert storage.write_summary(inner, "{}").read_text() == "{}"
    assert (disk / "id" / SUMMARY).read_text() == "{}"
    write_whole(output / "report.json", "{}")
    assert (disk / "report.json").read_text() == "{}"
    storage.close()


def test_the_space_set_aside_is_not_written_through_a_link(tmp_path: Path, host: Path) -> None:
    output = tmp_path / "output"
    output.mkdir()
    (output / ".reserve-run").symlink_to(host / "made-by-perfrun")
    storage = Storage(output, "run", print)
    storage.open()
    storage.close()
    assert not (host / "made-by-perfrun").exists()


def test_the_folder_for_rescued_results_is_not_one_that_somebody_else_made(
    trial: ResultFolder,
    host: Path,
    temporary: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (temporary / "perfrun-rescue-run").symlink_to(host)
    trial.private.rmdir()
    trial.path.rmdir()
    trial.path.write_text("in the way")
    said: list[str] = []
    Storage(tmp_path / "workspace" / "output", "run", said.append).write_summary(trial, '{"a": 1}')
    assert capsys.readouterr().err == '{"a": 1}\n'  # at least shown
    assert str(trial.path) in said[-1]


# --- what is written and followed while a trial runs ----------------------------------------------


@each_plant
def test_samples_are_not_appended_to_what_the_benchmark_put_there(
    trial: ResultFolder, host: Path, plant: Plant
) -> None:
    plant(trial.path / "process_info.log", host)
    before = (trial.path / "process_info.log").lstat().st_size
    with Timeline(trial.path / "process_info.log") as timeline:
        timeline.add({"time": 0.0, "tree_pss": 1.0})
    if plant is not sparse:  # a file of its own: to that perfrun appends
        assert (trial.path / "process_info.log").lstat().st_size == before


def test_samples_are_not_appended_to_a_second_name_of_the_hosts_file(
    trial: ResultFolder, host: Path
) -> None:
    os.link(host / "secret", trial.path / "process_info.log")
    with Timeline(trial.path / "process_info.log") as timeline:
        timeline.add({"time": 0.0, "tree_pss": 1.0})


def test_readings_of_devices_make_no_file_in_a_folder_of_the_host(
    trial: ResultFolder, host: Path
) -> None:
    trial.private.rmdir()
    trial.private.symlink_to(host)
    log = DeviceLog(trial.private / "devices.csv", ["a"])
    log.add(0.0, [1])
    log.close()


@pytest.mark.parametrize(
    "plant", [link, endless_device, pipe, own_link, socket_file], ids=lambda one: one.__name__
)
def test_output_that_became_a_link_or_a_pipe_is_not_shown(
    trial: ResultFolder, host: Path, plant: Plant
) -> None:
    plant(trial.path / "stdout.log", host)
    shown: list[str] = []
    follower = Follower({trial.path / "stdout.log": shown.append})
    follower.start()
    follower.finish()
    assert shown == []


@each_plant
def test_orders_and_streams_take_the_place_of_what_was_there(
    trial: ResultFolder, host: Path, plant: Plant
) -> None:
    for name in ("order.json", "stdout.log"):
        if plant is not folder:
            plant(trial.path / name, host)
    write_order_file(trial.path / "order.json", {"action": "run"})
    with stream_file(trial.path / "stdout.log") as file:
        os.write(file, b"text")
    assert json.loads((trial.path / "order.json").read_text()) == {"action": "run"}
    assert (trial.path / "stdout.log").read_text() == "text"


@each_plant
def test_a_pid_that_a_wrapped_worker_wrote_is_read_from_a_file_of_its_own(
    trial: ResultFolder, host: Path, plant: Plant
) -> None:
    (host / "worker.pid").write_text(f"{os.getpid()}\n")
    try:
        lifeline = Lifeline(trial.private)
        plant(trial.private / "worker.pid", host)
        assert lifeline.worker_below(os.getpid(), lambda _: True) is None
        lifeline.close()
    finally:
        (host / "worker.pid").unlink()


def test_a_lifeline_removes_no_file_of_the_host(trial: ResultFolder, host: Path) -> None:
    (host / "lifeline").touch()
    lifeline = Lifeline(trial.private)
    trial.private.rename(trial.path / "moved")
    trial.private.symlink_to(host)
    lifeline.close()
    assert (host / "lifeline").exists()
    (host / "lifeline").unlink()


# --- the folder of a service, in which imported code can write ------------------------------------

SERVICE = """
import os, sys
folder = os.path.dirname(os.readlink("/proc/self/fd/1"))
answer, log = os.path.join(folder, "answer"), os.path.join(folder, "log")
print("the last line", flush=True)
{attack}
os._exit(3)
"""
NESTED = """
import shutil
shutil.rmtree(folder); os.mkdir(folder); os.chdir(folder)
for _ in range(1100): os.mkdir('d'); os.chdir('d')
"""


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        ("os.remove(log); os.symlink({host}, log)", "exit status 3"),
        ("os.remove(log); os.mkfifo(log)", "exit status 3"),
        ("os.remove(log); os.symlink('/dev/zero', log)", "exit status 3"),
        ("os.truncate(log, 2**42)", "exit status 3"),
        ("os.remove(answer); os.symlink({host}, answer)", "the last line"),
        ("os.remove(answer); os.mkfifo(answer)", "the last line"),
        ("os.remove(answer); os.symlink('/dev/zero', answer)", "the last line"),
        ("os.rename(folder, folder + '-moved'); os.symlink({folder}, folder)", "exit status 3"),
        (NESTED, "exit status 3"),
    ],
)
def test_imported_code_turns_its_services_folder_against_nobody(
    tmp_path: Path, host: Path, temporary: Path, attack: str, said: str
) -> None:
    filled = attack.format(host=repr(str(host / "secret")), folder=repr(str(host)))
    (tmp_path / "evil.py").write_text(SERVICE.format(attack=filled))
    order = {"action": "discover", "targets": [{"module": "evil"}]}
    with Service(LocalLauncher(sys.executable), order, Paths(first=(str(tmp_path),))) as service:
        assert service.answer() == ""
        end = service.end()
    assert said in end.replace("\0", "")
    assert SECRET not in end
    assert [path.name for path in temporary.iterdir() if not path.name.endswith("-moved")] == []


# --- the module's hash ----------------------------------------------------------------------------


def digest(file: object, *roots: Path, is_apart: bool = False) -> Any:
    return digest_of_module(file, "pkg.cases", [str(root) for root in roots], is_apart=is_apart)


@pytest.mark.parametrize("is_apart", [False, True], ids=["local", "in a container"])
def test_the_hash_of_a_module_is_that_of_no_other_file(
    tmp_path: Path, host: Path, is_apart: bool
) -> None:
    (tmp_path / "code" / "pkg").mkdir(parents=True)
    module = tmp_path / "code" / "pkg" / "cases.py"
    module.write_text("the module")
    linked = tmp_path / "code" / "linked"
    linked.mkdir()
    (linked / "cases.py").symlink_to(host / "secret")
    os.mkfifo(tmp_path / "code" / "cases.py")
    found, note = digest(str(module), tmp_path / "code", is_apart=is_apart)
    assert (len(found), note) == (64, None)
    attacks: list[object] = [
        *("/dev/zero", "/etc/shadow", str(host / "secret"), str(linked / "cases.py")),
        *(str(module.parent / ".." / ".." / "host" / "secret"), "pkg/cases.py", "\0", "/" * 9999),
        *(str(tmp_path / "code" / "cases.py"), str(tmp_path / "absent" / "cases.py"), 7, ["/"]),
    ]
    for attack in attacks:
        found, note = digest(attack, tmp_path / "code", is_apart=is_apart)
        assert found is None, attack
        assert note.startswith("the SHA-256 of the benchmark's module is not known: ")
    assert digest(None) == (None, None)


def test_a_container_names_no_module_of_this_host_outside_the_import_paths(
    tmp_path: Path, host: Path
) -> None:
    (host.parent / "cases.py").write_text("of the host")
    assert digest(str(tmp_path / "cases.py"), host, is_apart=True)[0] is None
    assert len(digest(str(tmp_path / "cases.py"), host, is_apart=False)[0]) == 64  # installed
    package = tmp_path / "pkg" / "cases"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    assert len(digest(str(package / "__init__.py"), tmp_path, is_apart=True)[0]) == 64


# --- rights that a trial leaves -------------------------------------------------------------------


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6777, 0o1644, 0o4644])
def test_no_file_of_a_trial_gives_another_users_rights(trial: ResultFolder, mode: int) -> None:
    deep = trial.path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "tool").touch()
    (deep / "tool").chmod(mode)
    notes = take_back(trial.path, from_container=False)
    assert mode_of(deep / "tool") == mode & 0o777
    assert any("tool" in note for note in notes) is bool(mode & 0o6000)


def test_a_file_with_rights_is_found_in_a_closed_folder_of_any_depth(trial: ResultFolder) -> None:
    here = os.open(trial.path, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    file = os.open("tool", os.O_CREAT | os.O_WRONLY, dir_fd=here)
    os.fchmod(file, 0o4755)
    (trial.path / "d").chmod(0)
    take_back(trial.path, from_container=True)
    assert stat.S_IMODE(os.fstat(file).st_mode) == 0o755
    os.close(file)
    os.close(here)


def test_the_hosts_program_keeps_its_bits_and_its_second_name_goes(
    trial: ResultFolder, tmp_path: Path
) -> None:
    program = tmp_path / "sudo"
    program.touch()
    program.chmod(0o4755)
    os.link(program, trial.path / "second name")
    (trial.path / "link").symlink_to(program)
    notes = take_back(trial.path, from_container=False)
    assert mode_of(program) == 0o4755
    assert not (trial.path / "second name").exists()
    assert "second name" in notes[0]


@ROOT
def test_what_a_containers_root_left_belongs_to_the_user_and_has_no_capabilities(
    trial: ResultFolder,
) -> None:
    tool = trial.path / "tool"
    tool.write_text("#!/bin/sh")
    tool.chmod(0o755)
    os.setxattr(tool, "security.capability", bytes.fromhex("0100000280000000" + "00" * 12))
    os.chown(tool, 12345, 12345)
    os.setxattr(tool, "security.capability", bytes.fromhex("0100000280000000" + "00" * 12))
    (trial.path / "link").symlink_to("/etc/passwd")
    os.chown(trial.path / "link", 12345, 12345, follow_symlinks=False)
    os.mknod(trial.path / "disk", 0o666 | stat.S_IFBLK, os.makedev(7, 0))
    os.mknod(trial.path / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    owner = Path("/etc/passwd").stat().st_uid
    notes = take_back(trial.path, from_container=True)
    assert "security.capability" not in os.listxattr(tool)
    assert {path.lstat().st_uid for path in trial.path.iterdir()} == {os.geteuid()}
    assert Path("/etc/passwd").stat().st_uid == owner
    assert sorted(path.name for path in trial.path.iterdir()) == ["link", "perfrun", "tool"]
    assert "devices, removed: " in "".join(notes)


def test_a_trials_folder_that_became_a_link_is_not_taken_back(
    trial: ResultFolder, host: Path
) -> None:
    (host / "secret").chmod(0o4755)
    trial.private.rmdir()
    trial.path.rmdir()
    trial.path.symlink_to(host)
    assert take_back(trial.path, from_container=True) == ()
    assert mode_of(host / "secret") == 0o4755


# --- whole runs -----------------------------------------------------------------------------------

CASES = """
import json
from pathlib import Path

class Cases(Benchmark):
    def first(self):
        self.report_benchmark(wall_time=1.0)

    def last(self):
        self.report_benchmark(wall_time=3.0)

    def plants(self):
        host, own = Path({host!r}), Path(self.output_dir)
        for name in ("stderr.log", "stdout.log", "perfrun/stack.txt", "perfrun/series_1.json"):
            (own / name).unlink(missing_ok=True)
            (own / name).symlink_to(host / "secret")
        for name in ("perfzero_summary.json", "perfzero_summary.json.next", "proto_x"):
            os.mkfifo(own / name)
        (own / "profiles").symlink_to(host)
        (own / "perfrun" / "companion_1.json").symlink_to("/dev/zero")
        (own / "tool").touch()
        (own / "tool").chmod(0o4755)
        (own / "process_info.log").unlink(missing_ok=True)
        (own / "process_info.log").symlink_to(host / "secret")
        os.ftruncate(1, 8 * 2**30)
        os.ftruncate(2, 8 * 2**30)
        self.report_benchmark(wall_time=2.0)

    def hides_its_outcome(self):
        own = Path(self.output_dir, "perfrun")
        for name in ("outcome.json", "outcome.next"):
            (own / name).unlink(missing_ok=True)
            os.mkfifo(own / name)
        os._exit(0)

    def moves(self):
        own = Path(self.output_dir)
        own.rename(own.parent.parent / "moved")
        own.symlink_to({host!r})
        os._exit(0)

    def holds(self):
        own = Path(self.output_dir)
        for name in ("perfrun/outcome.json", "perfrun/stack.txt", "proto_x",
                     "perfzero_summary.json"):
            (own / name).unlink(missing_ok=True)
            os.mkfifo(own / name)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path({host!r}).parent.joinpath("held").touch()
        time.sleep(600)
"""


@pytest.fixture
def world(tmp_path: Path, host: Path) -> World:
    world = World(tmp_path / "world")
    world.folder.mkdir()
    world.write(CASES.format(host=str(host)))
    return world


@pytest.mark.timeout(600)
def test_a_run_of_benchmarks_that_plant_links_and_pipes_has_all_its_summaries(
    world: World, host: Path
) -> None:
    names = ("first", "plants", "hides_its_outcome", "moves", "last")
    methods = ",".join(f"pkg.cases.Cases.{name}" for name in names)
    done = world.run("--format=json", "--timeout=60", "--profile=cprofile", methods=methods)
    assert done.code == 1, done.stderr
    assert [done.statuses[0], done.statuses[1], done.statuses[-1]] == ["passed"] * 3
    assert set(done.statuses[2:4]) <= {"failed", "exited"}
    assert SECRET not in done.stdout + done.stderr
    assert "internal error" not in done.stderr
    assert len(done.stdout) + len(done.stderr) < 1_000_000
    paths = [Path(result["summary"]) for result in done.results]
    assert all(path.parent.parent == world.workspace / "output" for path in paths)
    assert not any(path.is_symlink() or path.parent.is_symlink() for path in paths)
    for path in world.workspace.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.lstat().st_size < 2**20:
            assert SECRET.encode() not in path.read_bytes(), path
    planted = done.summaries()[1]["perfrun"]
    assert mode_of(paths[1].parent / "tool") == 0o755
    assert any("setuid" in note for note in planted["notes"])
    assert any("stderr.log" in note for note in planted["notes"])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["deadline", "SIGINT"])
def test_a_trial_full_of_pipes_is_ended_by_deadline_and_signal(
    world: World, host: Path, how: str
) -> None:
    words = ["--format=json", *(["--timeout=8"] if how == "deadline" else [])]
    process = world.start(*words, methods="pkg.cases.Cases.holds")
    if how == "SIGINT":
        wait_held(process, host.parent / "held")
        process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.statuses == ["timed_out" if how == "deadline" else "interrupted"]
    assert len(done.summaries()) == 1
    assert world.left_running() == []


# --- a checkout, in which a local benchmark can write ---------------------------------------------


@pytest.mark.parametrize("what", ["pipe", "deep", "lock"])
def test_a_checkout_that_a_benchmark_filled_with_traps_serves_the_next_run(
    tmp_path: Path, host: Path, what: str
) -> None:
    versions = [{"code.py": f"{number}\n" * 1000} for number in (1, 2)]
    first, second = make_repository(tmp_path / "source", versions)
    workspace = tmp_path / "work"

    def folder_at(commit: str) -> Path:
        repos = parse_repos(f"file://{tmp_path / 'source'};main;{commit}")
        with checked_out(repos, workspace=workspace, use_cached=False) as [checkout]:
            assert checkout.git_hash == commit
        return checkout.path

    folder = folder_at(first)
    if what == "pipe":  # in the place of a file, while an update is under way
        note = read_note(folder)
        assert note is not None
        write_note(folder, replace(note, updating_to=second))
        (folder / "code.py").unlink()
        os.mkfifo(folder / "code.py")
        with pytest.raises(WorkspaceError, match=r"code\.py"):
            folder_at(second)
        return
    if what == "deep":
        nest(folder, 1100, "d")
        assert diff_digest(folder, (EditedPath(path="d/", head_object=""),))
        (folder / ".git" / "info").mkdir(exist_ok=True)
        (folder / ".git" / "info" / "exclude").write_text("d/\n")
    if what == "lock":
        (folder / ".git" / "HEAD.lock").symlink_to(host / "absent")
    assert folder_at(second) == folder
