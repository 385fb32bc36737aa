"""What an archive or a server that is downloaded from could do to the host, tried."""

from __future__ import annotations

import binascii
import bz2
import contextlib
import gzip
import hashlib
import io
import json
import lzma
import os
import resource
import shutil
import socket
import stat
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nested import nest

from perfrun.errors import WorkspaceError
from perfrun.image import saved
from perfrun.options.plan import parse_data
from perfrun.workspace import archives, http_client, http_transfer
from perfrun.workspace.archives import unpack_beside
from perfrun.workspace.downloads import Dataset, provide_data

# Archives

Members = list[tuple[tarfile.TarInfo, bytes]]


def member(
    name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, to: str = "", **fields: Any
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, to, len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def link(name: str, to: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, kind=tarfile.SYMTYPE, to=to)


def hard(name: str, to: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, kind=tarfile.LNKTYPE, to=to)


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, kind=tarfile.DIRTYPE)


def packed(members: Members, form: int = tarfile.PAX_FORMAT) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(
        fileobj=stream, mode="w", format=form, encoding="utf-8", errors="surrogateescape"
    ) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def raw(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return a header whose size is not that of any content."""
    info, _ = member(name, kind=kind)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


def deep_links() -> Members:
    """Links whose resolved path is longer than the kernel takes: Python's filter gave up there."""
    part, steps = "d" * 247, "abcdefghijklmnop"
    members, path = [], ""
    for step in steps:
        members += [folder(f"{path}{part}"), link(f"{path}{step}", part)]
        path += f"{part}/"
    way = "/".join(steps)
    return [
        *members,
        folder("z"),
        link(f"z/../{way}/{'l' * 254}", "../" * len(steps)),
        link("escape", f"{way}/{'l' * 254}/../../../outside"),
        member("z/../escape/new", b"x"),
    ]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Yield the folder of an archive, and check that nothing beside it has changed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_text("private")
    place = tmp_path / "data" / "set"
    place.mkdir(parents=True)

    def state() -> list[tuple[str, bytes, int]]:
        return [
            (str(path), path.read_bytes() if path.is_file() else b"", path.lstat().st_nlink)
            for path in sorted(outside.rglob("*"))
        ]

    before = state()
    yield place
    assert state() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", "outside"]
    assert sorted(p.name for p in (tmp_path / "data").iterdir()) == ["set"]


LEAD_OUT: dict[str, Members] = {
    "a name with ..": [member("../new", b"x")],
    "a name with .. in its middle": [folder("a"), member("a/../../../outside/new", b"x")],
    "a folder with ..": [folder("../outside/new")],
    "a name through a folder that is not there": [member("z/../../../outside/new", b"x")],
    "a folder that begins with a missing one": [folder("z/../../new")],
    "a name below a file": [member("a", b"x"), member("a/b", b"x")],
    "a link to the top": [link("a", "/etc")],
    "a link with ..": [link("a", "../../outside/key")],
    "a link through a missing folder": [link("a", "z/../../../outside/key")],
    "a link to nothing": [link("a", "")],
    "a link to the folder above": [link("a", "..")],
    "a link below a folder, one step too far": [link("a/b", "../../key")],
    "a file through a link": [link("a", "."), member("a/../../new", b"x")],
    "a file through a link to inside": [folder("b"), link("a", "b"), member("a/new", b"x")],
    "a file through a link made last": [link("a/b", "."), member("a/b/c", b"x")],
    "a folder through a link": [link("a", "."), folder("a/b")],
    "a link through a link": [link("a", "."), link("a/b", "..")],
    "a folder, then a link of its name": [folder("a"), link("a", ".")],
    "a link, then a folder of its name": [link("a", "."), folder("a")],
    "a file, then a folder of its name": [member("a", b"x"), folder("a")],
    "a folder, then a file of its name": [folder("a"), member("a", b"x")],
    "a second name of a file outside": [hard("a", "../../outside/key")],
    "a second name of a file from the top": [hard("a", "/etc/passwd")],
    "a second name through a link": [link("a", "."), hard("b", "a/key")],
    "a second name of a link that leads out there": [link("a/b/c", "../.."), hard("d", "a/b/c")],
    "a second name of a folder": [folder("a"), hard("b", "a")],
    "a second name of nothing": [hard("a", "")],
    "a second name of what comes later": [hard("a", "b"), member("b", b"x")],
    "a PAX path": [member("a", b"x", pax_headers={"path": "../../outside/key"})],
    "a PAX path with a zero byte": [member("a", b"x", pax_headers={"path": "a\0b"})],
    "a PAX link": [
        member("a", kind=tarfile.SYMTYPE, to="b", pax_headers={"linkpath": "../../outside"})
    ],
    "a PAX size below zero": [member("a", b"x", pax_headers={"size": "-1024"}), member("b", b"x")],
    "a long GNU name": [member("z/" * 200 + "../" * 203 + "outside/new", b"x")],
    "a device": [member("a", kind=tarfile.CHRTYPE, devmajor=1, devminor=5)],
    "a disk": [member("a", kind=tarfile.BLKTYPE, devmajor=8)],
    "a pipe": [member("a", kind=tarfile.FIFOTYPE)],
    "links deeper than a path": deep_links(),
    "a path of 10,000 folders": [folder("a/" * 10_000)],
    "the archive's own name": [member("s.tar", b"x")],
    "the folder itself as a link": [link(".", "/etc")],
    "the folder itself as a file": [member("./", b"x", kind=tarfile.REGTYPE)],
}


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT], ids=["pax", "gnu"])
@pytest.mark.parametrize("members", LEAD_OUT.values(), ids=LEAD_OUT)
def test_an_archive_that_leads_out_is_refused_as_a_whole(
    place: Path, members: Members, form: int
) -> None:
    if form == tarfile.GNU_FORMAT and any(info.pax_headers for info, _ in members):
        return  # this format has none
    (place / "s.tar").write_bytes(packed([member("good", b"good"), *members], form))
    with pytest.raises((WorkspaceError, OSError)) as told:
        unpack_beside(place / "s.tar", must_be_tar=True)
    assert "\n" not in WorkspaceError(str(told.value)).line
    assert len(str(told.value)) < 600
    assert [p.name for p in place.iterdir()] == ["s.tar"]


