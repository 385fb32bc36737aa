"""SHA-256 of small data without `hashlib`, which loads OpenSSL: that takes 5 ms of every run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfrun.untrusted import Folder, Refused, read_file

_MODULE_BYTES = 16 * 1024 * 1024
_PATH = 4096  # characters

_sha256: Any
try:  # the standard library's `random` does the same
    from _sha2 import sha256 as _sha256  # type: ignore[import-not-found,no-redef,unused-ignore]  # 3.12
except ImportError:
    try:
        from _sha256 import sha256 as _sha256  # type: ignore[import-not-found,no-redef,unused-ignore]
    except ImportError:
        from hashlib import sha256 as _sha256


def sha256_of(data: bytes) -> str:
    """Return the SHA-256 in hexadecimal digits."""
    return str(_sha256(data).hexdigest())


def digest_of_module(
    file: object, module: str, roots: Sequence[str], *, is_apart: bool
) -> tuple[str | None, str | None]:
    """Return the SHA-256 of the benchmark's module, or None and a note that says why.

    A trial says which file it is, and could name any. So the file's name must be the module's,
    and the file a regular one. Of a trial in a container (`is_apart`) it must lie in one of the
    plan's own import paths (`roots`): other paths are those of the image, not of this host.
    """
    if file is None:
        return None, None
    try:
        return _digest(_path(file), module, roots, is_apart=is_apart), None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return None, f"the SHA-256 of the benchmark's module is not known: {why}"


def _digest(path: str, module: str, roots: Sequence[str], *, is_apart: bool) -> str:
    _check_name(path, module)
    if is_apart and not any(_is_in(path, root) for root in roots):
        raise Refused("its file lies in the image")
    real = os.path.realpath(path)
    for root in map(os.path.realpath, roots):
        if _is_in(real, root):
            *folders, name = Path(real).relative_to(root).parts
            with Folder(Path(root), *folders) as folder:
                return sha256_of(folder.read(name, _MODULE_BYTES))
    if is_apart:
        raise Refused("its file is a link that leads out of the checkout")
    _check_name(real, module)
    return sha256_of(read_file(Path(real), _MODULE_BYTES))


def _path(file: object) -> str:
    if not isinstance(file, str) or len(file) > _PATH or "\0" in file or not file.startswith("/"):
        raise Refused("its file is no absolute path")
    if ".." in file.split("/"):
        raise Refused("its file's path leads upwards")
    return file


def _is_in(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/")


def _check_name(path: str, module: str) -> None:
    """Refuse a file whose name is not the module's: `/etc/shadow` is no module."""
    folder, _, name = path.rpartition("/")
    stem, wanted = name.partition(".")[0], module.rpartition(".")[2]
    if stem != wanted and not (stem == "__init__" and folder.endswith(f"/{wanted}")):
        raise Refused("its file has another name")
