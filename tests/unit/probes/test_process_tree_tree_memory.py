"""Trees of real processes that share memory in all ways, compared with known sizes.

The sizes are known from the programs' allocations and the kernel's mark of the parent. Every peak
is held until the sampler has seen it, or for a minute: perfrun promises to see peaks of 0.25 s, but
only on a machine that has time for the sampler.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfrun.probes import process_tree
from perfrun.probes.process_tree import TreeSampler, TreeUsage
from perfrun.probes.shared_memory import SharedMemory, Sizes, proportional_bytes
from perfrun.worker import procfs
from perfrun.worker.procfs import memory_marks

MIB = 2**20
LONGEST_S = 60.0  # that a peak is held
# Children begin when the parent is told to go on; its peak begins when the last of them has said
# that it holds its own, and lasts until it is told to go on again.
SHARED = """
import os
block = bytearray(b"x") * (300 << 20)
start, begin = os.pipe()
said, say = os.pipe()
wait, go = os.pipe()
def child():
    os.close(begin); os.close(go)
    os.read(start, 1)
    {body}
    os.write(say, b"x"); os.read(wait, 1); os._exit(0)
children = []
for _ in range(3):
    pid = os.fork()
    if not pid: child()
    children.append(pid)
print("forked", flush=True); input()
os.close(begin)
for _ in children: os.read(said, 1)
print("peak", flush=True); input()
{end}
os.close(go)
for pid in children: os.waitpid(pid, 0)
"""
SHARED_MEMORY = """
import multiprocessing
from multiprocessing import shared_memory
def child(name, ready, go):
    block = shared_memory.SharedMemory(name=name)
    block.buf[::4096] = b"x" * (200 << 8)
    ready.release()
    go.wait()
if __name__ == "__main__":
    block = shared_memory.SharedMemory(create=True, size=200 << 20)
    context = multiprocessing.get_context("fork")
    ready, go = context.Semaphore(0), context.Event()
    children = [context.Process(target=child, args=(block.name, ready, go)) for _ in range(3)]
    for one in children: one.start()
    for _ in children: ready.acquire()
    print("peak", flush=True); input()
    go.set()
    for one in children: one.join()
    block.close(); block.unlink()
"""
Seen = Callable[[TreeSampler], bool]


def watched(source: str, log: Path, *stages: Seen) -> TreeUsage:
    """Run a program to its end under the sampler.

    Each time it has printed a line, it is let go when the sampler has seen what belongs to that
    stage. What it never sees is for the assertions of the test.
    """
    process = subprocess.Popen([sys.executable, "-c", source], stdin=-1, stdout=-1, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    sampler = TreeSampler(process.pid, log)
    sampler.start()
    with process.stdin as words, process.stdout as lines:
        for is_seen in stages:
            assert lines.readline()
            end = time.monotonic() + LONGEST_S
            enough = sys.maxsize  # a few samples more: what was right must not go wrong again
            while sampler._samples < enough and time.monotonic() < end:
                if enough == sys.maxsize and is_seen(sampler):
                    enough = sampler._samples + 5
                time.sleep(0.01)
            words.write("\n")
            words.flush()
        assert process.wait(240) == 0
    return sampler.finish()


def begun(sampler: TreeSampler) -> bool:
    """Return True once a sample has been taken."""
    return sampler._samples > 0


def family(sampler: TreeSampler) -> bool:
    """Return True once all four processes were found and PSS was read."""
    return len(sampler.pids) == 4 and sampler._tree.pss.readings > 0


def peak_above(own_bytes: int) -> Seen:
    """Return a test for a peak of the parent's memory and this much of the children's own."""

    def is_seen(sampler: TreeSampler) -> bool:
        return sampler._tree.pss.peak_bytes >= 0.975 * (sampler._peak_rss + own_bytes)

    return is_seen


def program(body: str, end: str = "") -> str:
    return SHARED.format(body=body, end=end)


def test_what_forked_children_share_counts_once(tmp_path: Path) -> None:
    used = watched(program("pass"), tmp_path / "log", family, peak_above(0))
    assert used.peak_rss_bytes is not None
    assert used.tree_peak_pss_bytes is not None
    assert used.tree_peak_rss_bytes is not None
    # The children have hardly anything of their own.
    assert used.tree_peak_pss_bytes == pytest.approx(used.peak_rss_bytes, rel=0.03)
    assert used.tree_peak_rss_bytes > 3.5 * used.peak_rss_bytes
    assert used.most_processes == 4
    assert 1 <= used.tree_pss_looks <= 20
    assert used.tree_pss_unreadable == 0


def test_what_a_child_adds_counts_for_each(tmp_path: Path) -> None:
    source = program('own = bytearray(b"y") * (60 << 20)')
    used = watched(source, tmp_path / "log", begun, peak_above(3 * 60 * MIB))
    assert used.peak_rss_bytes is not None
    expected = used.peak_rss_bytes + 3 * 60 * MIB
    assert used.tree_peak_pss_bytes == pytest.approx(expected, rel=0.03)


def test_pages_that_a_child_writes_to_are_shared_no_more(tmp_path: Path) -> None:
    # Resident memory does not change by that: only page faults tell.
    source = program('block[:100 << 20:4096] = b"y" * (100 << 8)')
    used = watched(source, tmp_path / "log", family, peak_above(3 * 100 * MIB))
    assert used.peak_rss_bytes is not None
    expected = used.peak_rss_bytes + 3 * 100 * MIB
    assert used.tree_peak_pss_bytes == pytest.approx(expected, rel=0.03)


def test_shared_memory_counts_once(tmp_path: Path) -> None:
    def is_seen(sampler: TreeSampler) -> bool:
        tree = sampler._tree
        return tree.peak_rss_bytes > 600 * MIB and tree.pss.peak_bytes > 205 * MIB

    used = watched(SHARED_MEMORY, tmp_path / "log", is_seen)
    assert used.tree_peak_pss_bytes is not None
    assert used.tree_peak_rss_bytes is not None
    # Five interpreters (multiprocessing has one that frees shared memory) share most of theirs.
    assert 205 * MIB < used.tree_peak_pss_bytes < 250 * MIB
    assert used.tree_peak_rss_bytes > 3 * 200 * MIB


def test_executed_children_share_next_to_nothing(tmp_path: Path) -> None:
    child = "block = bytearray(b'x') * (150 << 20); print(1, flush=True); input()"
    source = f"""