SENSELESS: dict[str, Callable[[], bytes]] = {
    "a name of 8 GiB": lambda: raw("././@LongLink", 2**33 - 1, tarfile.GNUTYPE_LONGNAME) * 2,
    "a PAX header of 8 GiB": lambda: raw("x", 2**33 - 1, tarfile.XHDTYPE) * 2,
    "a thousand headers about a header": lambda: (
        (raw("x", 20, tarfile.XHDTYPE) + b"20 comment=01234567\n".ljust(512, b"\0")) * 1200
        + raw("a", 0)
    ),
    "a map of 100 million holes": lambda: packed(
        [
            member(
                "a",
                b"100000000\n" + b"0\n" * 1_000_000,
                pax_headers={
                    "GNU.sparse.major": "1",
                    "GNU.sparse.minor": "0",
                    "GNU.sparse.name": "a",
                    "GNU.sparse.realsize": "1",
                },
            )
        ]
    ),
    "a member of 8 EiB": lambda: raw("a", 2**63 - 1) + bytes(512),
    "a size below zero": lambda: raw("a", -(2**40)) + bytes(1024),
    "100,000 global keys": lambda: packed(
        [
            member(
                f"a{number}",
                kind=tarfile.XGLTYPE,
                content=b"".join(b"%d %06d%04d=\n" % (15, k, number) for k in range(2000)),
            )
            for number in range(3)
        ]
        + [member("b")]
    ),
}


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["tar", "gz"])
@pytest.mark.parametrize("content", SENSELESS.values(), ids=SENSELESS)
def test_an_archive_of_senseless_headers_is_broken_or_too_large(
    place: Path, content: Callable[[], bytes], pack: Callable[[bytes], bytes]
) -> None:
    (place / "s.tar").write_bytes(pack(raw("good", 0) + content() + bytes(10240)))
    with pytest.raises(WorkspaceError, match=r"is broken|is not unpacked|not a tar archive"):
        unpack_beside(place / "s.tar", must_be_tar=True)
    assert [p.name for p in place.iterdir()] == ["s.tar"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("where", ["in a file", "behind a folder", "in a sparse file"])
def test_a_bomb_is_not_unpacked(
    place: Path, pack: Callable[[bytes], bytes], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small archive of much content is told from data by its ratio, before it fills the disk."""
    monkeypatch.setattr(archives, "MOST_BYTES", 1 << 20)
    size = 8 << 20
    if where == "in a file":
        content = raw("a", size) + bytes(size)
    elif where == "behind a folder":  # skipped, which takes time
        content = raw("a", size, tarfile.CONTTYPE) + bytes(size) + raw("b", 0)
    else:
        keys = {"GNU.sparse.size": str(2**40), "GNU.sparse.map": "0,1"}
        content = packed([member("a", b"x", pax_headers=keys)])
    (place / "s.tar").write_bytes(pack(content))
    with pytest.raises(WorkspaceError, match=r"larger than \d+ bytes.*unpack it yourself"):
        unpack_beside(place / "s.tar", must_be_tar=True)
    assert [p.name for p in place.iterdir()] == ["s.tar"]


def test_an_archive_of_too_many_members_is_not_unpacked(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 500)
    (place / "s.tar").write_bytes(gzip.compress(raw("a", 0) * 2000))
    with pytest.raises(WorkspaceError, match=r"more than \d+ members"):
        unpack_beside(place / "s.tar", must_be_tar=True)
    assert [p.name for p in place.iterdir()] == ["s.tar"]


def test_a_dictionary_that_takes_all_memory_is_not_begun(place: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]
    small = bytearray(lzma.compress(packed([member("a", b"x")]), filters=filters))
    at = small.index(bytes([lzma.FILTER_LZMA2, 1]))
    small[at + 2] = 40  # a dictionary of 4 GiB; the header's sum is made to fit
    header = small[12 : 12 + (small[12] + 1) * 4 - 4]
    small[12 + len(header) : 16 + len(header)] = binascii.crc32(header).to_bytes(4, "little")
    (place / "s.tar.xz").write_bytes(small)
    with pytest.raises(WorkspaceError, match=r"is broken: .*[Mm]emory"):
        unpack_beside(place / "s.tar.xz", must_be_tar=True)


def test_what_an_archive_may_not_set_is_not_set(place: Path) -> None:
    """4755, foreign owners and times that no file can have are not taken over."""
    odd = {"mtime": "nan"}
    (place / "s.tar").write_bytes(
        packed(
            [
                member("set", b"x", mode=0o6755, uid=12345, gid=12345),
                member("open", b"x", mode=0o777),
                member("unreadable", b"x", mode=0),
                member("nan", b"x", pax_headers=odd),
                member("never", b"x", pax_headers={"mtime": "1" + "0" * 300}),
                member("folder", kind=tarfile.DIRTYPE, mode=0o7777),
            ]
        )
    )
    assert unpack_beside(place / "s.tar", must_be_tar=True)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in place.iterdir() if p.name != "s.tar"}
    assert (modes["set"], modes["open"], modes["unreadable"]) == (0o755, 0o755, 0o600)
    assert not modes["folder"] & 0o7000
    assert {p.stat().st_uid for p in place.iterdir()} == {os.getuid()}
    assert (place / "never").stat().st_mtime < time.time() + 60


def test_names_of_any_bytes_stay_names(place: Path) -> None:
    names = ["line\nend", "\x1b[31mred", "\udcff\udcfe", "-rf", "$(touch x)", "tail "]
    (place / "s.tar").write_bytes(packed([member(name, b"x") for name in names]))
    assert unpack_beside(place / "s.tar", must_be_tar=True)
    assert sorted(p.name for p in place.iterdir()) == sorted([*names, "s.tar"])


@pytest.mark.parametrize("name", ["line\nend", "\x1b[31mred", "\udcff\udcfe"])
def test_a_name_in_a_message_is_one_harmless_line(place: Path, name: str) -> None:
    (place / "s.tar").write_bytes(packed([member(f"../{name}", b"x")]))
    with pytest.raises(WorkspaceError) as told:
        unpack_beside(place / "s.tar", must_be_tar=True)
    assert told.value.line.isprintable()


def test_of_two_members_of_one_name_the_last_counts_and_changes_no_other(place: Path) -> None:
    """A second `a` is a new file: it is not written through the other name of the first."""
    (place / "s.tar").write_bytes(
        packed([member("a", b"one"), hard("b", "a"), member("a", b"two"), link("c", "a")])
    )
    assert unpack_beside(place / "s.tar", must_be_tar=True)
    assert [(place / name).read_bytes() for name in "abc"] == [b"two", b"one", b"two"]


def test_links_of_two_archives_do_not_lead_out_together(place: Path) -> None:
    """The first brings a link upwards within its folder, the second one that goes on from it."""
    (place / "one.tar").write_bytes(packed([link("p/q/r/up", "../../..")]))
    (place / "two.tar").write_bytes(packed([link("x", "p/q/r/up/../../outside")]))
    assert unpack_beside(place / "one.tar", must_be_tar=True)
    assert unpack_beside(place / "two.tar", must_be_tar=True)
    assert (place / "x").readlink() == Path("p/q/outside")
    (place / "three.tar").write_bytes(packed([member("p/q/r/up/new", b"x")]))
    with pytest.raises(WorkspaceError, match="would replace"):
        unpack_beside(place / "three.tar", must_be_tar=True)
    assert not (place / "new").exists()


@pytest.mark.parametrize(
    "plant", ["a link to a folder", "a file", "a folder with a link", "deep folders"]
)
def test_what_lies_where_an_archive_is_unpacked_aside_is_not_used(
    place: Path, tmp_path: Path, plant: str
) -> None:
    aside = place / ".s.tar.unpacking"
    if plant == "a link to a folder":
        aside.symlink_to(tmp_path / "outside")
    elif plant == "a file":
        aside.write_text("x")
    elif plant == "deep folders":
        aside.mkdir()
        nest(aside, 1100)
    else:
        aside.mkdir()
        (aside / "a").symlink_to(tmp_path / "outside" / "key")
    (place / "s.tar").write_bytes(packed([member("a", b"x")]))
    assert unpack_beside(place / "s.tar", must_be_tar=True)
    assert sorted(p.name for p in place.iterdir()) == ["a", "s.tar"]
    assert (place / "a").read_bytes() == b"x"


def test_an_archive_that_is_a_link_is_not_opened(place: Path, tmp_path: Path) -> None:
    (place / "s.tar").symlink_to(tmp_path / "outside" / "key")
    with pytest.raises(OSError, match="symbolic"):
        unpack_beside(place / "s.tar", must_be_tar=True)


def test_a_zip_is_never_unpacked_whatever_it_holds(place: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("../../outside/key", "x")
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(info, "/etc/passwd")
        file.writestr("bomb", bytes(1 << 20))
    (place / "s.gz").write_bytes(stream.getvalue())
    assert not unpack_beside(place / "s.gz", must_be_tar=False)
    assert [p.name for p in place.iterdir()] == ["s.gz"]


# Records


def provide(root: Path, text: str) -> Dataset:
    (dataset,) = provide_data(
        parse_data(text, "--data_downloads"),
        root=root,
        records=root.parent / "workspace" / "data-records",
        notify=lambda _: None,
    )
    return dataset


def sum_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def forged_record(of: Path, sha256: str) -> bytes:
    """Return a record as perfrun kept it beside its data, of a file that lies there already."""
    status = of.stat()
    size, mtime_ns = status.st_size, status.st_mtime_ns
    return json.dumps(
        {"url": None, "sha256": sha256, "size": size, "mtime_ns": mtime_ns, "unpacked": False}
    ).encode()


def test_an_archive_cannot_bring_a_file_and_the_record_that_says_it_is_good(
    tmp_path: Path,
) -> None:
    good, evil = b"good" * 10, b"evil" * 10
    record = {"url": None, "sha256": sum_of(good), "size": 40, "mtime_ns": 10**9, "unpacked": False}
    brought = [member("good.bin", evil, mtime=1)]
    brought += [member(".good.bin.perfrun.json", json.dumps(record).encode())]
    (tmp_path / "s.tar").write_bytes(packed(brought))
    (tmp_path / "good.bin").write_bytes(good)
    assert provide(tmp_path / "data", f"file://{tmp_path}/s.tar").unpacked
    with pytest.raises(WorkspaceError, match=f"has sha256 {sum_of(evil)}, not"):
        provide(tmp_path / "data", f"file://{tmp_path}/good.bin;sha256={sum_of(good)}")


@pytest.mark.parametrize("change", ["written in place", "replaced", "a link", "a record beside it"])
def test_a_file_that_is_changed_with_its_times_put_back_is_hashed_again(
    tmp_path: Path, change: str
) -> None:
    (tmp_path / "x").write_bytes(b"good")
    root, text = tmp_path / "data", f"file://{tmp_path}/x;sha256={sum_of(b'good')}"
    path = root / "x"
    provide(root, text)
    before = path.stat()
    if change == "replaced":
        (root / "y").write_bytes(b"evil")
        (root / "y").replace(path)
    elif change == "a link":
        (tmp_path / "evil").write_bytes(b"evil")
        path.unlink()
        path.symlink_to(tmp_path / "evil")
    else:
        path.write_bytes(b"evil")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    if change == "a record beside it":
        (root / ".x.perfrun.json").write_bytes(forged_record(path, sum_of(b"good")))
    with pytest.raises(WorkspaceError, match=f"has sha256 {sum_of(b'evil')}"):
        provide(root, text)


def test_a_file_that_has_not_changed_is_hashed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum is known by inode, size and both times; a file of 100 GB is not read in each run."""
    (tmp_path / "x").write_bytes(b"good")
    root, text = tmp_path / "data", f"file://{tmp_path}/x;sha256={sum_of(b'good')}"
    provide(root, text)
    monkeypatch.setattr(http_transfer, "sha256_of", None)
    assert provide(root, text).sha256 == sum_of(b"good")


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"[]",
        b"{",
        b"null",
        b'{"inode": []}',
        b'{"url": 5, "sha256": {}, "inode": 1e400}',
        b"[" * 70_000,
        b"9" * 5000,
        b"{}" + b" " * (1 << 20),
    ],
    ids=range(9),
)
def test_a_record_that_makes_no_sense_is_not_used(tmp_path: Path, record: bytes) -> None:
    (tmp_path / "x").write_bytes(b"good")
    root, text = tmp_path / "data", f"file://{tmp_path}/x;sha256={sum_of(b'good')}"
    provide(root, text)
    for path in (tmp_path / "workspace" / "data-records").iterdir():
        path.write_bytes(record)
    assert provide(root, text).sha256 == sum_of(b"good")


