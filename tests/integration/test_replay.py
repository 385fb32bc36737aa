"""`perfrun replay` and `perfrun pack`: real trials of a real commit, run again."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import schemas
from gitrepos import make_repository
from packaging.pylock import Package, Pylock
from wheels import make_wheel

from perfrun.benchmark import main
from perfrun.errors import UsageError
from perfrun.locks import FileLock
from perfrun.replay import environments
from tests.worlds import Finished, World, strict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# The figure is no measurement: the machine may be busy. What a replay makes of it is tested.
SOURCE = """
import os
from perfrun import Benchmark
import demo_lib


class Cases(Benchmark):
    def spin(self):
        with open(os.environ["PERFRUN_SEEN"], "a+") as file:
            file.write("ran\\n")
            file.seek(0)
            number = len(file.readlines())
        # Of three trials in a row each has another value, so all of them lie in the interval.
        cost = float(os.environ["COST"]) * demo_lib.FACTOR * (1 + 0.01 * (number % 3))
        self.report_benchmark(wall_time=1.0, metrics=[{"name": "cost_s", "value": cost}])
"""
SPIN = "bench.cases.Cases.spin"


@dataclass(frozen=True)
class Kept:
    """A result in its world, the environment it ran in, and a capsule of it."""

    world: World
    summary: Path
    capsule: Path
    commit: str
    seen: Path  # each trial leaves a line here

    def perfrun(self, *words: str, workspace: str = "workspace", **env: str) -> Finished:
        own = [f"--workspace={self.world.folder / workspace}"]
        return self.world.run_words([self.world.python, self.world.entry, *words, *own], **env)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A trial of a commit, in an environment of one distribution; then both are taken away."""
    folder = tmp_path_factory.mktemp("replay")
    code = {"bench/__init__.py": "", "bench/cases.py": SOURCE}
    (commit,) = make_repository(folder / "repo", [code])
    wheel = make_wheel(folder / "made", "demo-lib", "1.2", code={"demo_lib.py": "FACTOR = 2.0\n"})
    python = folder / "env" / "bin" / "python"
    venv = [sys.executable, "-m", "venv", "--without-pip", str(folder / "env")]
    subprocess.run(venv, check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    # By its name, as from an index: then pip keeps no note of where it came from.
    subprocess.run([*pip, "--no-index", f"--find-links={wheel.parent}", "demo-lib"], check=True)
    world = World(folder)
    data = folder / "data.bin"
    data.write_bytes(b"these bytes")
    seen = folder / "seen"
    done = world.run_words(
        [
            *(world.python, world.entry, f"--workspace={world.workspace}", f"--python={python}"),
            f"--git_repos={(folder / 'repo').as_uri()};main;{commit}",
            *("--python_path=repo", f"--benchmark_methods={SPIN}", "--format=json"),
            *("--env=COST=0.01", f"--env=PERFRUN_SEEN={seen}"),
            *(f"--data_downloads={data.as_uri()}", f"--root_data_dir={folder / 'root'}"),
        ]
    )
    assert done.statuses == ["passed"], done.stderr
    summary = Path(done.results[0]["summary"])
    found = Kept(world, summary, folder / "capsule.tar", commit, seen)
    words = (str(summary), "--wheels=installed", f"-o{found.capsule}", "--format=json")
    packed = found.perfrun("pack", *words)
    assert packed.code == 0, packed.stderr
    schemas.check("pack", strict(packed.stdout))
    return found


def members(capsule: Path) -> dict[str, bytes]:
    with tarfile.open(capsule) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]


def replayed(kept: Kept, word: Path, *words: str, workspace: str = "workspace") -> Any:
    more = ("--metric=cost_s", "--format=json", "--trials=3", *words)
    done = kept.perfrun("replay", str(word), *more, workspace=workspace)
    assert done.stdout, done.stderr
    answer = strict(done.stdout)
    schemas.check("replay", answer)
    assert done.code == (0 if answer["status"] == "reproduced" else 1)
    return answer


