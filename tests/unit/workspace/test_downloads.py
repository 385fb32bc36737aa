"""Downloads from a real http server on this machine, and copies of files and folders."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from worlds import wait_until

from perfrun.errors import WorkspaceError
from perfrun.options.plan import DataSpec, parse_data
from perfrun.workspace import http_transfer
from perfrun.workspace.downloads import Dataset, provide_data

BODY = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(BODY).hexdigest()
Provide = Callable[..., Dataset]


class Server(ThreadingHTTPServer):
    """Serves `files`; `faults` are used up one a request before anything is served well."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {"/data.bin": BODY}
        self.faults: list[str] = []
        self.requests: list[tuple[str, str | None]] = []  # path and Range
        self.ranges = True
        self.validators = True
        self.may_answer = threading.Event()
        self.may_answer.set()

    def url(self, path: str = "/data.bin") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *words: Any) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server
        path = self.path.partition("?")[0]
        server.requests.append((path, self.headers.get("Range")))
        server.may_answer.wait()
        fault = server.faults.pop(0) if server.faults else ""
        if fault.isdigit():
            self.send_response(int(fault))
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"sorry")
            return
        if path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/data.bin")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if path not in server.files:
            self.send_error(404)
            return
        self.send_body(server.files[path], fault)

    def send_body(self, body: bytes, fault: str) -> None:
        tag = f'"{hashlib.sha256(body).hexdigest()[:8]}"'
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = 0
        if asked and self.server.ranges and self.headers.get("If-Range") == tag:
            start = int(asked[1])
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        if self.server.validators:
            self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(body) - start))
        if fault == "encoded":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        rest = body[start:]
        if fault == "cut":
            rest = rest[: len(rest) // 2]
        self.wfile.write(rest)
        self.close_connection = True


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "da ta'\n\"ä"


@pytest.fixture
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace") / "data-records"


@pytest.fixture
def provide(
    root: Path, records: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> Provide:
    monkeypatch.setattr(http_transfer, "_FIRST_PAUSE_S", 0.01)

    def provide(text: str) -> Dataset:
        (dataset,) = provide_data(
            parse_data(text, "--data_downloads"), root=root, records=records, notify=notes.append
        )
        return dataset

    return provide


def record_of(records: Path, path: Path) -> Path:
    """Return the file of a path's record."""
    (found,) = (p for p in records.iterdir() if json.loads(p.read_text())["path"] == str(path))
    return found


def visible(root: Path) -> list[str]:
    return sorted(p.name for p in root.iterdir() if not p.name.startswith("."))


# http


def test_a_file_is_downloaded_once_and_recorded(
    provide: Provide, server: Server, root: Path, records: Path
) -> None:
    url = server.url()
    first = provide(url)
    assert first == Dataset(
        url=url,
        path=str(root / "data.bin"),
        sha256=SHA256,
        size_bytes=len(BODY),
        downloaded=True,
        unpacked=False,
    )
    assert (root / "data.bin").read_bytes() == BODY
    assert visible(root) == ["data.bin"]
    second = provide(f"{url};sha256={SHA256}")
    assert (second.downloaded, second.sha256) == (False, SHA256)
    assert len(server.requests) == 1
    record = json.loads(record_of(records, root / "data.bin").read_text())
    assert (record["url"], record["sha256"], record["size"]) == (url, SHA256, len(BODY))


def test_a_file_may_get_another_name_and_folder(
    provide: Provide, server: Server, root: Path
) -> None:
    assert provide(server.url() + ";deep/er/x.bin").path == str(root / "deep" / "er" / "x.bin")
    assert (root / "deep" / "er" / "x.bin").read_bytes() == BODY


def test_a_redirect_is_followed(provide: Provide, server: Server) -> None:
    assert provide(server.url("/moved") + ";x").sha256 == SHA256


@pytest.mark.parametrize("status", ["404", "403", "410"])
def test_a_refusal_is_an_error_at_once_and_leaves_nothing(
    provide: Provide, server: Server, root: Path, status: str
) -> None:
    server.faults = [status] * 9
    with pytest.raises(WorkspaceError, match=f"cannot download .*the server answers {status}"):
        provide(server.url())
    assert len(server.requests) == 1
    assert visible(root) == []


def test_what_may_pass_is_tried_again(provide: Provide, server: Server, notes: list[str]) -> None:
    server.faults = ["503", "429", "500"]
    assert provide(server.url()).sha256 == SHA256
    assert len(server.requests) == 4
    assert sum("trying again" in note for note in notes) == 3


def test_what_does_not_pass_is_given_up(provide: Provide, server: Server, root: Path) -> None:
    server.faults = ["503"] * 99
    with pytest.raises(WorkspaceError, match=r"the server answers 503 \(5 tries\)"):
        provide(server.url())
    assert len(server.requests) == 5
    assert visible(root) == []


def test_a_broken_transfer_is_continued(provide: Provide, server: Server) -> None:
    server.faults = ["cut", "cut"]
    assert provide(server.url()).sha256 == SHA256
    half = len(BODY) // 2
    assert server.requests == [
        ("/data.bin", None),
        ("/data.bin", f"bytes={half}-"),
        ("/data.bin", f"bytes={half + half // 2}-"),
    ]


@pytest.mark.parametrize("lacking", ["ranges", "validators"])
def test_a_broken_transfer_starts_anew_where_it_cannot_be_continued(
    provide: Provide, server: Server, root: Path, lacking: str
) -> None:
    setattr(server, lacking, False)
    server.faults = ["cut"]
    assert provide(server.url()).sha256 == SHA256
    assert (root / "data.bin").read_bytes() == BODY
    assert len(server.requests) == 2


def test_a_file_that_changes_between_two_tries_is_not_mixed(
    provide: Provide, server: Server, root: Path
) -> None:
    server.faults = ["cut"] + ["503"] * 9
    with pytest.raises(WorkspaceError):
        provide(server.url())
    assert visible(root) == ["data.bin.partial"]
    server.faults = []
    server.files["/data.bin"] = b"new" * 99
    provide(server.url())
    assert (root / "data.bin").read_bytes() == b"new" * 99
    assert visible(root) == ["data.bin"]
    assert sorted(p.name for p in root.iterdir()) == [
        ".data.bin.perfrun.lock",
        "data.bin",
    ]


def test_a_later_run_continues_where_an_earlier_one_was_broken_off(
    provide: Provide, server: Server
) -> None:
    server.faults = ["cut"] + ["503"] * 9
    with pytest.raises(WorkspaceError):
        provide(server.url())
    server.faults, server.requests = [], []
    assert provide(server.url()).sha256 == SHA256
    assert server.requests == [("/data.bin", f"bytes={len(BODY) // 2}-")]


# Downloads argv[1] over and over, each time from the same earlier part and killed one line later,
# and prints what the next call then makes of what is there. One thread, so that it may fork.
KILLED_AT_EACH_LINE = """
import os, signal, sys
from pathlib import Path
from perfrun import untrusted
from perfrun.workspace import data_records, http_transfer

http_transfer._PART = 1 << 16  # several blocks, so several places to be killed between them
url, partial, earlier, noted = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
note = data_records.DataRecords(partial.with_name("records")).transfer(partial)

def download():
    return http_transfer.download(url, partial, note, print)

def put_earlier_part_in_place():
    partial.write_bytes(Path(earlier).read_bytes())
    known = {"url": noted, "validator": sys.argv[5], "inode": partial.stat().st_ino}
    note.write(known)

def kill_at(count):
    left, answered = [count], []
    def step(frame, event, value):
        if event == "line":
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
        return step
    def enter(frame, event, value):
        name = frame.f_code.co_filename
        if name == http_transfer.__file__ and frame.f_code.co_name == "_read_answer":
            answered.append(True)  # nothing is changed before
        # Not pathlib, which is many lines between two calls of the system.
        is_ours = name in (http_transfer.__file__, untrusted.__file__)
        return step if answered and is_ours else None
    sys.settrace(enter)

put_earlier_part_in_place()
download()  # what is imported on the way is there from here on
killed = 0
while True:
    put_earlier_part_in_place()
    pid = os.fork()
    if not pid:
        kill_at(killed + 1)
        download()
        sys.settrace(None)
        os._exit(0)
    if os.waitpid(pid, 0)[1] == 0:
        break
    killed += 1
    left = (partial.stat().st_size if partial.exists() else None, note.read())
    assert download() == sys.argv[6], (killed, left)
print(killed)
"""


@pytest.mark.parametrize("earlier", ["of another content", "of another url", "of the same content"])
def test_a_download_that_is_killed_anywhere_is_never_continued_from_bytes_of_another_file(
    server: Server, tmp_path: Path, earlier: str
) -> None:
    same = earlier == "of the same content"
    (tmp_path / "earlier").write_bytes(BODY[:200_000] if same else b"o" * 200_000)
    tag = hashlib.sha256(BODY if same else b"old").hexdigest()[:8]
    noted = server.url("/other") if earlier == "of another url" else server.url()
    words = [server.url(), tmp_path / "x.partial", tmp_path / "earlier", noted, f'"{tag}"', SHA256]
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT_EACH_LINE, *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30
    assert len([asked for _, asked in server.requests if asked]) > 10  # it was continued, too


def test_a_server_that_is_away_is_one_clear_line(
    provide: Provide, server: Server, root: Path
) -> None:
    url = server.url()
    server.socket.close()
    with pytest.raises(WorkspaceError, match=r"Connection refused.* \(5 tries\)") as told:
        provide(url)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 250


def test_a_wrong_sum_is_an_error_with_both_sums_and_keeps_nothing(
    provide: Provide, server: Server, root: Path
) -> None:
    wrong = "0" * 64
    with pytest.raises(WorkspaceError, match=f"has sha256 {SHA256}, not {wrong} as asked"):
        provide(f"{server.url()};sha256={wrong}")
    assert [p.name for p in root.iterdir()] == [".data.bin.perfrun.lock"]


def test_a_gz_called_encoded_is_kept_as_it_is(provide: Provide, server: Server, root: Path) -> None:
    server.files["/x.gz"] = packed = gzip.compress(b"text")
    server.faults = ["encoded"]
    assert not provide(server.url("/x.gz")).unpacked
    assert (root / "x.gz").read_bytes() == packed


def test_secrets_are_in_no_file_and_no_message(
    provide: Provide, server: Server, root: Path, records: Path, notes: list[str]
) -> None:
    url = server.url("/data.bin?token=t0ps3cret").replace("//", "//joe:s3cr3tpass@")
    server.faults = ["cut", "503"]
    dataset = provide(url)
    server.faults = ["404"]
    with pytest.raises(WorkspaceError) as told:
        provide(url + ";other")
    texts = [repr(dataset), str(told.value), *notes]
    files = [*root.iterdir(), *records.iterdir()]
    texts += [p.read_bytes().decode("latin-1") for p in files]
    assert len(texts) > 6
    assert not [t for t in texts if "t0ps3cret" in t or "s3cr3tpass" in t]


def test_of_three_runs_one_downloads(server: Server, root: Path, tmp_path: Path) -> None:
    server.may_answer.clear()
    program = (
        "import sys; from pathlib import Path; from perfrun.options.plan import parse_data\n"
        "from perfrun.workspace.downloads import provide_data\n"
        "root = Path(sys.argv[2])\n"
        "items = parse_data(sys.argv[1], '')\n"
        "print(provide_data(items, root=root, records=root / 'r', notify=print))"
    )
    logs = [tmp_path / f"log {number}" for number in range(3)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    environment["PYTHONUNBUFFERED"] = "1"
    runs = []
    for log in logs:
        with log.open("wb") as file:
            words = [sys.executable, "-c", program, server.url(), str(root)]
            runs.append(subprocess.Popen(words, stdout=file, env=environment))

    def waiting() -> int:
        return sum("waiting for another run" in log.read_text() for log in logs)

    try:
        wait_until(lambda: waiting() == 2)  # for the one that waits for the server
    finally:
        server.may_answer.set()
    assert [process.wait(120) for process in runs] == [0, 0, 0]
    assert len(server.requests) == 1
    assert sum("downloaded=True" in log.read_text() for log in logs) == 1
    assert waiting() == 2


# What is there already


def test_data_of_the_users_own_is_used_hashed_once_and_never_overwritten(
    provide: Provide, server: Server, root: Path, notes: list[str]
) -> None:
    root.mkdir()
    (root / "data.bin").write_bytes(b"mine")
    mine = hashlib.sha256(b"mine").hexdigest()
    for _ in range(2):
        dataset = provide(server.url())
        assert (dataset.sha256, dataset.size_bytes, dataset.downloaded) == (mine, 4, False)
    assert sum("computing the sha256" in note for note in notes) == 1
    with pytest.raises(WorkspaceError, match=f"has sha256 {mine}, not sha256 {SHA256} as asked"):
        provide(f"{server.url()};sha256={SHA256}")
    assert (root / "data.bin").read_bytes() == b"mine"
    assert server.requests == []


def test_a_file_that_was_replaced_is_hashed_again(
    provide: Provide, server: Server, root: Path
) -> None:
    provide(server.url())
    (root / "data.bin").write_bytes(b"mine")
    assert provide(server.url()).sha256 == hashlib.sha256(b"mine").hexdigest()


def test_nothing_to_download_makes_no_folder(root: Path) -> None:
    assert provide_data([], root=root, records=root / "records", notify=print) == ()
    assert not root.exists()


def test_a_root_that_cannot_be_made_is_one_clear_line(tmp_path: Path, server: Server) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WorkspaceError, match=r"^--root_data_dir .*/file/x: .*Not a directory"):
        provide_data(
            [DataSpec(url=server.url(), relative_path="y")],
            root=tmp_path / "file" / "x",
            records=tmp_path / "records",
            notify=print,
        )


# file://


def test_a_file_url_is_copied_and_percent_escapes_understood(
    provide: Provide, tmp_path: Path, root: Path
) -> None:
    (tmp_path / "a b").write_bytes(BODY)
    assert provide(f"file://{tmp_path}/a%20b;x").sha256 == SHA256
    assert (root / "x").read_bytes() == BODY
    assert provide(f"file://{tmp_path}/a b;y;sha256={SHA256}").sha256 == SHA256


def test_a_folder_is_copied_with_its_links(provide: Provide, tmp_path: Path, root: Path) -> None:
    source = tmp_path / "set"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "x").write_text("x")
    (source / "inside").symlink_to(source / "sub" / "x")
    (tmp_path / "blob").write_text("blob")
    (source / "outside").symlink_to("../blob")
    for ending in ("", "/", "/*"):
        name = f"copy{len(ending)}"
        dataset = provide(f"file://{source}{ending};{name}")
        assert (dataset.sha256, dataset.size_bytes, dataset.downloaded) == (None, None, True)
        copy = root / name
        assert (copy / "inside").readlink() == Path("sub/x")
        assert not (copy / "outside").is_symlink()
        assert (copy / "outside").read_text() == "blob"
        assert not provide(f"file://{source}{ending};{name}").downloaded
    with pytest.raises(WorkspaceError, match="is a folder"):
        provide(f"file://{source};z;sha256={SHA256}")
    assert "z" not in visible(root)


def test_links_that_cannot_be_copied_are_named(
    provide: Provide, tmp_path: Path, root: Path
) -> None:
    source = tmp_path / "set"
    source.mkdir()
    (source / "up").symlink_to("..")
    with pytest.raises(WorkspaceError, match="leads to a folder above it"):
        provide(f"file://{source}")
    (source / "up").unlink()
    (source / "away").symlink_to("/nowhere/at/all")
    with pytest.raises(WorkspaceError, match="the link leads nowhere"):
        provide(f"file://{source}")
    (source / "away").unlink()
    os.mkfifo(source / "pipe")
    with pytest.raises(WorkspaceError, match="neither a file nor a folder"):
        provide(f"file://{source}")
    (source / "pipe").unlink()
    provide(f"file://{source}")
    assert visible(root) == ["set"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("file:///no/such/thing", "there is no such file or folder"),
        ("file://otherhost/etc/passwd", "cannot name the host 'otherhost'"),
    ],
)
def test_a_file_url_that_names_nothing_is_refused(provide: Provide, url: str, says: str) -> None:
    with pytest.raises(WorkspaceError, match=says):
        provide(url)


