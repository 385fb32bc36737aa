"""The addresses of the server, and what each answers."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from perfrun.errors import PerfrunError
from perfrun.page.render import policy
from perfrun.serve.events import Events
from perfrun.serve.questions import Place, Selection
from perfrun.serve.refused import Refused, missing, wrong
from perfrun.serve.results import MOST_LISTED, MOST_POINTS, Answer, Results, encoded
from perfrun.serve.threads import Threads
from perfrun.shown import say
from perfrun.summary.document import Status

_LISTED, _POINTS = 100, 1000  # where the question has no `limit`
_SERIES_ID = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}")
_METHOD_ID = re.compile(r"[0-9a-f]{16}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NEXT = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)_(\d{1,18})", re.ASCII)
_NUMBER = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)
_LONGEST_TEXT = 1000


def application(results: Results, events: Events, threads: Threads) -> Starlette:
    """Return the routes; who may ask is not their matter."""
    routes = [
        Route("/", partial(_page, results, threads)),
        Route("/api/page", partial(_data, results, threads)),
        Route("/api/page/{id}", partial(_method, results, threads)),
        Route("/api/methods", partial(_methods, results, threads)),
        Route("/api/series/{id}", partial(_series, results, threads)),
        Route("/api/trials", partial(_trials, results, threads)),
        Route("/api/trials/{uid}", partial(_summary, results, threads)),
        Route("/api/runs/{id}", partial(_run, results, threads)),
        Route("/api/events", partial(_events, events)),
    ]
    return Starlette(
        routes=[Route(one.path, _caught(one.endpoint), methods=["GET"]) for one in routes],
        exception_handlers={HTTPException: _refused},  # type: ignore[dict-item]
    )


Answerer = Callable[[Request], Awaitable[Response]]


def _caught(answer: Answerer) -> Answerer:
    async def caught(request: Request) -> Response:
        try:
            return await answer(request)
        except Refused as refused:
            return _error(refused.status, refused.text)
        except PerfrunError as error:  # of the index
            return _error(503, error.line)
        except Exception as error:  # one question must not end the server
            say(f"{request.url.path}: {type(error).__name__}: {error}")
            return _error(500, "an error of perfrun; the server's standard error has it")

    return caught


async def _refused(_: Request, error: HTTPException) -> Response:
    what = {404: "there is nothing at this address", 405: "it is read only"}
    return _error(error.status_code, what.get(error.status_code, str(error.detail)))


def _error(status: int, text: str) -> Response:
    return Response(encoded({"error": text}), status, media_type="application/json")


def _json(document: object) -> Response:
    return Response(encoded(document), media_type="application/json")


async def _page(results: Results, threads: Threads, request: Request) -> Response:
    _known(request, ())
    page = await threads.run(results.page)
    headers = {"content-security-policy": f"{policy(live=True)}; frame-ancestors 'none'"}
    return Response(page.html, media_type="text/html", headers=headers)


async def _data(results: Results, threads: Threads, request: Request) -> Response:
    _known(request, ())
    page = await threads.run(results.page)
    return _unless_known(request, page.answer)


async def _method(results: Results, threads: Threads, request: Request) -> Response:
    _known(request, ())
    wanted = request.path_params["id"]
    if not _METHOD_ID.fullmatch(wanted):
        raise missing("no such method")
    return _unless_known(request, await threads.run(partial(results.method, wanted)))


def _unless_known(request: Request, answer: Answer) -> Response:
    headers = {"etag": answer.etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == answer.etag:
        return Response(status_code=304, headers=headers)
    return Response(answer.data, media_type="application/json", headers=headers)


async def _methods(results: Results, threads: Threads, request: Request) -> Response:
    given = _known(request, ("method", "limit", "after"))
    after = given.get("after", "")
    if after and not _DIGEST.fullmatch(after):
        raise wrong("after: must be the `next` of another answer")
    most = _whole(given, "limit", _LISTED, MOST_LISTED)
    return _json(await threads.run(partial(results.methods, given.get("method", ""), most, after)))


async def _series(results: Results, threads: Threads, request: Request) -> Response:
    given = _known(request, ("limit", "before"))
    wanted = request.path_params["id"]
    if not _SERIES_ID.fullmatch(wanted):
        raise missing("no such series")
    most, before = _whole(given, "limit", _POINTS, MOST_POINTS), _seconds(given, "before")
    return _json(await threads.run(partial(results.series, wanted, most, before)))


async def _trials(results: Results, threads: Threads, request: Request) -> Response:
    names = ("method", "status", "run_id", "label", "since", "until", "limit", "after")
    given = _known(request, names)
    status = given.get("status")
    if status is not None and status not in {one.value for one in Status}:
        raise wrong(f"status: must be one of {', '.join(one.value for one in Status)}")
    selection = Selection(
        method=given.get("method"),
        status=status,
        run_id=given.get("run_id"),
        label=given.get("label"),
        since=_seconds(given, "since"),
        until=_seconds(given, "until"),
    )
    after = None
    if "after" in given:
        found = _NEXT.fullmatch(given["after"])
        if found is None:
            raise wrong("after: must be the `next` of another answer")
        after = Place(timestamp=float(found[1]), number=int(found[2]))
    most = _whole(given, "limit", _LISTED, MOST_LISTED)
    return _json(await threads.run(partial(results.trials, selection, most, after)))


async def _summary(results: Results, threads: Threads, request: Request) -> Response:
    _known(request, ())
    uid = request.path_params["uid"]
    if not _DIGEST.fullmatch(uid):
        raise missing("no such trial")
    return _json(await threads.run(partial(results.summary, uid)))


async def _run(results: Results, threads: Threads, request: Request) -> Response:
    _known(request, ())
    return _json(await threads.run(partial(results.run, request.path_params["id"])))


async def _events(events: Events, request: Request) -> Response:
    _known(request, ())
    stream = events.stream(request.headers.get("last-event-id", "")[:100])
    return StreamingResponse(stream, media_type="text/event-stream")


def _known(request: Request, names: tuple[str, ...]) -> Mapping[str, str]:
    """Return what is asked for. Raises Refused for what this address does not know."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name == "token" and "token" not in names:
            raise wrong("token: only the page takes it in its address; send it as a header")
        if name not in names:
            known = f"; it knows {', '.join(names)}" if names else ""
            raise wrong(f"{name[:80]}: this address does not know it{known}")
        if name in given or len(value) > _LONGEST_TEXT or "\0" in value:
            raise wrong(f"{name}: must be given once, as a text of at most {_LONGEST_TEXT}")
        given[name] = value
    return given


def _whole(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = given.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and 0 < int(text) <= most):
        raise wrong(f"{name}: must be a whole number from 1 to {most}")
    return int(text)


def _seconds(given: Mapping[str, str], name: str) -> float | None:
    text = given.get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise wrong(f"{name}: must be seconds since the epoch")
    return float(text)
