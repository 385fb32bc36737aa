"""Wheels of an environment: those of the index, or made again from the installed files.

A wheel of the index is taken only if its files are those that are installed: what ran counts, not
what has its name.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email import message_from_string
from importlib import metadata
from itertools import product
from pathlib import Path

from perfrun.errors import UsageError
from perfrun.replay.installed import Distribution, NotPackable, normalised
from perfrun.text import redact
from perfrun.untrusted import Refused, parse_json, remove_tree
from perfrun.workspace.programs import INSTALL_S, ProgramError, carry_out, variables

INDEX, INSTALLED = "index", "installed"
_PACKAGE = Path(__file__).resolve().parent.parent
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file knows: the same bytes each time
_BLOCK = 1 << 20
_WHEEL_NAME = re.compile(r"[\w.+!-]+\.whl", re.ASCII)
_ONE_S = 60.0  # for the answer about one distribution
_QUICKLY = ("--timeout=5",)
_MOST_SILENT = 3  # questions in a row without an answer: the index is not there
_NOT_REACHED = re.compile(r"^WARNING: .*(retry|connect)", re.IGNORECASE | re.MULTILINE)
_GENERATED = "[console_scripts]", "[gui_scripts]"
Notify = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel that was put into a folder."""

    name: str
    version: str
    file: str
    sha256: str
    size: int
    origin: str  # INDEX or INSTALLED
    url: str = ""  # at the index, without credentials
    source: str = ""  # the repository or archive that pip was given
    note: str = ""


def collect(
    found: Mapping[str, Distribution],
    folder: Path,
    *,
    python: str,
    use_index: bool,
    notify: Notify,
) -> tuple[Wheel, ...]:
    """Put a wheel of each distribution into a folder. Raises UsageError for those without one."""
    folder.mkdir(parents=True, exist_ok=True)
    wheels, failed = [], []
    offers = _offers(found, python, notify) if use_index else {}
    aside = folder.with_name(f"{folder.name}-of-the-index")
    there = _downloaded([found[name] for name in sorted(offers)], aside, python, notify)
    for name, one in sorted(found.items()):
        try:
            path, offer = there.get(name), offers.get(name)
            taken = _taken(one, offer, path, folder, notify) if path and offer else None
            wheels.append(taken or remade(one, folder))
        except NotPackable as error:
            failed.append(f"{name} {one.version}: {error}")
    remove_tree(aside)
    if failed:
        raise UsageError(f"no wheel can be made of: {'; '.join(failed)}; install them from a wheel")
    return tuple(wheels)


# From the index


@dataclass(frozen=True, kw_only=True)
class _Offer:
    url: str
    sha256: str


def _offers(found: Mapping[str, Distribution], python: str, notify: Notify) -> dict[str, _Offer]:
    """Ask the configured index for the wheels of all distributions; one by one if that fails."""
    asked = [one for one in found.values() if not one.direct_url]
    notify(f"asking the index for {len(asked)} wheels")
    try:
        return _reported(asked, python)
    except UsageError as error:
        notify(f"the index does not have all of them: {error}")
    answers: dict[str, _Offer] = {}
    silent = 0  # in a row
    for one in asked:
        try:
            answers |= _reported([one], python, limit_s=_ONE_S, more=_QUICKLY)
            silent = 0
        except UsageError as error:
            silent = 0 if _is_answer(error) else silent + 1  # it is made again from its files
        if silent == _MOST_SILENT:
            notify("the index does not answer; no more wheels are asked for")
            break
    return answers


def _is_answer(error: UsageError) -> bool:
    """Return True for pip's answer that there is no such distribution.

    It says so of an index that cannot be reached, too, after a warning about its second try.
    """
    said = error.said if isinstance(error, ProgramError) else ""
    return "No matching distribution" in said and not _NOT_REACHED.search(said)


def _pip(python: str) -> list[str]:
    return [sys.executable, "-m", "pip", "--python", python]


def _reported(
    asked: Sequence[Distribution],
    python: str,
    *,
    limit_s: float = INSTALL_S,
    more: Sequence[str] = (),
) -> dict[str, _Offer]:
    if not asked:
        return {}
    words = [
        *(*_pip(python), "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"),
        *("--only-binary=:all:", "--retries=1", "--report=-", *more),
        *(f"{one.name}=={one.version}" for one in asked),
    ]
    try:
        report = parse_json(carry_out(words, "pip", limit_s, variables()))
        offers = {}
        for item in report["install"]:
            about = item["download_info"]
            hashes = about["archive_info"].get("hashes") or {}
            name = normalised(str(item["metadata"]["name"]))
            if isinstance(hashes.get("sha256"), str) and str(about["url"]).endswith(".whl"):
                offers[name] = _Offer(url=str(about["url"]), sha256=hashes["sha256"])
    except (Refused, KeyError, TypeError, AttributeError):
        raise UsageError("pip's report cannot be used") from None
    return offers