def test_a_folder_is_not_copied_into_itself(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="into itself"):
        provide_data(
            [DataSpec(url=f"file://{tmp_path}", relative_path="x")],
            root=tmp_path / "data",
            records=tmp_path / "records",
            notify=print,
        )


# Archives


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def member(name: str, content: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("s.tar.gz", "w:gz"),
        ("s.tgz", "w:gz"),
        ("s.tar", "w"),
        ("s.tar.xz", "w:xz"),
        ("s.gz", "w:gz"),
    ],
)
def test_an_archive_is_unpacked_beside_itself_and_kept(
    provide: Provide, tmp_path: Path, root: Path, name: str, mode: str
) -> None:
    path = archive(
        tmp_path / name,
        member("set/a", b"a", mode=0o755),
        member("set/link", type=tarfile.SYMTYPE, linkname="a"),
        member("b", b"b"),
        mode=mode,
    )
    assert provide(f"file://{path};sub/{name}").unpacked
    assert (root / "sub" / "set" / "link").read_text() == "a"
    assert os.access(root / "sub" / "set" / "a", os.X_OK)
    assert visible(root / "sub") == sorted(["b", name, "set"])
    (root / "sub" / "b").unlink()
    assert provide(f"file://{path};sub/{name}").unpacked
    assert not (root / "sub" / "b").exists(), "it was unpacked twice"


