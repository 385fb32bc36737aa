"""What frameworks need of a container: room for their loaders, a place for their profiles."""

from __future__ import annotations

import json
import pstats
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from actors import Caller
from engines import Site
from launched import launched_world
from worlds import World

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]

ALLOCATE = "benchmarks.python.calibration.Calibration.allocate"
BATCHES, BATCH_BYTES = 12, 32 * 2**20
SOURCE = f"""
import torch
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return {BATCHES}

    def __getitem__(self, index):
        return torch.full(({BATCH_BYTES},), index, dtype=torch.uint8)

def held():
    memory = os.statvfs("/dev/shm")
    return (memory.f_blocks - memory.f_bfree) * memory.f_frsize

class Loads(Benchmark):
    def batches(self):
        loader = iter(DataLoader(Images(), batch_size=None, num_workers=2, prefetch_factor=4))
        first = next(loader)
        while held() < 8 * {BATCH_BYTES}:  # what was asked for ahead, and nobody takes
            time.sleep(0.01)
        found = [int(batch[-1]) for batch in (first, *loader)]
        self.report_benchmark(wall_time=float(sum(found)), extras={{"batches": len(found)}})
"""


@pytest.fixture
def world(place: Path, site: Site) -> Iterator[World]:
    yield from launched_world(place, site, SOURCE)


@pytest.fixture
def fresh(checkout: Path) -> Iterator[Path]:
    """The user's checkout as after `git clone`: no workspace yet."""
    yield checkout
    shutil.rmtree(checkout / "workspace", ignore_errors=True)


@pytest.mark.torch
def test_processes_that_load_data_have_shared_memory(world: World, torch_image: str) -> None:
    words = ("--format=json", "--timeout=600", f"--image={torch_image}")
    done = world.run(*words, methods="pkg.cases.Loads.batches")
    assert done.statuses == ["passed"], done.stderr
    (summary,) = done.summaries()
    assert summary["benchmark_result"]["wall_time"] == sum(range(BATCHES))
    assert summary["perfrun"]["outcome"]["stray_processes"] == []
    # The engine's own 64 MiB would not have been enough.
    assert summary["perfrun"]["container"]["limits"]["shm_bytes"] > 8 * BATCH_BYTES > 2**26


@pytest.mark.torch
def test_too_little_shared_memory_is_one_line(world: World, torch_image: str) -> None:
    folder = world.folder / "images" / "one class"
    folder.mkdir(parents=True)
    for number in range(8):
        (folder / f"{number}.ppm").write_bytes(b"P6 64 64 255\n" + bytes(64 * 64 * 3))
    knobs = {"data_dir": str(folder.parent), "input_shape": "3x64x64", "batch_size": 32}
    done = world.run(
        *("--format=json", "--timeout=600", f"--image={torch_image}", "--shm_size=1m"),
        f"--root_data_dir={folder.parent}",
        f"--perfzero_constructor_args={json.dumps({**knobs, 'num_loader_threads': 1})}",
        methods="benchmarks.torch.ingestion.Ingestion.loader_only",
    )
    (summary,) = done.summaries()
    reason = summary["perfrun"]["outcome"]["reason"]
    assert reason.startswith("SetupError: the data loader's processes ran out of shared memory")
    assert "there are 1 MiB" in reason
    assert "--shm_size" in reason
    assert "Traceback" not in done.stderr


def test_profiles_under_compose_are_the_users_and_where_the_summary_says(
    fresh: Path, user: Caller, torch_image: str
) -> None:
    assert torch_image
    kinds = ["cprofile", "memory", "sampling"]
    done = user.compose(
        fresh,
        *(
            "run",
            "--rm",
            "perfrun",
            f"--benchmark_methods={ALLOCATE}",
            f"--profile={','.join(kinds)}",
        ),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (fresh / "workspace" / "output").glob("*/perfzero_summary.json")
    summary = json.loads(path.read_text(encoding="utf-8"))
    found = {one["kind"]: one for one in summary["perfrun"]["profiles"]}
    assert list(found) == kinds
    printed = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    for one in found.values():
        assert (one["error"], one["trial"]["status"]) == (None, "passed")
        for file in one["files"]:
            artefact = path.parent / file["path"]
            assert artefact.stat().st_size == file["bytes"] > 0
            # As it was printed in there it is found in the user's folder, too.
            assert str(artefact.relative_to(fresh)) in printed
    assert pstats.Stats(str(path.parent / found["cprofile"]["files"][0]["path"])).total_calls > 0
    # It is held for a fifth of a second. A snapshot that came too late says so.
    if not any("for a moment there were" in note for note in found["memory"]["notes"]):
        assert found["memory"]["top"][0]["bytes"] == pytest.approx(500_000_000, rel=0.02)
    for kind in ("cprofile", "sampling"):  # the top rows, with what took most
        assert one_of_the_rows(printed, found[kind]["top"][0]["name"])
    assert user.owns(fresh / "workspace")


def one_of_the_rows(printed: list[str], what: str) -> bool:
    return any(line[:1].isdigit() and what in line for line in printed)
