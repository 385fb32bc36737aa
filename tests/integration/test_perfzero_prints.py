"""PerfZero's three closing prints, held against what PerfZero itself printed.

The golden text is of PerfZero's last commit: one method that raises, two trials.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from worlds import World

GOLDEN = Path(__file__).parents[1] / "data" / "perfzero" / "closing_prints.txt"
CLASS = """
class Cases(Benchmark):
    def good(self):
        time.sleep(0.2)
        self.report_benchmark(wall_time=1.0)

    def bad(self):
        raise ValueError("x")

    def dies(self):
        time.sleep(0.2)
        os._exit(3)
"""
NAMES = [f"pkg.cases.Cases.{name}" for name in ("good", "bad", "dies")]
HEADINGS = (
    "Benchmark execution time in seconds by operation:\n ",
    "Benchmark success results:\n",
    "Benchmark local output directories:\n",
)


def documents(text: str) -> list[dict[str, dict[str, object]]]:
    """Split the prints at their headings, which must be there in this order and alone."""
    start, *parts = re.split("|".join(map(re.escape, HEADINGS)), text)
    assert not start
    assert text.startswith(HEADINGS[0])
    assert re.findall("|".join(map(re.escape, HEADINGS)), text) == list(HEADINGS)
    return [json.loads(part) for part in parts]


def shape(text: str) -> str:
    """Replace what differs from run to run; every other byte stays."""
    text = re.sub(r"\d+\.\d+(e-\d+)?", "0.0", text)
    text = re.sub(r'"/\S*/workspace/output/[^"]*"', '"FOLDER"', text)
    return re.sub(r'"[a-z.]*\.Cases\.bad"', '"METHOD"', text)


def test_they_have_perfzeros_bytes(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(CLASS)
    words = ("--benchmark_num_trials=2", "--seed=1", "--print_perfzero_summary")
    done = world.run(*words, methods=NAMES[1])
    printed = done.stdout[done.stdout.index(HEADINGS[0]) :]
    assert done.code == 1
    assert shape(printed) == shape(GOLDEN.read_text(encoding="utf-8"))


def test_they_say_what_took_the_time_and_leave_standard_output_to_json(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(CLASS)
    words = ("--format=json", "--print_perfzero_summary")
    done = world.run(*words, methods=",".join(NAMES))
    times, succeeded, folders = documents(done.stderr[done.stderr.index(HEADINGS[0]) :])
    assert list(times) == [
        "activate_gcloud_service", "download_data", "checkout_repository", "trial_1"
    ]  # fmt: skip
    assert succeeded == {"trial_1": dict(zip(NAMES, (True, False, False), strict=True))}
    named = {result["name"]: str(Path(result["summary"]).parent) for result in done.results}
    assert folders == {"trial_1": named}
    for name in (NAMES[0], NAMES[2]):  # also of a method that ended its process
        parts = times["trial_1"][name]
        assert isinstance(parts, dict)
        assert parts["method_execution"] >= 0.2
        assert parts["class_initialization"] > 0
        assert parts["log_upload"] > 0


def test_without_the_flag_they_are_not_there(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(CLASS)
    done = world.run(methods=NAMES[0])
    assert not any(heading.strip() in done.stdout + done.stderr for heading in HEADINGS)
