"""What a trial in a container leaves in its folder gives nobody any rights, and shows no file.

perfrun is root here where it can be: then the trial is root in its container, and a file with a
setuid bit that it leaves would make anybody root who may enter the workspace.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from engines import ROOTFUL, Site, both_engines
from launched import launched_world
from worlds import World

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600), both_engines]
SECRET = "-----BEGIN PRIVATE KEY-----"
CASES = """
import shutil
from pathlib import Path

class Cases(Benchmark):
    def leaves(self):
        own = Path(self.output_dir)
        deep = own / "a" / "b"
        deep.mkdir(parents=True)
        for name, mode in (("setuid", 0o4755), ("setgid", 0o2755), ("both", 0o6777)):
            shutil.copy("/bin/sh", deep / name)
            (deep / name).chmod(mode)
        os.link(deep / "setuid", own / "second name")
        deep.chmod(0)
        for name in ("stderr.log", "perfrun/stack.txt", "perfrun/series_1.json", "proto_2_x"):
            (own / name).unlink(missing_ok=True)
            (own / name).symlink_to({secret!r})
        for name in ("perfzero_summary.json", "perfzero_summary.json.next", "proto_3_x"):
            os.mkfifo(own / name)
        (own / "profiles").symlink_to({host!r})
        (own / "process_info.log").unlink(missing_ok=True)
        (own / "process_info.log").symlink_to({secret!r})
        os.truncate(own / "stdout.log", 2**42)
        self.report_benchmark(wall_time=2.0)

    def moves(self):
        own = Path(self.output_dir)
        (own / "perfrun").rename(own / "moved")
        (own / "perfrun").symlink_to({host!r})
        os._exit(0)

    def last(self):
        self.report_benchmark(wall_time=3.0)
"""


@pytest.fixture
def world(place: Path, site: Site) -> Iterator[World]:
    """A world whose perfrun is root's with the machine's engine, else the engine's user's."""
    if site.kind != ROOTFUL or os.geteuid() != 0:
        yield from launched_world(place, site)
        return
    world = World(Path(tempfile.mkdtemp(prefix="of root's ", dir=place)))
    yield world
    shutil.rmtree(world.folder)


def test_a_container_leaves_no_rights_and_shows_no_file_of_the_host(world: World) -> None:
    host = world.folder / "host"
    host.mkdir(mode=0o777)
    host.chmod(0o777)
    secret = host / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o666)  # what perfrun may not read or write is no question here
    world.write(CASES.format(secret=str(secret), host=str(host)))
    image = f"--image={os.environ['PERFRUN_TEST_BASE_IMAGE']}"
    methods = ",".join(f"pkg.cases.Cases.{name}" for name in ("leaves", "moves", "last"))
    done = world.run("--format=json", image, "--timeout=120", "--profile=cprofile", methods=methods)
    assert [done.statuses[0], done.statuses[2]] == ["passed", "passed"], done.stderr
    assert done.statuses[1] in ("failed", "exited")
    assert SECRET not in done.stdout + done.stderr
    assert "internal error" not in done.stderr
    assert (secret.read_text(), [path.name for path in host.iterdir()]) == (SECRET, ["secret"])
    folder = Path(done.results[0]["summary"]).parent
    left = [path for path in folder.rglob("*") if not path.is_symlink()]
    assert {path.name for path in left} >= {"setuid", "setgid", "both", "second name"}
    owner = folder.lstat().st_uid
    for path in left:
        status = path.lstat()
        assert not status.st_mode & (stat.S_ISUID | stat.S_ISGID), path
        assert status.st_uid == owner
        if path.is_file() and status.st_size < 2**20:
            assert SECRET.encode() not in path.read_bytes()
    notes = done.summaries()[0]["perfrun"]["notes"]
    assert any("setuid or setgid bits, taken from them: " in note for note in notes)
