"""A benchmark makes a result of its own: a run takes for its own only what it wrote itself."""

from __future__ import annotations

import signal
from pathlib import Path

from worlds import World

from perfrun.run.own_results import OwnResults

FORGER = """
import glob, json, shutil

class Forger(Benchmark):
    def one(self):
        self.report_benchmark(wall_time=1.0)

    def forge(self):
        def make(real, path):
            document = json.loads(open(real).read())
            document["benchmark_result"].update(name="pkg.cases.Forger.forge", wall_time=1e-9)
            document["execution_id"] = os.path.basename(self.output_dir)
            open(path, "w").write(json.dumps(document))
        self.once("forge", make)
        self.report_benchmark(wall_time=2.0)

    def copy(self):
        self.once("copy", shutil.copy)
        self.report_benchmark(wall_time=3.0)

    def link(self):
        self.once("link", os.symlink)
        self.report_benchmark(wall_time=4.0)

    def pipe(self):
        self.once("pipe", lambda real, path: os.mkfifo(path))
        self.report_benchmark(wall_time=5.0)

    def once(self, name, make):
        if os.path.exists({folder!r} + "/" + name):
            return
        open({folder!r} + "/" + name, "w").close()
        real = min(glob.glob({folder!r} + "/workspace/output/*/perfzero_summary.json"))
        make(real, self.output_dir + "/perfzero_summary.json")
        os.kill(harness_pid(), signal.SIGKILL)
        time.sleep(60)
"""


def test_a_summary_that_a_benchmark_made_does_not_count(tmp_path: Path) -> None:
    """Benchmarks kill their harness over a forged summary, a real one's copy, a link, a pipe."""
    world = World(tmp_path)
    world.write(FORGER.format(folder=str(tmp_path)))
    names = ("one", "forge", "copy", "link", "pipe")
    words = ["--format=json", "--resume"]
    methods = ",".join(f"pkg.cases.Forger.{name}" for name in names)
    for _ in names[1:]:
        assert world.run(*words, methods=methods).code == -signal.SIGKILL
    last = world.run(*words, methods=methods)
    assert (last.code, last.statuses) == (0, ["passed"] * 5)
    found = [one["benchmark_result"]["wall_time"] for one in last.summaries()]
    assert found == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert last.stderr.count("does not count") == 1
    # Nothing of it is left where a reader would take it for a result, and nothing is deleted.
    assert len(world.summary_files()) == 5
    aside = sorted(world.workspace.glob("output/*/perfzero_summary.json.*"))
    assert len(aside) == 4
    assert sum("1e-09" in path.read_text() for path in aside if path.is_file()) == 1


PROFILED = """
class Profiled(Benchmark):
    def one(self):
        import json
        place = self.output_dir + "/profiles/cprofile"
        if "profiles" not in self.output_dir:
            os.makedirs(place)
            outcome = dict(status="passed", reason=None)
            own = dict(outcome=outcome, profiles=[], order=dict(profile="cprofile"))
            with open(place + "/profile_summary.json", "w") as file:
                json.dump(dict(perfrun=own), file)
        self.report_benchmark(wall_time=1.0)

def send(*_):
    pass
"""


def test_a_profile_that_a_benchmark_made_does_not_count(tmp_path: Path) -> None:
    """A trial leaves a profile's summary in its folder; the run makes its own all the same.

    The trial's summary is written three times, with profile and upload, and stays the run's own.
    """
    world = World(tmp_path)
    world.write(PROFILED)
    words = ["--format=json", "--profile=cprofile", "--result_upload_methods=pkg.cases.send"]
    done = world.run(*words, methods="pkg.cases.Profiled.one")
    (document,) = done.summaries()
    (profile,) = document["perfrun"]["profiles"]
    assert (done.code, profile["trial"]["folder"]) == (0, "profiles/cprofile-2")
    assert document["perfrun"]["uploads"]
    (path,) = world.summary_files()
    run_id = document["perfrun"]["run_id"]
    assert OwnResults(world.workspace).has(run_id, path, path.read_bytes())
    assert not OwnResults(world.workspace).has(run_id, path, path.read_bytes() + b" ")