@pytest.mark.parametrize("plant", ["link", "dangling link", "pipe", "folder", "second name"])
@pytest.mark.parametrize("name", ["x.partial", ".x.perfrun.lock"])
def test_what_lies_under_a_name_that_a_download_uses_is_not_written_through(
    tmp_path: Path, name: str, plant: str, server: Server
) -> None:
    """A trial, or an archive, has put it into the folder of the data before."""
    root, key = tmp_path / "data", tmp_path / "key"
    root.mkdir()
    key.write_bytes(b"private")
    if plant == "link":
        (root / name).symlink_to(key)
    elif plant == "dangling link":
        (root / name).symlink_to(tmp_path / "new")
    elif plant == "pipe":
        os.mkfifo(root / name)
    elif plant == "folder":
        (root / name).mkdir()
    else:
        os.link(key, root / name)
    server.says(ok(b"good"))
    may_lock = name != ".x.perfrun.lock" or plant in ("second name", "pipe")
    # A lock is not replaced, because others may wait for it.
    with contextlib.nullcontext() if may_lock else pytest.raises(WorkspaceError, match="lock file"):
        assert provide(root, f"{server.url}/x").sha256 == sum_of(b"good")
    assert key.read_bytes() == b"private"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("plant", ["pipe", "device"])
def test_data_that_is_no_file_is_one_line(tmp_path: Path, plant: str) -> None:
    (tmp_path / "data").mkdir()
    if plant == "pipe":
        os.mkfifo(tmp_path / "data" / "x")
    else:
        (tmp_path / "data" / "x").symlink_to("/dev/zero")
    with pytest.raises(WorkspaceError, match="is no regular file"):
        provide(tmp_path / "data", "http://127.0.0.1:1/x")