def test_a_gz_that_is_no_archive_is_left_alone(
    provide: Provide, tmp_path: Path, root: Path
) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"text" * 1000))
    assert not provide(f"file://{tmp_path}/x.gz").unpacked
    assert visible(root) == ["x.gz"]


@pytest.mark.parametrize("cut", [0, 30, 200, 20000])
def test_a_broken_archive_is_an_error_and_leaves_nothing_of_it(
    provide: Provide, tmp_path: Path, root: Path, cut: int
) -> None:
    whole = archive(tmp_path / "w", member("a", os.urandom(50000)), member("b", b"b")).read_bytes()
    (tmp_path / "s.tar.gz").write_bytes(whole[:cut])
    for _ in range(2):
        with pytest.raises(WorkspaceError, match=r"is broken|is not a tar archive") as told:
            provide(f"file://{tmp_path}/s.tar.gz")
        assert "\n" not in str(told.value).replace(str(root), "")
    assert visible(root) == ["s.tar.gz"]


HOSTILE = {
    "absolute link": [member("x", type=tarfile.SYMTYPE, linkname="/etc")],
    "link out": [member("d/x", type=tarfile.SYMTYPE, linkname="../../out")],
    "hard link out": [member("x", type=tarfile.LNKTYPE, linkname="../../out")],
    "parent": [member("../../out", b"x")],
    "device": [member("x", type=tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "pipe": [member("x", type=tarfile.FIFOTYPE)],
    "through a link": [
        member("d", type=tarfile.SYMTYPE, linkname="."),
        member("d/x", b"x"),
    ],
    "a link that others turn outwards": [
        member("a", type=tarfile.SYMTYPE, linkname="b/../../out"),
        member("deep/er", b"x"),
        member("b", type=tarfile.SYMTYPE, linkname="deep"),
        member("c", type=tarfile.SYMTYPE, linkname="b/../.."),
    ],
}


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_archive_is_refused_as_a_whole(
    provide: Provide, tmp_path: Path, root: Path, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    path = archive(tmp_path / "s.tar", member("good", b"good"), *members, mode="w")
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(WorkspaceError, match=r"not unpacked|through a link"):
        provide(f"file://{path}")
    assert visible(root) == ["s.tar"]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*before, root.name])


def test_an_absolute_name_in_an_archive_is_taken_as_relative(
    provide: Provide, tmp_path: Path, root: Path
) -> None:
    provide(f"file://{archive(tmp_path / 's.tar', member('/etc/perfrun-x', b'x'), mode='w')}")
    assert (root / "etc" / "perfrun-x").read_bytes() == b"x"
    assert not Path("/etc/perfrun-x").exists()


def test_unpacking_merges_folders_but_replaces_no_file(
    provide: Provide, tmp_path: Path, root: Path
) -> None:
    one = archive(tmp_path / "one.tar", member("set/a", b"a"), member("set/both", b"x"), mode="w")
    two = archive(tmp_path / "two.tar", member("set/b", b"b"), member("set/both", b"x"), mode="w")
    bad = archive(tmp_path / "bad.tar", member("set/c", b"c"), member("set/a", b"other"), mode="w")
    provide(f"file://{one}")
    provide(f"file://{two}")
    with pytest.raises(WorkspaceError, match=r"(?s)would replace .*set/a, which differs"):
        provide(f"file://{bad}")
    assert sorted(p.name for p in (root / "set").iterdir()) == ["a", "b", "both"]
    assert (root / "set" / "a").read_bytes() == b"a"


def test_unpacking_that_was_killed_is_done_again(
    provide: Provide, tmp_path: Path, root: Path, records: Path
) -> None:
    path = archive(tmp_path / "s.tar", member("set/a", b"a"), member("b", b"b"), mode="w")
    provide(f"file://{path}")
    record = record_of(records, root / "s.tar")
    record.write_text(record.read_text().replace('"unpacked": true', '"unpacked": null'))
    (root / "b").unlink()
    (root / ".s.tar.unpacking").mkdir()
    dataset = provide(f"file://{path}")
    assert (dataset.downloaded, dataset.unpacked) == (False, True)
    assert (root / "b").read_bytes() == b"b"
    assert not (root / ".s.tar.unpacking").exists()