import subprocess, sys
line = [sys.executable, "-c", {child!r}]
children = [subprocess.Popen(line, stdin=-1, stdout=-1, text=True) for _ in range(2)]
for one in children: one.stdout.readline()
print("peak", flush=True); input()
for one in children: one.communicate("\\n")
"""
    expected = 2 * 150 * MIB + 25 * MIB
    used = watched(
        source, tmp_path / "log", lambda sampler: sampler._tree.pss.peak_bytes > 0.955 * expected
    )
    assert used.tree_peak_pss_bytes == pytest.approx(expected, rel=0.05)


def test_children_that_are_killed_at_their_peak_were_seen(tmp_path: Path) -> None:
    body, end = 'own = bytearray(b"y") * (100 << 20)', "for pid in children: os.kill(pid, 9)"
    source = program(body, end)
    used = watched(source, tmp_path / "log", begun, peak_above(3 * 100 * MIB))
    assert used.peak_rss_bytes is not None
    expected = used.peak_rss_bytes + 3 * 100 * MIB
    assert used.tree_peak_pss_bytes == pytest.approx(expected, rel=0.03)


def test_a_process_alone_has_no_reading_of_pss(tmp_path: Path) -> None:
    source = 'b = bytearray(b"x") * (50 << 20); print(1, flush=True); input()'
    used = watched(source, tmp_path / "l", lambda sampler: sampler._samples >= 5)
    assert used.tree_pss_looks == 0
    assert used.tree_peak_pss_bytes is None
    assert used.most_processes == 1


def test_readings_stay_within_their_budget() -> None:
    """A tree that seems to grow for ever, with processes whose PSS takes long to read."""
    memory = SharedMemory()
    here = os.getpid()
    begin = time.perf_counter()
    size = 100 * MIB
    while time.perf_counter() - begin < 2.0:
        size += MIB  # resident memory rises by 1 % a step, so that readings are wanted all the time
        sizes: Sizes = {here: (size, 0), os.getppid(): (size, 0)}
        memory.follow(sizes, dict)
        time.sleep(0.001)
    assert memory.readings > 0
    # The savings, the income, and at most one reading more.
    assert memory.cpu_s < 0.6 + 0.002 * 2.0 + 0.2


def test_pss_of_this_process_lies_below_its_resident_memory() -> None:
    own = proportional_bytes(os.getpid())
    assert own is not None
    assert 0 < own <= (memory_marks()["peak_rss_bytes"] or 0)


def test_pss_of_a_process_that_has_ended_is_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert proportional_bytes(process.pid) == 0
    process.wait()
    assert proportional_bytes(process.pid) == 0


@pytest.mark.parametrize(
    ("look_s", "found", "least", "most"),
    [
        (0.0001, [[]], 0.0008, 0.00101),  # nothing new: the longer pause
        (0.0001, [[1], []], 0.0016, 0.00201),  # processes come and go
        (0.005, [[]], 0.0018, 0.00201),  # so big a tree that the longer pause would hide much
    ],
    ids=["others", "changing", "big"],
)
def test_processes_that_begin_all_the_time_do_not_make_searches_cost_more(
    monkeypatch: pytest.MonkeyPatch,
    look_s: float,
    found: list[list[int]],
    least: float,
    most: float,
) -> None:
    """Each search has a known cost, and each sample of 100 s finds a new pid on the machine."""
    clock = {"wall": 0.0, "cpu": 0.0}
    trees = itertools.cycle(found)

    def look(_: int) -> list[int]:
        clock["cpu"] += look_s
        return next(trees)

    clocks = SimpleNamespace(perf_counter=lambda: clock["wall"], thread_time=lambda: clock["cpu"])
    monkeypatch.setattr(process_tree, "time", clocks)
    monkeypatch.setattr(process_tree, "descendants", look)
    monkeypatch.setattr(process_tree, "_opened", lambda _: None)
    tree = process_tree.TreeMemory(os.getpid())
    for sample in range(20_000):
        clock["wall"] = sample / 200
        tree.sample((MIB, 0), str(sample).encode())
    assert least <= (clock["cpu"] - look_s) / 100 <= most


def test_children_are_read_to_the_end_however_many_there_are(tmp_path: Path) -> None:
    path = tmp_path / "children"
    path.write_text(" ".join(map(str, range(20_000))) + " ")
    assert procfs._children(str(path)) == list(range(20_000))
    path.write_text("")
    assert procfs._children(str(path)) == []