# Servers


class Server(threading.Thread):
    """Sends what it is told to, one entry for each connection; the last one again and again.

    An entry is sent in its parts, and a part that is a number is a pause of so many seconds.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.asked: list[str] = []
        self._answers: list[Callable[[], Iterable[bytes]]] = []

    def says(self, *answers: bytes | Callable[[], Iterable[bytes]]) -> None:
        self._answers = [(lambda a=a: [a]) if isinstance(a, bytes) else a for a in answers]  # type: ignore[misc]

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self.asked.append(connection.recv(65536).decode("latin-1"))
            answer = self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)
            for part in answer():
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(65536)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(http_transfer, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(http_transfer, "_TRIES_WITHOUT_PROGRESS", 2)
    monkeypatch.setattr(http_transfer, "_ANSWER_S", 0.5)
    monkeypatch.setattr(http_transfer, "_SILENCE_S", 0.5)
    monkeypatch.setattr(http_client, "_LOOK_S", 0.05)
    server = Server()
    server.start()
    yield server
    server.close()
    server.join()


def ok(body: bytes, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def head(*headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode("latin-1")


def drip(begin: bytes, part: bytes) -> Callable[[], Iterable[bytes]]:
    """Send a begin, and then a part every tenth of a second, for ever."""

    def answer() -> Iterator[bytes]:
        yield begin
        while True:
            time.sleep(0.1)
            yield part

    return answer


def flood(begin: bytes, part: bytes) -> Callable[[], Iterable[bytes]]:
    """Send a begin, and then a part as fast as it is taken, for ever."""

    def answer() -> Iterator[bytes]:
        yield begin
        while True:
            yield part

    return answer


def to(location: str, status: str = "302 Found") -> bytes:
    return head(f"Location: {location}", "Content-Length: 0", status=status)


CHUNKED = head("Transfer-Encoding: chunked")
MIB = bytes(1 << 20)
SERVERS: dict[str, tuple[bytes | Callable[[], Iterable[bytes]], str]] = {
    # Lengths
    "a superscript as length": (head("Content-Length: ²") + b"x", "no number: '\\\\xb2'"),
    "a length below zero": (head("Content-Length: -5") + b"x", "no number: '-5'"),
    "a length with a sign": (head("Content-Length: +1") + b"x", "no number: '\\+1'"),
    "a length in hexadecimal": (head("Content-Length: 0x5") + b"12345", "no number"),
    "a length with an underscore": (head("Content-Length: 1_0") + b"x" * 10, "no number"),
    "a length of 5,000 digits": (head("Content-Length: " + "9" * 5000), "no number: '9{40}'"),
    "two lengths": (head("Content-Length: 1", "Content-Length: 2") + b"xx", "tries|no number"),
    "a length of an exabyte": (
        head("Content-Length: " + "9" * 18),
        "announces 9+ bytes, and .* room",
    ),
    "fewer bytes than said": (head("Content-Length: 9") + b"x", "2 tries"),
    # Chunks
    "a chunk below zero": (flood(CHUNKED + b"-5\r\n", MIB), "2 tries"),
    "a chunk of no number": (CHUNKED + b"zz\r\nxx\r\n", "2 tries"),
    "a chunk without an end": (CHUNKED + b"5\r\nabc", "2 tries"),
    "a chunk's size without an end": (flood(CHUNKED, b"1" * 65536), "2 tries"),
    "a chunk's extension without an end": (flood(CHUNKED + b"5;", b"a" * 65536), "2 tries"),
    "chunks of a byte, slowly": (drip(CHUNKED, b"1\r\nx\r\n"), "too slow"),
    "trailers without an end": (
        flood(CHUNKED + b"1\r\nx\r\n0\r\n", b"a: b\r\n" * 1000),
        "too slow",
    ),
    "chunks without the last": (CHUNKED + b"1\r\nx\r\n", "2 tries"),
    # Time
    "nothing at all": (lambda: [time.sleep(2) or b""], "timed out|too slow|2 tries"),  # type: ignore[func-returns-value]
    "a status, slowly": (drip(b"HTTP/1.1 2", b"0"), "too slow|2 tries"),
    "a header, slowly": (drip(b"HTTP/1.1 200 OK\r\nX: ", b"a"), "too slow"),
    "headers, slowly": (drip(b"HTTP/1.1 200 OK\r\n", b"X: a\r\n"), "too slow"),
    "a body, slowly": (drip(head("Content-Length: 999"), b"x"), "too slow"),
    "a body without length, slowly": (drip(head(), b"x"), "too slow"),
    "go on, for ever": (flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100), "too slow|2 tries"),
    # Size
    "a header without an end": (flood(b"HTTP/1.1 200 OK\r\nX: ", b"a" * 65536), "2 tries"),
    "headers without an end": (flood(b"HTTP/1.1 200 OK\r\n", b"X: a\r\n" * 1000), "2 tries"),
    "a status without an end": (flood(b"HTTP/1.1 200 ", b"a" * 65536), "2 tries"),
    "a redirect with a body without an end": (
        flood(head("Location: /x", status="302 Found"), MIB),
        "redirects",
    ),
    "a refusal with a body without an end": (flood(head(status="404 No"), MIB), "answers 404"),
    "a refusal that is a bomb": (
        head("Content-Encoding: gzip", status="403 No") + gzip.compress(MIB * 16),
        "answers 403",
    ),
    # Redirects
    "a loop": (to("/x"), "more than 10 redirects"),
    "to a file": (to("file:///etc/passwd"), "redirects to 'file:///etc/passwd'"),
    "to ftp": (to("ftp://127.0.0.1/x"), "redirects to 'ftp:"),
    "to another scheme of no name": (to("javascript:alert(1)"), "redirects to"),
    "to a host that is none": (to("http://[::1/x"), "redirects to|tries|Invalid"),
    "to a host of too long a name": (to(f"http://{'a' * 300}.example/x"), "download"),
    "to an empty host": (to("http:///x"), "Invalid|no host|download"),
    "to a port that is none": (to("http://127.0.0.1:99999999/x"), "download"),
    "to bytes that are no text": (to("file:///\xff\xfe"), "redirects to"),
    "to escapes": (to("file:///\x1b[31mred"), r"redirects to 'file:///\\x1b\[31mred'"),
    "with a password": (to("ftp://joe:s3cr3t@host/x"), r"redirects to 'ftp://"),
    "nowhere": (head(status="302 Found"), "answers 302"),
    # Ranges and states
    "a range that was not asked for": (
        head("Content-Range: bytes 5-9/10", "Content-Length: 5", status="206 Partial") + b"12345",
        "another range",
    ),
    "a range of superscripts": (
        head("Content-Range: bytes 0-²/²", status="206 Partial") + b"12345",
        "another range",
    ),
    "a range beyond its file": (
        head("Content-Range: bytes 0-9/5", status="206 Partial") + b"12345",
        "another range",
    ),
    "more than the range": (
        flood(head("Content-Range: bytes 0-4/5", status="206 Partial"), MIB),
        "more than 5 bytes",
    ),
    "later, a superscript": (head("Retry-After: ²", status="503 Later"), "answers 503"),
    "later, in a million years": (head(f"Retry-After: {10**400}", status="429 Later"), "429"),
    "no http": (b"SSH-2.0-OpenSSH_9.2\r\n", "2 tries"),
    "a status that is none": (b"HTTP/1.1 999999999999 x\r\n\r\n", "tries|answers"),
    "zero bytes": (bytes(1000), "tries"),
}


@pytest.mark.parametrize(("answer", "says"), SERVERS.values(), ids=SERVERS)
def test_a_server_that_lies_is_one_line_and_leaves_no_data(
    tmp_path: Path, server: Server, answer: Any, says: str
) -> None:
    server.says(answer)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(WorkspaceError, match=says) as told:
        provide(tmp_path / "data", f"{server.url}/x")
    assert told.value.exit_code == 2
    assert told.value.line.isprintable()
    assert len(told.value.line) < 500
    assert "s3cr3t" not in told.value.line
    assert not (tmp_path / "data" / "x").exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 100_000  # KiB


def test_a_body_without_an_end_does_not_fill_the_disk(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(tmp_path).free
    monkeypatch.setattr(http_transfer, "_RESERVE", 4 << 20)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: SimpleNamespace(free=free if not big(path) else 1000)
    )

    def big(path: Path) -> bool:
        return any(p.stat().st_size > 8 << 20 for p in path.glob("*.partial"))

    server.says(flood(head(), MIB))
    with pytest.raises(WorkspaceError, match=r"does not say how large it is, and .* has room for"):
        provide(tmp_path / "data", f"{server.url}/x")
    assert not list((tmp_path / "data").glob("x*"))


def test_a_slow_transfer_ends_though_each_try_brings_something(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that breaks off after 100 KB each time made progress for ever."""
    monkeypatch.setattr(http_transfer, "_LONGEST_S", 0.3)
    whole, part = 10**12, bytes(100_000)
    server.says(
        head(f"Content-Length: {whole}", 'ETag: "x"') + part,
        *(
            head(
                f"Content-Range: bytes {start}-{whole - 1}/{whole}",
                'ETag: "x"',
                status="206 Partial Content",
            )
            + part
            for start in range(100_000, 100_000_000, 100_000)
        ),
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**60))
    with pytest.raises(WorkspaceError, match="not complete after"):
        provide(tmp_path / "data", f"{server.url}/x")


