"""Walk folders of any depth.

`os.walk` and `Path.rglob` of Python 3.11 call themselves for each level, and a thousand levels end
them with an error that nobody expects. A benchmark can make as many.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Container, Iterator, List, Tuple


def places(folder: str, besides: Container[str] = ()) -> Iterator[Tuple[str, List[str]]]:
    """Yield a folder and each one below, in order, with the names of its files and links.

    Folders that have one of the names `besides` are left out. So are those that cannot be read,
    and what lies deeper than a path can name.
    """
    left = [folder]
    while left:
        place = left.pop()
        folders: List[str] = []
        files: List[str] = []
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    (folders if is_folder else files).append(entry.name)
        except OSError:
            continue
        yield place, files
        inner = [name for name in sorted(folders, reverse=True) if name not in besides]
        left += [os.path.join(place, name) for name in inner]