def changed(kept: Kept, name: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of the summary with another content, as somebody else could have written it."""
    document = strict(kept.summary.read_text(encoding="utf-8"))
    change(document)
    path = kept.world.folder / name
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_a_result_is_reproduced_and_another_value_is_not(kept: Kept) -> None:
    answer = replayed(kept, kept.summary)
    assert answer["status"] == "reproduced"
    assert answer["low"] <= answer["old"] <= answer["high"]
    assert not answer["unmatched"]
    assert len(answer["results"]) == answer["trials"] == 3
    assert "replays" in Path(answer["results"][0]).parts  # not among the results of the history

    def slower(document: dict[str, Any]) -> None:
        document["perfrun"]["reports"][0]["metrics"][0]["value"] *= 1.5
        document["benchmark_result"]["metrics"][0]["value"] *= 1.5
        document["perfrun"]["module_sha256"] = "0" * 64

    path = changed(kept, "slower.json", slower)
    answer = replayed(kept, path, "--trust=imported")
    assert answer["status"] == "not_reproduced"
    assert [one["kind"] for one in answer["unmatched"]] == ["source"]


def here(kept: Kept, *words: str) -> int:
    """The exit status of a command in this process."""
    return main([*words, f"--workspace={kept.world.workspace}"])


def test_nothing_of_a_stranger_runs_without_consent(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    def stranger(document: dict[str, Any]) -> None:
        document["perfrun"]["env"]["COST"] = "1"

    path = changed(kept, "stranger.json", stranger)
    ran = kept.seen.read_text()
    refusals = {
        (str(path),): "to replay it is to run what a stranger names",
        (str(path), "--trust=imported"): "has used --env=COST=1 so far",
        (str(kept.capsule),): "--trust=all if you know who made it",
        (str(kept.capsule), "--trust=imported"): "--trust=all if you know who made it",
    }
    for words, text in refusals.items():
        assert here(kept, "replay", *words) == 2
        assert text in capsys.readouterr().err
    assert here(kept, "pack", str(path), "-oother.tar") == 2
    assert here(kept, "replay", str(path), "--trust=imported", "--rebuild") == 2
    assert "pip would install what it names" in capsys.readouterr().err
    assert kept.seen.read_text() == ran
    assert not list((kept.world.workspace / "replays").glob("*/capsule"))


def test_a_rebuilt_environment_is_taken_by_no_other_replay(
    kept: Kept, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rebuilt(document: object, folder: Path, *_: object) -> Path:
        replays, name = folder.parent.parent, folder.parent.name
        with FileLock(replays / ".locks" / name) as lock:
            raise UsageError(f"free: {lock.try_own()}")

    monkeypatch.setattr(environments, "rebuilt", rebuilt)
    for _ in range(2):  # and given back by the first
        assert here(kept, "replay", str(kept.summary), "--metric=cost_s", "--rebuild") == 2
        said = capsys.readouterr().err
        assert "free: False" in said
        assert "waiting" not in said


def test_other_hardware_is_said_before_anything_runs(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    def elsewhere(document: dict[str, Any]) -> None:
        document["system_info"]["cpu_model"] = "another processor"

    path = changed(kept, "elsewhere.json", elsewhere)
    ran = kept.seen.read_text()
    words = ("replay", str(path), "--trust=imported", "--metric=cost_s")
    assert here(kept, *words) == 2
    said = "values of another hardware are not compared: cpu model another processor"
    assert said in capsys.readouterr().err
    assert kept.seen.read_text() == ran
    done = kept.perfrun(*words, "--trials=3", "--allow_different=hardware")
    assert done.code == 0, done.stderr
    assert re.search(r"hardware cpu_model +another processor ", done.stdout)
    assert "reproduced, with 1 fact not matched (95 % prediction interval" in done.stdout


def test_a_capsule_has_its_own_environment_code_and_data(kept: Kept) -> None:
    found = members(kept.capsule)
    assert next(iter(found)) == "manifest.json"
    manifest = strict(found["manifest.json"].decode())
    schemas.check("capsule", manifest)
    del found["manifest.json"]
    assert {name: one["sha256"] for name, one in manifest["files"].items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in found.items()
    }
    (repository,) = manifest["repositories"]
    assert repository["commit"] == kept.commit
    assert repository["file"] == "repositories/0-repo.bundle"  # of two, names may be made alike
    # All that it was made of goes away: it is replayed from its own bytes, or not at all.
    folder = kept.world.folder
    gone = [folder / name for name in ("repo", "env", "data.bin", "root", "workspace", "made")]
    for path in gone:
        path.rename(path.with_name(f"{path.name} (gone)"))
    try:
        answer = replayed(kept, kept.capsule, "--trust=all", workspace="elsewhere")
    finally:
        for path in gone:
            path.with_name(f"{path.name} (gone)").rename(path)
    assert answer["status"] == "reproduced"
    assert not answer["unmatched"]
    digest = hashlib.sha256(kept.capsule.read_bytes()).hexdigest()
    assert answer["capsule"]["sha256"] == digest
    result = strict(Path(answer["results"][0]).read_text(encoding="utf-8"))
    assert result["perfrun"]["environment"]["python"]["prefix"].startswith(
        str(folder / "elsewhere")
    )
    assert result["perfrun"]["data"][0]["sha256"] == hashlib.sha256(b"these bytes").hexdigest()


def lock_of(kept: Kept, path: Path, *words: str) -> Package:
    """The one package of the lock that is written, as the standard's own reader has it."""
    assert here(kept, "pack", str(kept.summary), "--lock", f"--output={path}", *words) == 0
    (package,) = Pylock.from_dict(tomllib.loads(path.read_text(encoding="utf-8"))).packages
    assert (package.name, str(package.version)) == ("demo-lib", "1.2")
    return package


def test_the_same_result_gives_the_same_capsule_and_a_lock_by_the_standard(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = tmp_path / "again.tar"
    words = (str(kept.summary), "--wheels=installed")
    assert here(kept, "pack", *words, f"--output={again}") == 0
    assert again.read_bytes() == kept.capsule.read_bytes()
    (wheel,) = [name for name in members(again) if name.startswith("wheels/")]

    (tmp_path / "old").write_bytes(b"the one before")
    (tmp_path / "pylock.toml").hardlink_to(tmp_path / "old")
    package = lock_of(kept, tmp_path / "pylock.toml", "--wheels=installed")
    assert (tmp_path / "old").read_bytes() == b"the one before"  # replaced, not written over
    assert package.wheels is not None
    assert package.wheels[0].path == wheel
    digest = hashlib.sha256(members(again)[wheel]).hexdigest()
    assert package.wheels[0].hashes == {"sha256": digest}
    assert package.tool == {"perfrun": {"origin": "installed"}}

    # An index that has the very files, and then one that has others under the same name.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", (kept.world.folder / "made").as_uri())  # split at blanks
    package = lock_of(kept, tmp_path / "pylock.index.toml")
    made = kept.world.folder / "made" / "demo_lib-1.2-py3-none-any.whl"
    assert package.tool == {"perfrun": {"origin": "index"}}
    assert package.wheels is not None
    assert package.wheels[0].url == made.as_uri()
    assert package.wheels[0].hashes == {"sha256": hashlib.sha256(made.read_bytes()).hexdigest()}
    make_wheel(tmp_path / "other", "demo-lib", "1.2", code={"demo_lib.py": "FACTOR = 3.0\n"})
    monkeypatch.setenv("PIP_FIND_LINKS", (tmp_path / "other").as_uri())
    package = lock_of(kept, tmp_path / "pylock.other.toml")
    assert package.tool == {"perfrun": {"origin": "installed"}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found.update({"summary.json": b"{}"}), "is not what its manifest.json says"),
        (lambda found: found.update({"more.py": b"1"}), "a file that its manifest.json does not"),
        (lambda found: found.pop("summary.json"), "summary.json is not in it"),
        (lambda found: found.update({"../out": b"1"}), "leads out of it"),
        (lambda found: found.update({"link -> /etc": b""}), "links out of it"),
        (lambda found: found.update({"link -> summary.json": b""}), "holds what is no file: link"),
        (lambda found: found.update({"manifest.json": b"[" * 9999}), "cannot be read"),
    ],
)
def test_a_capsule_that_was_changed_is_refused(
    kept: Kept, tmp_path: Path, change: Callable[[dict[str, bytes]], Any], message: str
) -> None:
    from perfrun.replay.capsule import is_capsule
    from perfrun.replay.opening import open_capsule

    found = members(kept.capsule)
    change(found)
    path = tmp_path / "changed.tar"
    with tarfile.open(path, "w") as tar:
        for name, content in found.items():
            member = tarfile.TarInfo(name.partition(" -> ")[0])
            member.size = len(content)
            if " -> " in name:
                member.type, member.linkname = tarfile.SYMTYPE, name.partition(" -> ")[2]
            tar.addfile(member, io.BytesIO(content))
    assert is_capsule(path)
    with pytest.raises(UsageError) as error, ExitStack() as held:
        open_capsule(path, tmp_path / "workspace", "all", lambda _: None, held)
    assert message in str(error.value)
    assert not list((tmp_path / "workspace" / "replays").iterdir())
