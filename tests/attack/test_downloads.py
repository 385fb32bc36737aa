"""What an archive or a file that is downloaded could do to the host, tried."""

from __future__ import annotations

import binascii
import bz2
import gzip
import io
import json
import lzma
import os
import stat
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nested import nest

from perfrun.errors import WorkspaceError
from perfrun.workspace import archives, http_transfer
from perfrun.workspace.archives import unpack_beside
from tests.attack.data_sets import provide, sum_of

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


@pytest.mark.parametrize("plant", ["pipe", "device"])
def test_data_that_is_no_file_is_one_line(tmp_path: Path, plant: str) -> None:
    (tmp_path / "data").mkdir()
    if plant == "pipe":
        os.mkfifo(tmp_path / "data" / "x")
    else:
        (tmp_path / "data" / "x").symlink_to("/dev/zero")
    with pytest.raises(WorkspaceError, match="is no regular file"):
        provide(tmp_path / "data", "http://127.0.0.1:1/x")
