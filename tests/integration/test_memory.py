"""Memory of whole trials: benchmarks that fork, share, execute, and die at their peak.

What is true is known independently: from the sizes that a benchmark allocates and the kernel's own
mark, which it reads itself. Peaks of trees are held, once all processes have theirs, until whoever
samples them has gone on for more than a second, however late the machine lets it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from worlds import Finished, World

MIB = 2**20
MARK = """
def mark():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024

def hold(folder):
    # Lines are written together, once a second: those of the first write may be of before.
    wait_for_lines(folder, 1)
    wait_for_lines(folder, 13)  # at most ten a second

def wait_for_lines(folder, count):
    path = os.path.join(folder, "process_info.log")
    def lines():
        return open(path, "rb").read().count(b"\\n") if os.path.exists(path) else 0
    last, end = lines() + count, time.monotonic() + 300
    while lines() < last:
        assert time.monotonic() < end, "nobody takes samples"
        time.sleep(0.05)
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "a 'world' of memory")


def ran(world: World, source: str, *words: str, **env: str) -> dict[str, Any]:
    world.write(MARK + source)
    done = world.run("--format=json", "--quiet", *words, methods="pkg.cases.Case.method", **env)
    return summary(done)


def summary(done: Finished) -> dict[str, Any]:
    (document,) = done.summaries()
    return document


def metric(document: dict[str, Any], name: str) -> int:
    (found,) = [m for m in document["benchmark_result"]["metrics"] if m["name"] == name]
    return int(found["value"])


def tree_pss(document: dict[str, Any]) -> int:
    figure = document["perfrun"]["memory"]["tree_pss"]
    assert figure["bytes"] == document["process_info"]["max_tree_pss"]
    return int(figure["bytes"])


def test_one_process_is_exact_import_and_method_apart(world: World) -> None:
    document = ran(
        world,
        """
block = bytearray(b"x") * (200 << 20); del block

class Case(Benchmark):
    def method(self):
        block = bytearray(b"x") * (100 << 20); del block
        wait_for_lines(self.output_dir, 1)  # else a busy machine may never have looked
        self.report_benchmark(wall_time=1.0, metrics=[{"name": "mark", "value": mark()}])
""",
    )
    memory = document["perfrun"]["memory"]
    method = memory["method_rss"]["bytes"]
    assert method == pytest.approx(metric(document, "mark"), rel=0.01)
    assert 100 * MIB < method < 150 * MIB
    assert memory["import_rss"]["bytes"] == memory["process_rss"]["bytes"] > 200 * MIB
    assert memory["process_rss"]["exactness"] == "exact"
    assert memory["tree_pss"]["bytes"] == memory["process_rss"]["bytes"]


FORKED = """
class Case(Benchmark):
    def method(self):
        block = bytearray(b"x") * (300 << 20)
        children = []
        said, say = os.pipe()
        wait, go = os.pipe()
        for _ in range(3):
            pid = os.fork()
            if not pid:
                os.close(go)
                own = bytearray(b"y") * (40 << 20)
                os.write(say, b"x"); os.read(wait, 1); {end}
            children.append(pid)
        for _ in children: os.read(said, 1)
        hold(self.output_dir)
        os.close(go)
        for pid in children: os.waitpid(pid, 0)
        self.report_benchmark(wall_time=1.0, metrics=[{{"name": "mark", "value": mark()}}])
"""


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_forked_workers_that_share_an_array_are_counted_right(end: str, world: World) -> None:
    document = ran(world, FORKED.format(end=end))
    truth = metric(document, "mark") + 3 * 40 * MIB
    assert tree_pss(document) == pytest.approx(truth, rel=0.03)
    assert document["process_info"]["max_tree_rss"] > 2.5 * truth
    assert document["perfrun"]["memory"]["tree_processes"] == 4


def test_executed_children_are_counted(world: World) -> None:
    document = ran(
        world,
        """
class Case(Benchmark):
    def method(self):
        code = "block = bytearray(b'x') * (200 << 20); print(1, flush=True); input()"
        line = [sys.executable, "-c", code]
        children = [subprocess.Popen(line, stdin=-1, stdout=-1, text=True) for _ in range(2)]
        for child in children: child.stdout.readline()
        hold(self.output_dir)
        for child in children: child.communicate("\\n")
        self.report_benchmark(wall_time=1.0, metrics=[{"name": "mark", "value": mark()}])
""",
    )
    # An interpreter of its own for each, of which they share the program.
    low, high = 2 * 200 * MIB, 2 * 200 * MIB + metric(document, "mark") + 2 * 10 * MIB
    assert 0.99 * low < tree_pss(document) < 1.03 * high


