"""Saved images: files of `docker save`, from a path or a url, loaded into the engine."""

from __future__ import annotations

import http.client
import re
import shlex
import ssl
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from perfrun.errors import PerfrunError, UsageError
from perfrun.image.engine import query
from perfrun.text import redact

CONNECT_TIMEOUT_S = 60
LOAD_LIMIT_S = 3600.0
_LONGEST_S = 24 * 3600.0  # for one image
_PART = 1 << 17  # bytes that must come
_SILENCE_S = 120.0  # within this time


class LoadError(PerfrunError):
    """The saved image could not be fetched, or the engine does not take it."""

    exit_code = 1


def find_local(place: str) -> Path | None:
    """Return the file that a path or a file:// url names; None for a url to fetch."""
    try:
        scheme = urlsplit(place).scheme
    except ValueError as error:
        raise UsageError(f"--dockerfile_path={place}: is not a url: {error}") from None
    if scheme in ("http", "https"):
        return None
    if "://" in place and scheme != "file":
        raise UsageError(
            f"--dockerfile_path={place}: {scheme}:// is not known; http(s), file or a path"
        )
    path = Path(unquote(place[len("file://") :]) if scheme == "file" else place)
    if not path.is_file():
        raise UsageError(f"--dockerfile_path={place}: there is no file {path}")
    return path


def load_image(place: str, load_as: str, workspace: Path, certificate: Path | None) -> str:
    """Load an image and tag it; return the result line."""
    path = find_local(place)
    if path is not None:
        return _load(path, load_as)
    workspace.mkdir(parents=True, exist_ok=True)
    # In the workspace, because a home or /tmp may have no room for an image.
    with tempfile.TemporaryDirectory(prefix=".image-", dir=str(workspace)) as folder:
        path = Path(folder, "image.tar.gz")
        _fetch(place, path, certificate)
        return _load(path, load_as)


def render_load(place: str, load_as: str) -> str:
    """Return a line for a shell that does what `load_image` does."""
    path = find_local(place)
    if path is None:
        line = f"curl --fail --location {shlex.quote(place)} | docker load"
    else:
        line = f"docker load --input {shlex.quote(str(path))}"
    if not load_as:
        return line
    name = "sed -n 's/^Loaded image\\( ID\\)*: //p'"
    return f'docker tag "$({line} | {name})" {shlex.quote(load_as)}'


def _fetch(url: str, target: Path, certificate: Path | None) -> None:
    context = ssl.create_default_context()
    if certificate is not None:
        context.load_verify_locations(cafile=str(certificate))
    opener = urllib.request.build_opener(
        _NoDowngrade(), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(url, timeout=CONNECT_TIMEOUT_S) as answer:
            expected = answer.headers.get("Content-Length")
            if expected is not None and not re.fullmatch("[0-9]{1,18}", expected):
                raise ValueError("the server sends a Content-Length that is no number")
            with target.open("wb") as file:
                _copy(answer, file)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
            raise LoadError(f"{redact(url)} could not be fetched: {error}") from None
        reason = getattr(error, "reason", error)
        raise LoadError(f"{redact(url)} could not be fetched: {reason}") from None
    size = target.stat().st_size
    if expected is not None and size != int(expected):
        raise LoadError(f"{redact(url)} broke off: {size} of {expected} bytes came")


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but to http(s) only, and from https never to http."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        fp.close()  # else the standard library reads its body, however large
        scheme = urlsplit(newurl).scheme.lower()
        if scheme not in ("http", "https") or (req.type, scheme) == ("https", "http"):
            raise ValueError(f"the server redirects to {ascii(redact(newurl))[:200]}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _copy(answer: Any, file: IO[bytes]) -> None:
    """Copy the body of an answer, unless it comes too slowly or has no end."""
    end_s = time.monotonic() + _LONGEST_S
    part, part_end_s = 0, time.monotonic() + _SILENCE_S
    while True:
        block = answer.read1(_PART)  # what has come; to read a whole part could take for ever
        if not block:
            return
        file.write(block)
        part += len(block)
        now_s = time.monotonic()
        if now_s > end_s or (now_s > part_end_s and part < _PART):
            raise ValueError("the server is too slow")
        if part >= _PART:
            part, part_end_s = 0, now_s + _SILENCE_S


def loaded_names(answer: str) -> list[str]:
    """Return the images in the output of `docker load`, by name or, without one, by id."""
    pairs = (line.partition(": ") for line in answer.splitlines())
    return [name for words, _, name in pairs if words in ("Loaded image", "Loaded image ID")]


def _load(path: Path, load_as: str) -> str:
    sys.stderr.write(f"+ docker load --input {shlex.quote(str(path))}\n")
    done = query("load", "--input", str(path), limit_s=LOAD_LIMIT_S)
    names = loaded_names(done.stdout)
    if done.returncode or not names:
        last = (done.stderr.strip().splitlines() or ["the engine named no image"])[-1]
        raise LoadError(f"{path} was not loaded: {last}")
    if not load_as:
        return "\n".join(f"loaded {name}" for name in names)
    if len(names) > 1:
        raise LoadError(
            f"{path} holds {len(names)} images ({', '.join(names)}), all loaded; "
            f"--docker_tag={load_as} can name only one"
        )
    tagged = query("tag", names[0], load_as)
    if tagged.returncode:
        raise LoadError(f"{names[0]} was loaded, but not tagged: {tagged.stderr.strip()}")
    return f"loaded {names[0]} as {load_as}"
