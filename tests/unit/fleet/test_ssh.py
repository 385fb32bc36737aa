"""What a host answers is data: a shard is done only when all that it names has come, and whole."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from perfrun import __version__
from perfrun.fleet.dispatch import Answer
from perfrun.fleet.engines import Options
from perfrun.fleet.ssh import Host, _Connection
from perfrun.fleet.transfer import REMOTE, WHOLE, limits_of
from perfrun.run.digest import sha256_of
from perfrun.shards.places import How, ShardPlace
from perfrun.shards.plan import Plan, ShardState
from perfrun.shards.status import statuses
from tests.submissions import SUMMARY, plan
from tests.unit.fleet.test_transfer import FILE, LAST, packed

# A client of ssh whose host says what the test wants, and the commands that it was given.
CLIENT = """#!/bin/sh
for last; do :; done
printf '%s\\n' "$last" >> "{folder}/commands"
case $last in
*--version*) echo "perfrun {version}" ;;
*--receive*) cat > /dev/null ;;
*--send*) cat "{folder}/results" ;;
esac
"""


class Client:
    """The client, and what its host sends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / "ssh"
        path.write_text(CLIENT.format(folder=folder, version=__version__))
        path.chmod(0o755)

    def sends(self, ended: str, last: str = "{}", **summaries: str) -> None:
        members = [(f"output/{name}/{SUMMARY}", FILE, text) for name, text in summaries.items()]
        (self.folder / "results").write_bytes(
            packed((REMOTE, FILE, ended), *members, (WHOLE, FILE, last))
        )

    @property
    def commands(self) -> list[str]:
        return (self.folder / "commands").read_text().splitlines()


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    folder = tmp_path / "client"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return Client(folder)


def host(made: Plan, options: Options | None = None) -> Host:
    options = options or {}
    return Host(made, "lab1", _Connection.of(options, "lab1"), limits_of(options))


def said(digests: dict[str, str], ended: float = 1.0) -> str:
    trials = ", ".join(f'["{name}", "{digest}"]' for name, digest in digests.items())
    return f'{{"how": "ran", "ended": {ended}, "trials": [{trials}]}}'


@pytest.mark.parametrize("sent", [{}, {"t": "another"}, {"u": "text"}])
def test_a_shard_whose_trials_did_not_come_is_not_done(
    tmp_path: Path, client: Client, sent: dict[str, str]
) -> None:
    made = plan(tmp_path / "ws")
    client.sends(said({"t": sha256_of(b"text")}), **sent)
    assert host(made).run(0, threading.Event()) is Answer.MACHINE
    place = ShardPlace(made, 0)
    assert place.counted() is None
    (one,) = place.attempts()
    assert one.ended is not None
    assert one.ended.how is How.MACHINE
    assert one.ended.reason == "its trial t did not come whole"


def test_a_benchmark_that_refuses_its_flags_has_failed_and_not_its_host(
    tmp_path: Path, client: Client
) -> None:
    made = plan(tmp_path / "ws")
    why = "flags after --: cases: Unknown command line flag 'siz'"
    client.sends(f'{{"how": "failed", "ended": 1, "reason": "{why}", "trials": []}}')
    assert host(made).run(0, threading.Event()) is Answer.ENDED
    status, _ = statuses(made)
    assert (status.state, status.reason) == (ShardState.FAILED, why)
    client.sends(said({}))  # one that ran has trials
    assert host(made).run(1, threading.Event()) is Answer.MACHINE
    assert statuses(made)[1].reason == "its results have no trial"


def test_a_name_that_is_none_does_not_count(tmp_path: Path, client: Client) -> None:
    made = plan(tmp_path / "ws")
    client.sends(said({".": sha256_of(b"text")}))
    members = ((REMOTE, FILE, said({".": sha256_of(b"text")})), (f"output/{SUMMARY}", FILE, "text"))
    (client.folder / "results").write_bytes(packed(*members, LAST))
    assert host(made).run(0, threading.Event()) is Answer.MACHINE
    assert ShardPlace(made, 0).counted() is None


def test_what_has_come_does_not_stay_there_for_a_later_run(tmp_path: Path, client: Client) -> None:
    made = plan(tmp_path / "ws")
    client.sends(said({"t": sha256_of(b"text")}), t="text")
    one = host(made)
    assert one.run(1, threading.Event()) is Answer.ENDED
    assert ShardPlace(made, 1).counted() is not None
    own = f".cache/perfrun/fleet/lab-1-{sha256_of(b'lab1')[:8]}"
    assert client.commands[-1] == f"sh -c 'cd && rm -rf -- {own}/shards/00001'"
    one.close()
    assert client.commands[-1] == f"sh -c 'cd && rm -rf -- {own}'"


def test_what_is_too_large_stays_on_its_host_and_is_said(tmp_path: Path, client: Client) -> None:
    made = plan(tmp_path / "ws")
    last = '{"left_out": 1, "left_out_bytes": 6000000000, "names": [["output/t/x", 6000000000]]}'
    client.sends(said({"t": sha256_of(b"text")}), last, t="text")
    one = host(made, {"largest_file": "5g"})
    assert one.run(1, threading.Event()) is Answer.ENDED
    own = f".cache/perfrun/fleet/lab-1-{sha256_of(b'lab1')[:8]}"
    kept = own.replace("fleet/", "fleet/kept/") + "/00001-1"
    why = statuses(made)[1].reason
    assert why == f"too large to come: t/x (5.6 GiB), which stays in {kept}"
    sent = next(one for one in client.commands if "--send" in one)
    assert f"--largest_file={5 * 2**30} --largest_results={32 * 2**30}" in sent
    moved = f"mkdir -p -- {kept[:-8]} && mv -- {own}/shards/00001 {kept}"
    assert client.commands[-1] == f"sh -c 'cd && {moved}'"
    one.close()
    assert client.commands[-1] == f"sh -c 'cd && rm -rf -- {own}'"


@pytest.mark.parametrize("ended", [1.0, 9e10])
def test_the_clock_of_a_host_does_not_count(tmp_path: Path, client: Client, ended: float) -> None:
    made = plan(tmp_path / "ws")
    client.sends(said({"t": sha256_of(b"text")}, ended), t="text")
    before = time.time()
    assert host(made).run(0, threading.Event()) is Answer.ENDED
    status = statuses(made)[0]
    assert status.last is not None
    assert status.last.ended is not None
    assert before <= status.last.ended.ended <= time.time()
