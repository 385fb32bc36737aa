"""`python tests/chaos/sixty_nights.py DIR`: sixty nights of `perfrun nightly` on a git history.

Each night is the real command in a process of its own, a fork of this one, at its own date: it
fetches and checks out the commit of the day, starts a process for each trial, keeps the index,
searches, runs pairs and tells incidents. Only two things are made up: the clock is moved, and what
a trial reports follows from the levels in its checkout, the speed of the machine in that night, and
noise that is drawn from a seed. Every word of the nights is left in DIR.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NoReturn

from nights_site import share_compiled_statements

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

NIGHTS = 60
FIRST = datetime(2026, 1, 5, 22, 0, tzinfo=timezone.utc)
NOISE = 0.005  # of a trial, one standard deviation
SEED = 16
STEPS = {  # the night whose commits slow a method, and by how much
    "sort": (16, 1.20),
    "parse": (26, 1.10),
    "load": (36, 1.05),
}
DRIFT, DRIFTING, A_NIGHT = "look", range(14, 44), 1.003
BROKEN = 31  # its commit cannot be imported
MACHINE, SLOWED = 50, 1.08  # from this night on the machine runs another kernel, and slower
METHODS = (*STEPS, DRIFT)
CANARY = "canary"
UNAME26 = 0x0020000  # personality(2): the kernel says that it is 2.6
CASES = """\
import json, mmap, os, random
from perfrun import Benchmark

HERE = os.path.dirname(os.path.abspath(__file__))

class Cases(Benchmark):
    def told(self, name):
        with open(os.path.join(HERE, "levels.json")) as file:
            level = json.load(file)[name]
        folder = os.environ["SIXTY"]
        with open(os.path.join(folder, "night.json")) as file:
            night = json.load(file)
        # How many trials pairs run follows from the load of this machine: each night begins anew.
        trials = "trials-%s-%s" % (night["night"], name)
        with open(os.path.join(folder, trials), "a+") as file:
            file.write("x")
            file.flush()
            number = os.fstat(file.fileno()).st_size
        # Of what a process maps, the kernel counts now more, now less: this outweighs it.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        mmap.mmap(-1, 64 << 20, flags=flags).close()
        draw = random.Random("%s/%s/%s/%s" % (night["seed"], name, night["night"], number))
        noise = draw.gauss(1.0, night["noise"])
        self.report_benchmark(wall_time=level * night["speed"] * noise)

"""
CASE = """\
    def {0}(self):
        self.told("{0}")

"""
CLOCK = """\
import time

with open({path!r}) as file:
    _AHEAD_S = float(file.read())
_now = time.time
time.time = lambda: _now() + _AHEAD_S
"""
SUITE = """\
name = "sixty"
owner = "team@example.com"
python_path = ["repo"]
confirm_budget = "400%"
{more}

[[repos]]
url = "{url}"
branch = "main"

[[environments]]
name = "here"
python = "{python}"
env = {{ SIXTY = "{folder}" }}