def test_passwords_do_not_go_to_the_host_that_a_redirect_names(
    tmp_path: Path, server: Server
) -> None:
    other = Server()
    other.start()
    other.says(ok(b"good"))
    server.says(to(f"{other.url.replace('127.0.0.1', 'localhost')}/y"))
    url = server.url.replace("//", "//joe:s3cr3t@")
    assert provide(tmp_path / "data", f"{url}/x").sha256 == sum_of(b"good")
    other.close()
    assert "Authorization: Basic" in server.asked[0]
    assert "uthorization" not in other.asked[0]


def test_a_name_that_a_server_gives_is_not_used(tmp_path: Path, server: Server) -> None:
    server.says(ok(b"good", 'Content-Disposition: attachment; filename="../../evil"'))
    assert provide(tmp_path / "data", f"{server.url}/x").path == str(tmp_path / "data" / "x")
    assert sorted(p.name for p in tmp_path.rglob("*") if "evil" in p.name) == []


@pytest.mark.parametrize("tag", ['"a"\x01', "é" * 10, "x" * 5000])
def test_a_tag_that_cannot_be_sent_back_is_not_kept(
    tmp_path: Path, server: Server, tag: str
) -> None:
    """It made each later try fail before it was sent, until the file was removed by hand."""
    cut = head("Content-Length: 9", f"ETag: {tag}") + b"12"
    server.says(cut, ok(b"123456789"))
    assert provide(tmp_path / "data", f"{server.url}/x").sha256 == sum_of(b"123456789")
    assert "If-Range" not in server.asked[1]


