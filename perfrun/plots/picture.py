"""Figures as files: SVG and PNG, the same bytes for the same values, put in place whole.

Import this before anything of matplotlib: it says where matplotlib keeps its list of fonts.
"""

from __future__ import annotations

import atexit
import io
import os
import shutil
import stat
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from perfrun.errors import UsageError
from perfrun.untrusted import Folder, Refused

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png")
_SETTING = "MPLCONFIGDIR"


def check_library() -> None:
    """Import matplotlib. Raises UsageError where it is not installed."""
    _keep_fonts_out_of_home()
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"perfrun plot: -o needs the Python package matplotlib ({error}); install it with "
            f"`{sys.executable} -m pip install matplotlib`, or from a checkout of perfrun with "
            "`pip install '.[plot]'`"
        ) from None


def _keep_fonts_out_of_home() -> None:
    """Name a folder for matplotlib's list of fonts, which is not in the user's home."""
    if "matplotlib" in sys.modules or os.environ.get(_SETTING):
        return
    folder = Path(tempfile.gettempdir()) / f"perfrun-matplotlib-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if not is_ours or found.st_mode & 0o022:  # somebody else could write there
            raise PermissionError
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="perfrun-matplotlib-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[_SETTING] = str(folder)


def rendered(figure: Figure, suffix: str) -> bytes:
    """Return a figure as SVG (`.svg`) or PNG (`.png`), without a date or a version in it."""
    import matplotlib as mpl

    stream = io.BytesIO()
    without = {".svg": ("Date", "Creator"), ".png": ("Software",)}[suffix]
    own = {"svg.fonttype": "none", "svg.hashsalt": "perfrun", "text.parse_math": False}
    with mpl.rc_context(own), warnings.catch_warnings():
        # A name may be in any script; what the font lacks is a box in PNG, and text in SVG.
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        figure.savefig(
            stream,
            format=suffix[1:],
            dpi=200 if suffix == ".png" else "figure",
            metadata=dict.fromkeys(without),
        )
    return stream.getvalue()


def check_path(path: Path) -> str:
    """Return the picture's suffix. Raises UsageError for a place that cannot have the picture."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise UsageError(f"-o {path}: the name must end in {' or '.join(FORMATS)}")
    if path.is_dir():
        raise UsageError(f"-o {path}: is a folder")
    if not path.parent.is_dir():
        raise UsageError(f"-o {path}: there is no folder {path.parent}")
    return suffix


def save(data: bytes, path: Path) -> None:
    """Write a picture in the place of an older one, whole or not at all. Raises UsageError."""
    try:
        with Folder(Path(os.path.realpath(path.parent))) as folder:
            folder.write(path.name, data)
    except (OSError, Refused) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"-o {path}: cannot be written: {why}") from None
