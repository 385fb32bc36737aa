"""Saved images: which file is meant, and how a url is fetched. Loading is in tests/docker."""

from __future__ import annotations

import functools
import http.server
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfrun.errors import UsageError
from perfrun.image.saved import LoadError, find_local, load_image, loaded_names, render_load


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass

    def send_header(self, keyword: str, value: str) -> None:
        # One file is longer by its header than it is: the server goes away in the middle.
        if keyword == "Content-Length" and "broken" in self.path:
            value = str(int(value) + 1000)
        super().send_header(keyword, value)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "broken.tar.gz").write_bytes(b"x" * 10)
    handler = functools.partial(Quiet, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_path_and_a_file_url_name_a_file(tmp_path: Path) -> None:
    path = tmp_path / "my image.tar.gz"
    path.write_bytes(b"")

    assert find_local(str(path)) == find_local(f"file://{tmp_path}/my%20image.tar.gz") == path
    assert find_local("https://host.invalid/x.tar.gz") is None


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("/no/such.tar.gz", "there is no file /no/such.tar.gz"),
        ("ftp://host.invalid/x.tar.gz", "ftp:// is not known"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(place: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        find_local(place)


@pytest.mark.parametrize(
    ("name", "words"), [("broken.tar.gz", "broke off: 10 of 1010 bytes"), ("none.tar.gz", "404")]
)
def test_a_fetch_that_fails_says_so_and_leaves_nothing(
    server: str, tmp_path: Path, name: str, words: str
) -> None:
    with pytest.raises(LoadError, match=words) as caught:
        load_image(f"{server}/{name}", "", tmp_path / "w", None)

    assert "\n" not in str(caught.value)
    assert list((tmp_path / "w").iterdir()) == []


def test_the_engines_answer_names_the_image() -> None:
    text = "abc: Loading layer\nLoaded image: a/b:1\nLoaded image ID: sha256:00\n"

    assert loaded_names(text) == ["a/b:1", "sha256:00"]


def test_a_preview_quotes_the_path(tmp_path: Path) -> None:
    path = tmp_path / "my image.tar.gz"
    path.write_bytes(b"")

    assert shlex.split(render_load(str(path), "")) == ["docker", "load", "--input", str(path)]
    assert render_load("https://host.invalid/x.tar.gz", "mine").startswith('docker tag "$(curl ')