# setup.py, which has only the standard library


IMAGES: dict[str, tuple[bytes | Callable[[], Iterable[bytes]], str]] = {
    "a superscript as length": (head("Content-Length: ²") + b"x", "no number"),
    "a length below zero": (head("Content-Length: -1") + b"x", "no number"),
    "fewer bytes than said": (head("Content-Length: 9") + b"x", "broke off: 1 of 9|IncompleteRead"),
    "a body, slowly": (drip(head("Content-Length: 999"), b"x"), "too slow"),
    "a redirect to a file": (to("file:///etc/passwd"), "not allowed|redirects to 'file"),
    "a redirect to ftp": (to("ftp://127.0.0.1/x"), "redirects to 'ftp"),
    "a redirect with a body without an end": (
        flood(head("Location: /x", status="302 Found"), MIB),
        "infinite loop",
    ),
    "a loop": (to("/x"), "infinite loop"),
    "a chunk below zero": (CHUNKED + b"-5\r\n" + MIB, "could not be fetched"),
    "no http": (b"SSH-2.0-OpenSSH_9.2\r\n", "could not be fetched"),
}


@pytest.mark.parametrize(("answer", "says"), IMAGES.values(), ids=IMAGES)
def test_a_server_of_images_that_lies_is_one_line(
    tmp_path: Path, server: Server, answer: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved, "_SILENCE_S", 0.3)
    server.says(answer)
    with pytest.raises(saved.LoadError, match=says) as told:
        saved.load_image(f"{server.url}/x", "", tmp_path / "w", None)
    assert "\n" not in told.value.line
    assert list((tmp_path / "w").iterdir()) == []