def test_shared_memory_is_counted_once(world: World) -> None:
    document = ran(
        world,
        """
import multiprocessing
from multiprocessing import shared_memory

def child(name, ready, go):
    block = shared_memory.SharedMemory(name=name)
    block.buf[::4096] = b"x" * (300 << 8)
    ready.release()
    go.wait()
    block.close()

class Case(Benchmark):
    def method(self):
        block = shared_memory.SharedMemory(create=True, size=300 << 20)
        context = multiprocessing.get_context("fork")
        ready, go = context.Semaphore(0), context.Event()
        children = [context.Process(target=child, args=(block.name, ready, go)) for _ in range(3)]
        for one in children: one.start()
        for _ in children: ready.acquire()
        hold(self.output_dir)
        go.set()
        for one in children: one.join()
        block.close(); block.unlink()
        self.report_benchmark(wall_time=1.0)
""",
    )
    # Besides the block: five interpreters, of which one was not forked.
    assert 300 * MIB < tree_pss(document) < 345 * MIB
    assert document["process_info"]["max_tree_rss"] > 890 * MIB


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(3)"])
def test_a_benchmark_that_dies_at_its_peak_is_measured(end: str, world: World) -> None:
    document = ran(
        world,
        f"""
class Case(Benchmark):
    def method(self):
        block = bytearray(b"x") * (300 << 20)
        open(os.path.join(self.output_dir, "mark"), "w").write(str(mark()))
        {end}
""",
    )
    (truth,) = world.workspace.glob("output/*/mark")
    figure = document["perfrun"]["memory"]["process_rss"]
    assert figure["bytes"] == pytest.approx(int(truth.read_text()), rel=0.01)
    assert figure["source"] in ("ru_maxrss", "VmHWM polled")
    assert document["perfrun"]["memory"]["method_rss"]["reason"]


def test_cpu_input_and_output_of_a_trial_are_counted(world: World) -> None:
    document = ran(
        world,
        """
class Case(Benchmark):
    def method(self):
        with open(os.path.join(self.output_dir, "file"), "wb") as file:
            file.write(b"x" * (8 << 20))
        def machine_s():
            fields = open("/proc/stat").readline().split()
            return sum(int(fields[n]) for n in (1, 2, 3, 6, 7)) / os.sysconf("SC_CLK_TCK")
        end, machine_end = time.process_time() + 0.5, machine_s() + 0.5
        while time.process_time() < end or machine_s() < machine_end: pass
        wait_for_lines(self.output_dir, 1)
        time.sleep(0.1)
        self.report_benchmark(wall_time=1.0)
""",
    )
    cpu = document["perfrun"]["cpu"]
    for part in (cpu["trial"], cpu["method"]):
        assert part["user_s"] + part["system_s"] >= 0.5
        assert 8 * MIB <= part["written_call_bytes"] < 9 * MIB
        assert part["voluntary_switches"] >= 1
        assert part["minor_faults"] >= 0
    assert cpu["trial"]["user_s"] >= cpu["method"]["user_s"]
    assert cpu["machine"]["busy_s"] > 0.49
    assert cpu["machine"]["steal_s"] is not None
    usage = document["perfrun"]["usage"]
    assert 0 < usage["observer_cpu_s"] <= usage["harness_cpu_s"]
    assert document["perfrun"]["devices"]["devices"] or document["perfrun"]["devices"]["reason"]
    energy = document["perfrun"]["energy"]
    assert energy["meters"] or energy["reasons"]


def test_the_timeline_has_numbers_only_and_keeps_the_peak(world: World) -> None:
    document = ran(world, FORKED.format(end="os._exit(0)"))
    (log,) = world.workspace.glob("output/*/process_info.log")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert all(line.keys() == lines[0].keys() for line in lines)
    assert all(type(value) in (int, float) for line in lines for value in line.values())
    assert max(line["tree_pss"] for line in lines) == pytest.approx(tree_pss(document), rel=0.01)


# The truth is put together from other figures than the sum of PSS that is tested: all anonymous
# memory of the parent once, the workers' that nobody shares, and files (which any process of this
# machine may share) as the kernel divides them.
LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset

def kernel(pid):
    lines = [line.split() for line in open(f"/proc/{pid}/smaps_rollup")][1:]
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}

def truth():
    tasks = glob.glob("/proc/self/task/*/children")
    workers = [kernel(pid) for task in tasks for pid in open(task).read().split()]
    own = kernel("self")
    files = sum(one["Pss_File"] + one["Pss_Shmem"] for one in (own, *workers))
    return own["Anonymous"] + sum(one["Private_Dirty"] for one in workers) + files

class Numbers(Dataset):
    def __init__(self):
        torch.set_num_threads(1)  # a pool of threads does not survive the fork
        self.all = torch.empty(300 << 20, dtype=torch.uint8).fill_(1)
        self.own = None
    def __len__(self): return 24
    def __getitem__(self, index):
        if self.own is None: self.own = bytearray(b"y") * (50 << 20)
        return self.all[index]

class Case(Benchmark):
    def method(self):
        loader = DataLoader(Numbers(), batch_size=2, num_workers=3)
        truths = []
        for number, batch in enumerate(loader):
            truths.append(truth())
            if number == 5:  # each worker has made two batches
                hold(self.output_dir)
        metrics = [
            {"name": "truth_low", "value": min(truths[4:])},
            {"name": "truth_high", "value": max(truths)},
        ]
        self.report_benchmark(wall_time=1.0, metrics=metrics)
"""


@pytest.mark.torch
@pytest.mark.slow
def test_a_data_loader_whose_workers_share_a_tensor_is_counted_right(
    world: World, torch_python: str
) -> None:
    # The name of a socket, which the loader makes in the temporary folder, is short
    words = (f"--python={torch_python}", "--timeout=400")
    document = ran(world, "import glob\n" + LOADER, *words, TMPDIR=tempfile.gettempdir())
    # Equal, unless processes come or go elsewhere that have the same libraries.
    low, high = metric(document, "truth_low"), metric(document, "truth_high")
    assert low > 300 * MIB + 3 * 50 * MIB
    assert 0.97 * low < tree_pss(document) < 1.03 * high
    assert document["process_info"]["max_tree_rss"] > 1.8 * high
    allocators = document["perfrun"]["memory"]["device_reason"]
    assert "torch used no CUDA" in allocators or document["perfrun"]["memory"]["device"]
