"""The user of the trials, with the rights that the entry point of an image leaves to perfrun.

A process of its own becomes what perfrun is in a container; only root can.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfrun.trial_user import VARIABLE

ROOT = Path(__file__).resolve().parents[2]
HARNESS, TRIAL = 1234, 61234
# Imports come first: whom it becomes need not be able to read these files.
PROLOGUE = f"""
import json, os, runpy, stat, subprocess, sys
from pathlib import Path
from perfrun import trial_user, untrusted
from perfrun.launchers import passage
from perfrun.run.taken_back import take_back
entry = runpy.run_path({str(ROOT / "scripts/container/entrypoint.py")!r})
place = Path(sys.argv[1])
entry["become"](({HARNESS}, {HARNESS}), keeps=True)
os.environ[trial_user.VARIABLE] = "{TRIAL}:/tmp"
user = trial_user.trial_user()
def trial(program):
    return subprocess.run(["/bin/sh", "-c", program], capture_output=True, text=True,
                          cwd=place, **trial_user.identity(user))
"""

pytestmark = pytest.mark.root


@pytest.fixture
def place() -> Path:
    """A folder of the harness's that nobody else may enter, below folders that all may."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    path = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    os.chown(path, HARNESS, HARNESS)
    return path


def done(program: str, place: Path) -> dict[str, object]:
    process = subprocess.run(
        [sys.executable, "-c", PROLOGUE + program, str(place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    subprocess.run(["rm", "-rf", str(place)], check=True)
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert isinstance(found, dict)
    return found


def test_a_trial_has_its_folder_and_no_rights_and_all_of_it_is_taken_back(place: Path) -> None:
    said = done(
        """
own = place / "own"
own.mkdir(); (own / "perfrun").mkdir(); (own / "kept").write_text("of perfrun")
no_way = passage.why_not(user, own, [Path("/bin/sh"), Path("/etc/shadow")])
why_not = passage.why_not(user, own, [Path("/bin/sh")])
passes = os.listxattr(place)
with untrusted.Folder(own) as folder:
    user.lend(folder.descriptor)
status = trial("grep -E '^(Cap[IPEA]|Uid|Groups)' /proc/self/status").stdout
trial("cd own && mkdir -p a/b && cp /bin/sh a/b/s && chmod 6755 a/b/s && chmod 0 a/b a"
      " && ln -s /etc/passwd link && mkfifo pipe && touch ../outside; echo x >> kept")
killed = trial(f"kill -9 {os.getpid()}").returncode
notes = take_back(own, from_container=False)
found = {str(p.relative_to(place)): [p.lstat().st_uid, p.lstat().st_gid,
         oct(stat.S_IMODE(p.lstat().st_mode))] for p in sorted(own.rglob("*"))}
after = subprocess.run(["grep", "^Cap[PE]", "/proc/self/status"], capture_output=True, text=True)
import atexit; atexit._run_exitfuncs()
print(json.dumps({"no_way": no_way, "why_not": why_not, "passes": passes, "status": status,
    "killed": killed, "notes": notes, "found": found, "outside": (place / "outside").exists(),
    "own": [own.stat().st_gid, oct(own.stat().st_mode & 0o7777)],
    "kept": (own / "kept").read_text(),
    "handed_on": after.stdout.split()[1::2], "closed": os.listxattr(place),
    "place": oct(place.stat().st_mode & 0o7777), "shown": trial_user.VARIABLE in os.environ}))
""",
        place,
    )
    assert said["no_way"] == "/etc/shadow: Permission denied"
    assert (said["why_not"], said["passes"]) == (None, ["system.posix_acl_access"])
    status = str(said["status"])
    assert f"Uid:\t{TRIAL}\t{TRIAL}\t{TRIAL}\t{TRIAL}" in status
    assert status.count("\t0000000000000000\n") == 4
    assert said["killed"] != 0
    found = said["found"]
    assert isinstance(found, dict)
    assert {tuple(each[:2]) for each in found.values()} == {(HARNESS, HARNESS)}
    assert {"own/a/b/s", "own/link", "own/pipe"} <= found.keys()
    assert found["own/a/b/s"][2] == "0o755"
    assert said["own"] == [HARNESS, "0o755"]
    assert (said["kept"], said["outside"]) == ("of perfrun", False)
    assert "setuid or setgid bits" in str(said["notes"])
    assert (said["closed"], said["place"], said["shown"]) == ([], "0o700", False)
    assert set(said["handed_on"]) == {"0000000000000000"}  # type: ignore[call-overload]


def test_the_files_of_a_process_are_seen_as_its_own_user_sees_them(place: Path) -> None:
    said = done(
        """
process = subprocess.Popen(["sleep", "60"], **trial_user.identity(user))
def seen():
    try:
        return Path(f"/proc/{process.pid}/smaps_rollup").read_text().count("\\nPss:")
    except PermissionError:
        return "not"
before = seen()
trial_user.watch_as(user)
with trial_user.eyes_of_trials():
    there = seen()
after = seen()
process.kill(); process.wait()
print(json.dumps({"seen": [before, there, after], "traced": os.stat("/proc/self/fd").st_uid}))
""",
        place,
    )
    assert said["seen"] == ["not", 1, "not"]
    assert said["traced"] == HARNESS  # the guard, who is the same user, may still take our files


def test_without_the_rights_there_is_no_such_user(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "from perfrun import trial_user\ntrial_user.trial_user()"
    for value in (f"{os.geteuid()}:/tmp", "x", "61234:relative", "0:/"):
        process = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, VARIABLE: value},
            capture_output=True,
            text=True,
        )
        assert "NoRightsError" in process.stderr.splitlines()[-1]
