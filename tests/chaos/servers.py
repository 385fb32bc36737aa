"""Servers of data and of git, and a webhook, that do not answer as they should.

A run gets the right bytes or ends with one line; a night delivers its report or says that it did
not. Limits of time are a hundredth of the real ones.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import gitrepos
from accidents import killed, later
from lying import SEEN, WAYS, Answer, Request, Server
from subject import Ended, Subject

_LATEST_S = 3.0  # of a kill in the middle of it
_SECRET = "T0ken-1n-the-path"
_NO_PROXY = {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}


def missing() -> str | None:
    """Nothing is needed but git."""
    return None


def hasten() -> None:
    """Make perfrun's limits of time shorter, in this process."""
    from perfrun.nightly import webhook
    from perfrun.workspace import git, http_client, http_transfer

    http_transfer._SILENCE_S = http_transfer._ANSWER_S = 1.2
    http_transfer._FIRST_PAUSE_S, http_transfer._LONGEST_PAUSE_S = 0.01, 0.1
    http_client.CONNECT_S = 1.0
    webhook.TIMEOUT_S, webhook.PAUSES_S = 1.2, (0.01, 0.02)
    git._OPTIONS = tuple(part.replace("Time=120", "Time=2") for part in git._OPTIONS)


class Servers:
    """Makes the faults of all three."""

    def __init__(self, place: Path) -> None:
        self._place = place
        for module in ("perfrun.workspace.downloads", "perfrun.workspace.http_client"):
            __import__(module)  # in this process, of which the runs are forks
        self._repository = place / "repository"
        self._hashes = gitrepos.make_repository(
            self._repository, [{"own.py": f"NUMBER = {n}\n" * 400} for n in range(3)]
        )
        gitrepos.git(self._repository, "config", "uploadpack.allowAnySHA1InWant", "true")
        gitrepos.git(self._repository, "config", "uploadpack.allowFilter", "true")

    def close(self) -> None:
        """Nothing goes on."""

    def make(self, kind: str, seed: str) -> list[str]:
        """Make one fault; return what was wrong afterwards."""
        makers = {"download": self._download, "git": self._git, "webhook": self._webhook}
        return makers[kind](self._place / seed, random.Random(seed))

    def _subject(self, folder: Path, *flags: str) -> Subject:
        subject = Subject(
            folder,
            "plain",
            more=flags,
            settings={**_NO_PROXY, "GIT_ALLOW_PROTOCOL": "http:file"},
            set_up=hasten,
            takes_internal_errors=False,
        )
        subject.prepare()
        return subject

    def _run(self, subject: Subject, draw: random.Random) -> Ended:
        """Run it, and kill it in some of the faults."""
        if draw.random() < 0.25:
            at_s = draw.uniform(0, _LATEST_S)
            return subject.run(watched=partial(later, at_s, killed))
        return subject.run()

    def _download(self, folder: Path, draw: random.Random) -> list[str]:
        contents = [draw.randbytes(draw.choice((0, 10, 70_000, 300_000))) for _ in range(2)]
        packed = draw.random() < 0.3
        if packed:
            contents = [gzip.compress(content) for content in contents]
        knows_sum = draw.random() < 0.6
        site = DataSite(contents, None if knows_sum else draw)
        server = Server(site, WAYS if knows_sum else SEEN, draw)
        name = "set.gz" if packed else "set.bin"
        with server.serving():
            item = f"{server.url}/{name};{name}"
            if knows_sum:
                item += f";sha256={hashlib.sha256(contents[0]).hexdigest()}"
            data = folder / "data"
            words = (f"--data_downloads={item}", f"--root_data_dir={data}")
            subject = self._subject(folder, *words)
            ended = self._run(subject, draw)
            found = _refused_in_one_line(ended, server.url)
            found += _wrong_data(data / name, contents, ended, whole=False)
            server.be_honest()
            site.settle()
            found += subject.problems(ended)
            found += _wrong_data(data / name, contents, Ended(0, "", ""), whole=True)
        ways = ", ".join(way for _, way in server.asked[:8])
        return [f"{problem} [{ways}]" for problem in found]

    def _git(self, folder: Path, draw: random.Random) -> list[str]:
        server = Server(GitSite(self._repository), WAYS, draw)
        wanted = draw.choice(self._hashes)
        asked = draw.choice((f";main;{wanted}", ";main", ""))
        wanted = wanted if asked.count(";") == 2 else self._hashes[-1]
        with server.serving():
            subject = self._subject(folder, f"--git_repos={server.url}/own.git{asked}")
            ended = self._run(subject, draw)
            found = _refused_in_one_line(ended, server.url)
            if ended.code == 0:
                found += _wrong_checkout(subject.workspace, wanted)
            server.be_honest()
            found += subject.problems(ended)
            found += _wrong_checkout(subject.workspace, wanted)
        ways = ", ".join(f"{way} of {request.path[-20:]}" for request, way in server.asked[:8])
        return [f"{problem} [{ways}]" for problem in found]

    def _webhook(self, folder: Path, draw: random.Random) -> list[str]:
        server = Server(lambda _: Answer(b"taken"), WAYS, draw)
        subject = self._subject(folder)
        suite = folder / "suite.toml"
        with server.serving():
            suite.write_text(
                f'name = "night"\nwebhook = "{server.url}/{_SECRET}"\n'
                f'workspace = "{subject.workspace}"\npython_path = ["{folder / "code"}"]\n'
                'trials = 1\n[[methods]]\nname = "pkg.cases.Two.first"\n',
                encoding="utf-8",
            )
            ended = subject.start_words(["nightly", str(suite), "--format=json"]).end()
        ways = [way for _, way in server.asked]
        found = _of_the_night(subject, ended, server)
        return [f"{problem} [{', '.join(ways)}]" for problem in found]


