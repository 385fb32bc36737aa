"""`perfrun serve`: show the results of a workspace in a browser, while runs go on."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import secrets
import shlex
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from perfrun.errors import UsageError
from perfrun.options.parsers import CommandParser, parse_whole, parse_workspace, shown
from perfrun.options.store_address import Address
from perfrun.shown import as_is, say
from perfrun.store.command import address_of
from perfrun.store.garbage_collection import no_collection

if TYPE_CHECKING:
    from perfrun.serve.questions import Index

_ABOUT = "Serve the report of a workspace as a live page, with its data as JSON; it only reads."
_EPILOG = """\
It listens on this machine only, unless --host says otherwise; then a token is needed, which is
printed in the address unless --token gives one. Ctrl-C ends it.

Exit status: 0 when it was ended, 2 wrong usage, or a port in use. All of it is in
docs/guides/serve.md.
"""
PORT = 8080
_LARGEST_PORT = 65535
_TOKEN = re.compile(r"[0-9A-Za-z._~+/=-]{16,200}")
_NAME = re.compile(r"[0-9A-Za-z._-]{1,253}")
_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - it is only recognised


def parser() -> CommandParser:
    """Return the parser of `perfrun serve`."""
    made = CommandParser("perfrun serve", _ABOUT, _EPILOG)
    made.add_workspace()
    made.add_store()
    made.flag("--host", "ADDRESS", "where to listen (default 127.0.0.1; 0.0.0.0: everywhere)")
    port = partial(parse_whole, least=0)
    made.flag("--port", "N", f"port to listen on (default {PORT}; 0: a free one)", port)
    made.flag("--token", "TEXT", "what a client must send, 16 characters or more")
    text = "a further name of this server in addresses, as behind a proxy (repeatable)"
    made.flag("--server_name", "NAME", text, default=[], action="append")
    return made


def serve_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun serve`; it returns when a signal ends it."""
    given = parser().parse_args(list(argv))
    host = _parse_host(given.host)
    token = _parse_token(given.token)
    names = frozenset(map(_parse_name, given.server_name))
    if not _is_loopback(host) and token is None:
        token = secrets.token_urlsafe(24)
    _need_libraries()
    address = address_of(given)
    workspace = parse_workspace(given.workspace)
    listener = _listen(host, PORT if given.port is None else given.port)
    with listener:
        from perfrun.serve.server import serve  # the libraries, after all that can be wrong

        index = _ready(address)
        port = listener.getsockname()[1]
        url = f"http://{_shown_host(host)}:{port}/"
        is_at_work = serve(
            listener,
            index,
            workspace=workspace,
            title=f"perfrun: {workspace.name if address.workspace else address.shown}",
            token=token,
            names=names | _own_names(host),
            on_ready=partial(_say_where, url, token, is_made=not given.token),
        )
    say("ended")
    if is_at_work:
        # Python would end the thread as it takes itself apart, and where that is within a
        # library's C++ code, the process aborts.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


def _parse_host(text: str | None) -> str:
    host = "127.0.0.1" if not text or text == "localhost" else text.strip("[]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise UsageError(
            f"--host={shown(text or '')}: must be an address of this machine, as 127.0.0.1, "
            "0.0.0.0 or ::1"
        ) from None
    return host


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback


def _parse_token(text: str | None) -> str | None:
    if not text:
        return None
    if not _TOKEN.fullmatch(text):
        raise UsageError("--token: must be 16 to 200 letters, digits or any of . _ ~ + / = -")
    return text


def _parse_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise UsageError(f"--server_name={shown(text)}: must be a name without a port, as a.b.org")
    return text.lower().rstrip(".")


def _need_libraries() -> None:
    """Raise UsageError where the libraries of this command are not installed."""
    try:
        import jinja2  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"perfrun serve needs the Python package {error.name}; install it with "
            f"`{shlex.quote(sys.executable)} -m pip install jinja2 starlette uvicorn`, or from a "
            "checkout of perfrun with `pip install '.[serve]'`"
        ) from None


def _listen(host: str, port: int) -> socket.socket:
    if port > _LARGEST_PORT:
        raise UsageError(f"--port={port}: must be 0 to {_LARGEST_PORT}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            why = "is in use; name another one, or 0 for a free one"
        elif error.errno == errno.EACCES:
            why = "is for the superuser only; name one from 1024 on"
        else:
            raise UsageError(f"--host={host}: cannot be listened on: {error.strerror}") from None
        raise UsageError(f"--port={port}: {why}") from None


def _ready(address: Address) -> Index:
    """Return the index; the workspace's own is made, or brought up to date, first.

    One that is named with --store is not written to.
    """
    from perfrun.serve.questions import Index

    with no_collection():
        from perfrun.store.index import open_store
    if address.workspace is not None:
        with open_store(address) as store:
            store.refresh()
        return Index(address=address, root=address.workspace.resolve())
    index = Index(address=address, root=None)
    with index.asked():
        return index


def _shown_host(host: str) -> str:
    """Return the host as it stands in an address that this machine's user can open."""
    if host in _ANYWHERE:
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _own_names(host: str) -> frozenset[str]:
    names = {"localhost"}
    if not _is_loopback(host):
        name = socket.gethostname().lower()
        names |= {name, name.partition(".")[0]}
    return frozenset(names)


def _say_where(url: str, token: str | None, *, is_made: bool) -> None:
    """Print the address. A token that was made is shown here and nowhere else."""
    secret = f"?token={token}" if token and is_made else ""
    out = as_is(sys.stdout)
    out.write(f"perfrun serve: {url}{secret} (Ctrl-C ends it)\n")
    out.flush()