def _downloaded(
    asked: Sequence[Distribution], folder: Path, python: str, notify: Notify
) -> dict[str, Path]:
    """Download the wheels that the index has; return them by the distribution's name."""
    if not asked:
        return {}
    notify(f"downloading {len(asked)} wheels")
    words = [*_pip(python), "download", "--no-deps", "--quiet", "--only-binary=:all:"]
    words += ["--retries=1", f"--dest={folder}"]
    try:
        names = [f"{one.name}=={one.version}" for one in asked]
        carry_out([*words, *names], "pip", INSTALL_S, variables())
    except UsageError as error:
        notify(f"{error}; wheels that did not come are made again from the installed files")
    found = (path for path in folder.glob("*.whl") if _WHEEL_NAME.fullmatch(path.name))
    return {normalised(path.name.partition("-")[0]): path for path in found}


def _taken(
    one: Distribution, offer: _Offer, path: Path, folder: Path, notify: Notify
) -> Wheel | None:
    """Take a wheel of the index into a folder; return None when it is not what is installed."""
    other = _other_files(one, path)
    made = _described(one, path, INDEX, url=redact(offer.url))
    if other or made.sha256 != offer.sha256:
        why = f"other files ({', '.join(other[:3])})" if other else "other bytes than it has named"
        notify(f"{one.name}: the index gave {why}; it is made again from what is installed")
        return None
    path.rename(folder / path.name)
    return made


def _other_files(one: Distribution, wheel: Path) -> list[str]:
    """Return the files of a wheel that are installed otherwise or not at all."""
    installed = {name: place for name, place, _ in one.files()}
    other = []
    try:
        with zipfile.ZipFile(wheel) as archive:
            for item in archive.infolist():
                top = item.filename.partition("/")[0]
                if item.is_dir() or top.endswith((".dist-info", ".data")):
                    continue
                place = installed.get(item.filename)
                with archive.open(item) as content:
                    same = place is not None and _digest(content.read) == _digest_of(place)
                if not same:
                    other.append(item.filename)
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError) as error:
        return [f"{wheel.name}: {error}"]
    return other


# From the installed files


def remade(one: Distribution, folder: Path) -> Wheel:
    """Make a wheel from what is installed; the same files give the same bytes. NotPackable."""
    if one.is_editable and one.direct_url.get("url") == _PACKAGE.parent.as_uri():
        return perfrun_wheel(folder)
    if one.is_editable:
        raise NotPackable("installed as editable: its files are where somebody works on them")
    entries: dict[str, Path | bytes] = {}
    edited = 0
    for name, place, digest in one.files():
        kept = _place_in_wheel(one, name)
        if kept is None:
            continue
        if not place.is_file():
            raise NotPackable(f"{name} is not there any more")
        edited += bool(digest) and digest != _base64(_digest_of(place))
        entries[kept] = _script(place) if ".data/scripts/" in kept else place
    note = f"{edited} files are not as they were installed" if edited else ""
    path = folder / _file_name(one)
    _write(path, entries, f"{_stem(one)}.dist-info")
    return _described(one, path, INSTALLED, source=_source(one), note=note)


