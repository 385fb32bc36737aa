"""Make the picture on the first page of the site a link to the page that it shows.

    python scripts/add_story.py site night.html

The page is made with the site (`python -m tests.story`) and is not in the repository, so the
documents have the picture alone. Exit status: 0, or 1 when page or picture is not there.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_PICTURE = re.compile(r'<img [^>]*src="assets/report\.png"[^>]*>')


def linked(first_page: str, name: str) -> str:
    """Return the first page with its picture as a link. Raises ValueError without the picture."""
    found, count = _PICTURE.subn(rf'<a href="{name}">\g<0></a>', first_page)
    if count != 1:
        raise ValueError(f"the first page has the picture {count} times")
    return found


def main() -> int:
    """Change the first page of the site."""
    site, name = Path(sys.argv[1]), sys.argv[2]
    index = site / "index.html"
    try:
        if not (site / name).is_file():
            raise ValueError(f"there is no {name}")
        index.write_text(linked(index.read_text(encoding="utf-8"), name), encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"{site}: {error}")  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