"""
PRELOADED = (
    *("perfrun.nightly.command", "perfrun.benchmark", "perfrun.changes.confirm", "numpy"),
    *("perfrun.nightly.suite_changes", "perfrun.nightly.suite_incidents", "sqlite3", "psutil"),
    *("perfrun.store.index", "perfrun.store.recorder", "perfrun.run.rounds", "perfrun.run.trial"),
    *("perfrun.probes.machine", "perfrun.workspace.checkouts", "perfrun.workspace.worktree"),
    *("perfrun.analysis.detection", "perfrun.workspace.http_client", "perfrun.incidents.command"),
    *("sqlalchemy.dialects.sqlite", "scipy.stats", "ruptures.detection", "perfrun.changes.bisect"),
)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command of a night ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, kw_only=True)
class Slowed:
    """The commits of the two nights around a step, and the one between that brought it."""

    good: str
    culprit: str
    bad: str


class Site:
    """A repository, a suite that knows it, and the days that pass."""

    def __init__(self, folder: Path, more: str = "") -> None:
        from tests.gitrepos import git

        self.folder, self._git = folder, git
        self.repo, self.workspace = folder / "repo", folder / "workspace"
        self.levels = {name: 1.0 + 0.2 * at for at, name in enumerate((*METHODS, CANARY))}
        self.head = ""
        self.slowed: dict[str, Slowed] = {}
        self._night = 0
        python = self._interpreter()
        text = SUITE.format(url=self.repo.as_uri(), python=python, folder=folder, more=more)
        for name in (*METHODS, CANARY):
            text += f'[[methods]]\nname = "bench.cases.Cases.{name}"\n'
            text += "canary = true\n" if name == CANARY else ""
        (folder / "suite.toml").write_text(text, encoding="utf-8")
        (self.repo / "bench").mkdir(parents=True)
        (self.repo / "bench" / "__init__.py").touch()
        git(self.repo, "init", "-q", "-b", "main")
        self._cases()

    def _interpreter(self) -> Path:
        """Make an interpreter whose clock is that of the night."""
        import venv

        venv.EnvBuilder(symlinks=True, with_pip=False).create(self.folder / "venv")
        (library,) = (self.folder / "venv" / "lib").glob("python*/site-packages")
        text = CLOCK.format(path=str(self.folder / "ahead"))
        (library / "sitecustomize.py").write_text(text, encoding="utf-8")
        return self.folder / "venv" / "bin" / "python"

    def _cases(self, more: str = "") -> None:
        text = CASES + "".join(map(CASE.format, (*METHODS, CANARY))) + more
        (self.repo / "bench" / "cases.py").write_text(text, encoding="utf-8")

    def _commit(self, subject: str, author: str) -> str:
        (self.repo / "bench" / "levels.json").write_text(json.dumps(self.levels), encoding="utf-8")
        with (self.repo / "history").open("a", encoding="utf-8") as file:
            file.write(f"{subject}\n")
        self._git(self.repo, "add", "-A")
        self._git(self.repo, "commit", "-q", "-m", subject, f"--author={author}")
        self.head = self._git(self.repo, "rev-parse", "HEAD")
        return self.head

    def day(self, night: int) -> None:
        """Commit what was done by day: one commit, or three where one of them slows a method."""
        self._cases("    def broken(self:\n" if night == BROKEN else "")
        if night in DRIFTING:
            self.levels[DRIFT] *= A_NIGHT
        slowed = next((name for name, (at, _) in STEPS.items() if at == night), None)
        if slowed is None:
            self._commit(f"Day {night}", "B <b@example.com>")
            return
        good = self.head
        self._commit("Rename a variable", "B <b@example.com>")
        self.levels[slowed] *= STEPS[slowed][1]
        culprit = self._commit(f"Another way to {slowed}", "C <c@example.com>")
        bad = self._commit("Explain a function", "B <b@example.com>")
        self.slowed[slowed] = Slowed(good=good, culprit=culprit, bad=bad)

    def night(self, night: int) -> Ended:
        """Run the command of a night."""
        speed = SLOWED if night >= MACHINE else 1.0
        facts = {"noise": NOISE, "seed": SEED, "speed": speed, "night": night}
        (self.folder / "night.json").write_text(json.dumps(facts), encoding="utf-8")
        self._night = night
        return self.call("nightly", "suite.toml", "--format=json")

    def call(self, *words: str) -> Ended:
        """Call perfrun in a fork of this process, at the time of the night."""
        at = FIRST + timedelta(days=self._night)
        ahead_s = at.timestamp() - time.time()
        (self.folder / "ahead").write_text(repr(ahead_s), encoding="utf-8")
        out, err = self.folder / "stdout", self.folder / "stderr"
        pid = os.fork()
        if not pid:
            self._child(words, ahead_s, out, err)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return Ended(code=code, out=out.read_text("utf-8"), err=err.read_text("utf-8"))

    def _child(self, words: Sequence[str], ahead_s: float, out: Path, err: Path) -> NoReturn:
        """Be the process of a command."""
        code: Any = 3
        try:
            for path, number in ((out, 1), (err, 2)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
            sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="backslashreplace")
            sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
            os.chdir(self.folder)
            if self._night >= MACHINE:
                ctypes.CDLL(None).personality(UNAME26)
                platform._uname_cache = None  # type: ignore[attr-defined]  # that of the parent
            _move_clock(ahead_s)
            _hush_machine()
            from perfrun.benchmark import main

            sys.argv = ["perfrun", *words]
            code = main(list(words))
        except SystemExit as error:
            code = error.code
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 1)


def _move_clock(ahead_s: float) -> None:
    """Move the clock of this process."""
    import perfrun.run.rounds
    import perfrun.run.runner

    now = time.time
    time.time = lambda: now() + ahead_s

    class Dates(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.fromtimestamp(time.time(), tz)

    for module in (perfrun.run.runner, perfrun.run.rounds):
        module.datetime = Dates  # type: ignore[attr-defined]


def _hush_machine() -> None:
    """Let no trial count as disturbed: what else runs on this machine is no part of the nights."""
    import perfrun.run.trial
    from perfrun.dataclass import replace

    judged = perfrun.run.trial.judge_quality

    def judge(*words: Any, **named: Any) -> Any:
        return replace(judged(*words, **named), disturbed=False)

    perfrun.run.trial.judge_quality = judge  # type: ignore[attr-defined]


def nights(site: Site, number: int = NIGHTS) -> Iterator[Mapping[str, Any]]:
    """Carry out the nights; yield the report of each, with its exit status."""
    for night in range(number):
        site.day(night)
        ended = site.night(night)
        try:
            report = json.loads(ended.out)
        except ValueError:
            raise AssertionError(f"night {night}: {ended.code}\n{ended.err}") from None
        yield {**report, "code": ended.code, "err": ended.err}


def main(argv: Sequence[str]) -> int:
    """Carry out the nights; DIR/told.json has what they told, and the incidents at the end."""
    folder = Path(argv[0]).resolve()
    folder.mkdir(parents=True)
    os.environ.update(TZ="UTC", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    time.tzset()
    for name in PRELOADED:
        importlib.import_module(name)
    share_compiled_statements()
    gc.collect()
    gc.freeze()
    begun = time.monotonic()
    site = Site(folder, *argv[1:])
    told = []
    for number, report in enumerate(nights(site)):
        told.append(report)
        news = [f"{one['news']} {one['id']}" for one in report["incidents"]]
        news = [text for text in news if not text.startswith("known")]
        spent = time.monotonic() - begun
        sys.stderr.write(f"night {number}: {report['code']} {', '.join(news)} ({spent:.0f} s)\n")
    listed = site.call("incidents", "--all", "--format=json")
    slowed = {name: asdict(one) for name, one in site.slowed.items()}
    document = {"nights": told, "slowed": slowed, **json.loads(listed.out)}
    (folder / "told.json").write_text(json.dumps(document), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
