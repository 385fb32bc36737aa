"""Saved images: files of `docker save`, from a path or a url, loaded into the engine."""

from __future__ import annotations

import http.client
import shlex
import shutil
import ssl
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perfrun.errors import PerfrunError, UsageError
from perfrun.image.engine import query
from perfrun.text import redact

CONNECT_TIMEOUT_S = 60


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
    try:
        with urllib.request.urlopen(  # noqa: S310 - http and https only, see find_local
            url, timeout=CONNECT_TIMEOUT_S, context=context
        ) as answer:
            with target.open("wb") as file:
                shutil.copyfileobj(answer, file, 1 << 20)
            expected = answer.headers.get("Content-Length")
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
            raise LoadError(f"{redact(url)} could not be fetched: {error}") from None
        reason = getattr(error, "reason", error)
        raise LoadError(f"{redact(url)} could not be fetched: {reason}") from None
    size = target.stat().st_size
    if expected is not None and size != int(expected):
        raise LoadError(f"{redact(url)} broke off: {size} of {expected} bytes came")


def loaded_names(answer: str) -> list[str]:
    """Return the images in the output of `docker load`, by name or, without one, by id."""
    pairs = (line.partition(": ") for line in answer.splitlines())
    return [name for words, _, name in pairs if words in ("Loaded image", "Loaded image ID")]


def _load(path: Path, load_as: str) -> str:
    sys.stderr.write(f"+ docker load --input {shlex.quote(str(path))}\n")
    done = query("load", "--input", str(path))
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