class DataSite:
    """Serves a file, by ranges too; with `changes` it becomes another one now and then."""

    def __init__(self, contents: list[bytes], changes: random.Random | None) -> None:
        self._contents, self._changes = contents, changes
        self._now = 0

    def settle(self) -> None:
        """Stay as it is."""
        self._changes = None

    def __call__(self, request: Request) -> Answer:
        if self._changes is not None and self._changes.random() < 0.3:
            self._now = 1 - self._now
        body, tag = self._contents[self._now], f'"{self._now}"'
        asked = re.fullmatch(r"bytes=(\d+)-", request.headers.get("range", ""))
        if asked is None or request.headers.get("if-range") not in (None, tag):
            return Answer(body, headers={"ETag": tag})
        start = int(asked[1])
        if start >= len(body):
            return Answer(b"", 416, {"ETag": tag, "Content-Range": f"bytes */{len(body)}"})
        ranged = f"bytes {start}-{len(body) - 1}/{len(body)}"
        return Answer(body[start:], 206, {"ETag": tag, "Content-Range": ranged})


class GitSite:
    """Serves a repository by git's smart protocol."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository

    def __call__(self, request: Request) -> Answer:
        path, _, query = request.path.partition("?")
        tells = path.endswith("/info/refs") and query == "service=git-upload-pack"
        if not tells and not path.endswith("/git-upload-pack"):
            return Answer(b"", 404)
        packed = request.headers.get("content-encoding") == "gzip"
        done = subprocess.run(
            ["git", "upload-pack", "--stateless-rpc", *(["--advertise-refs"] * tells), "."],
            cwd=self._repository,
            env={**os.environ, "GIT_PROTOCOL": request.headers.get("git-protocol", "")},
            input=gzip.decompress(request.body) if packed else request.body,
            capture_output=True,
            check=False,
        )
        begin = b"001e# service=git-upload-pack\n0000" if tells else b""
        kind = "advertisement" if tells else "result"
        headers = {"Content-Type": f"application/x-git-upload-pack-{kind}"}
        return Answer(begin + done.stdout, headers={**headers, "Cache-Control": "no-cache"})


def _refused_in_one_line(ended: Ended, url: str) -> list[str]:
    """What is wrong with how a run ended that a server has harmed; a kill is no harm of it."""
    if ended.code < 0 or ended.code == 0:
        return []
    lines = [line for line in ended.err.splitlines() if url.partition("://")[2] in line]
    last = ended.err.rstrip().rpartition("\n")[2]
    if ended.code != 2 or not lines or not last.startswith("perfrun: ") or not last.isprintable():
        return [f"status {ended.code}, and not one line of it: {ended.err[-900:]!r}"]
    return []


def _wrong_data(path: Path, contents: list[bytes], ended: Ended, *, whole: bool) -> list[str]:
    """What is wrong with the file under its name: there in whole, or not at all."""
    found = []
    if path.exists():
        if path.read_bytes() not in contents:
            found.append(f"{path.name} has other bytes: {path.stat().st_size}")
    elif ended.code == 0 or whole:
        found.append(f"{path.name} is not there")
    if whole:
        others = [p.name for p in path.parent.iterdir() if p.suffix == ".partial"]
        found += [f"left behind: {name}" for name in others]
    return found


def _wrong_checkout(workspace: Path, wanted: str) -> list[str]:
    checkout = workspace / "site-packages" / "own"
    here = partial(gitrepos.git, checkout)
    found = []
    try:
        if (head := here("rev-parse", "HEAD")) != wanted:
            found.append(f"the checkout is at {head}, not {wanted}")
        if changed := here("status", "--porcelain"):
            found.append(f"the checkout is not clean: {changed}")
        here("fsck", "--connectivity-only")
    except (OSError, subprocess.CalledProcessError) as error:
        found.append(f"no checkout: {error} {getattr(error, 'stderr', '')}")
    return found


def _of_the_night(subject: Subject, ended: Ended, server: Server) -> list[str]:
    """What is wrong after a night: its report is on disk, and delivered or said not to be."""
    found = []
    said = ended.out + ended.err
    if ended.hung or "Traceback" in said or "internal error" in said:
        found.append(f"the night: {ended.code} {said[-900:]}")
    if _SECRET in said:
        found.append("the path of the webhook is shown")
    try:
        report: Any = json.loads(ended.out)
    except ValueError:
        return [*found, f"no report: {ended.code} {said[-900:]}"]
    whole = [request for request, way in server.asked if request.body]
    told = [json.loads(request.body) for request in whole]
    if not whole or any(one["night"] != report["night"] for one in told):
        found.append("what was sent is not the report")
    if any(_SECRET in json.dumps(one) for one in told):
        found.append("the path of the webhook is in the report")
    refused = "did not take the report" in said
    taken = any(way == "right" for _, way in server.asked)
    if taken and refused:
        found.append(f"taken, and said not to be: {said[-300:]}")
    if not refused and not any(way in _MAY_BE_TAKEN for _, way in server.asked):
        found.append(f"not taken, and nothing is said: {said[-300:]}")
    if ended.code != 0 or report["methods"][0]["state"] != "ok":
        found.append(f"status {ended.code}: {said[-600:]}")
    return [*found, *(f"runs on: {line}" for line in subject.left_running())]


# The answer's status is 200, or may be: its body is not read.
_MAY_BE_TAKEN = {
    *("right", "hangs_up", "resets", "stalls", "drips", "says_longer", "says_shorter"),
    *("says_nonsense_of_length", "says_no_length", "has_other_bytes", "says_too_much"),
    *("sends_another_range", "says_packed", "sends_broken_chunks"),
}
SERVED: tuple[str, ...] = ("download", "git", "webhook")