def perfrun_wheel(folder: Path) -> Wheel:
    """Make a wheel of the perfrun that runs, from its own files."""
    from perfrun import __version__

    stem = f"perfrun-{__version__}"
    entries: dict[str, Path | bytes] = {}
    tops = [(_PACKAGE, "perfrun")]
    if not (_PACKAGE / "shipped").is_dir():  # a checkout
        tops.append((_PACKAGE.parent / "benchmarks", "perfrun/shipped/benchmarks"))
    for top, inside in tops:
        for path in sorted(top.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                entries[f"{inside}/{path.relative_to(top).as_posix()}"] = path
    try:
        about = metadata.distribution("perfrun")
        texts = {name: about.read_text(name) for name in ("METADATA", "entry_points.txt")}
    except metadata.PackageNotFoundError:
        texts = {}
    plain = f"Metadata-Version: 2.1\nName: perfrun\nVersion: {__version__}\n"
    entries[f"{stem}.dist-info/METADATA"] = (texts.get("METADATA") or plain).encode()
    script = "[console_scripts]\nperfrun = perfrun.benchmark:main\n"
    points = texts.get("entry_points.txt") or script
    entries[f"{stem}.dist-info/entry_points.txt"] = points.encode()
    tag = "Wheel-Version: 1.0\nGenerator: perfrun\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    entries[f"{stem}.dist-info/WHEEL"] = tag.encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    _write(path, entries, f"{stem}.dist-info")
    return Wheel(
        name="perfrun",
        version=__version__,
        file=path.name,
        sha256=_digest_of(path).hex(),
        size=path.stat().st_size,
        origin=INSTALLED,
    )


def _place_in_wheel(one: Distribution, name: str) -> str | None:
    """Return the path in the wheel of an installed file; None for what an installer makes."""
    own, stem = one.metadata.name, _stem(one)
    if name.startswith(f"{own}/"):
        return f"{stem}.dist-info/{name[len(own) + 1 :]}"
    if not name.startswith(("../", "/")):
        return name
    place = (one.metadata.parent / name).resolve()
    inside = place.relative_to(one.prefix.resolve()).as_posix()
    if inside.startswith("bin/"):
        script = inside.removeprefix("bin/")
        return None if script in _entry_points(one) else f"{stem}.data/scripts/{script}"
    return f"{stem}.data/data/{inside}"


def _entry_points(one: Distribution) -> set[str]:
    """Return the names of the scripts that pip makes by itself."""
    try:
        lines = one.text("entry_points.txt").splitlines()
    except (OSError, ValueError):
        return set()
    names, is_inside = set(), False
    for line in map(str.strip, lines):
        if line.startswith("["):
            is_inside = line in _GENERATED
        elif is_inside and "=" in line:
            names.add(line.partition("=")[0].strip())
    return names


def _script(place: Path) -> bytes:
    """Return a script with the first line that an installer replaces by its interpreter's."""
    content = place.read_bytes()
    first, end, rest = content.partition(b"\n")
    return b"#!python" + end + rest if first.startswith(b"#!") and b"python" in first else content


def _stem(one: Distribution) -> str:
    return f"{re.sub('-', '_', one.name)}-{one.version}"


def _file_name(one: Distribution) -> str:
    """Return the wheel's name, with the tags that its installed metadata has."""
    try:
        about = message_from_string(one.text("WHEEL"))
    except (OSError, ValueError):
        raise NotPackable("no description of its wheel (WHEEL)") from None
    tags = [tuple(tag.split("-")) for tag in about.get_all("Tag", [])]
    if not tags or any(len(tag) != 3 for tag in tags):
        raise NotPackable("its WHEEL names no tags")
    parts = [list(dict.fromkeys(each)) for each in zip(*tags, strict=True)]
    if sorted(product(*parts)) != sorted(set(tags)):
        parts = [[one_] for one_ in tags[0]]  # no set of tags says this; one of them is enough
    build = about.get("Build", "")
    words = [_stem(one), *([build] if build else []), *(".".join(part) for part in parts)]
    name = f"{'-'.join(words)}.whl"
    if not _WHEEL_NAME.fullmatch(name):
        raise NotPackable("its WHEEL names tags that no file can have")
    return name


def _write(path: Path, entries: Mapping[str, Path | bytes], info: str) -> None:
    """Write a wheel: its files in the order of their names, without times, its RECORD last."""
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted(entries):
            content = entries[name]
            digest, size = hashlib.sha256(), 0
            with archive.open(_entry(name, content), "w", force_zip64=True) as file:
                for block in _blocks(content):
                    digest.update(block)
                    size += len(block)
                    file.write(block)
            quoted = f'"{name}"' if "," in name else name
            record.append(f"{quoted},sha256={_base64(digest.digest())},{size}\n")
        record.append(f"{info}/RECORD,,\n")
        archive.writestr(_entry(f"{info}/RECORD", b""), "".join(record))


def _entry(name: str, content: Path | bytes) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EPOCH)
    is_program = ".data/scripts/" in name
    if isinstance(content, Path):
        is_program = is_program or bool(content.stat().st_mode & 0o100)
    entry.external_attr = (0o100755 if is_program else 0o100644) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _blocks(content: Path | bytes) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def _described(
    one: Distribution, path: Path, origin: str, *, url: str = "", source: str = "", note: str = ""
) -> Wheel:
    return Wheel(
        name=one.name,
        version=one.version,
        file=path.name,
        sha256=_digest_of(path).hex(),
        size=path.stat().st_size,
        origin=origin,
        url=url,
        source=source,
        note=note,
    )


def _source(one: Distribution) -> str:
    """Return the repository with its commit, or the archive, that pip was given."""
    about = one.direct_url
    vcs = about.get("vcs_info")
    commit = f"@{vcs.get('commit_id')}" if isinstance(vcs, dict) else ""
    url = about.get("url")
    return redact(f"{url}{commit}") if isinstance(url, str) else ""


def _digest(read: Callable[[int], bytes]) -> bytes:
    digest = hashlib.sha256()
    while block := read(_BLOCK):
        digest.update(block)
    return digest.digest()


def _digest_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return _digest(file.read)


def _base64(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
