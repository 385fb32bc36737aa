"""Tell all clients what happens: one watcher, which works only while somebody listens.

Events: `run` (the state of a run), `trial` (one has begun or ended), `index` (there are new
results: ask for the page again), `store` (the index is gone, or there again).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Protocol

from perfrun.errors import PerfrunError
from perfrun.serve.journals import Journals
from perfrun.serve.refused import Refused, busy
from perfrun.serve.threads import Threads
from perfrun.shown import say
from perfrun.text import redacted

MOST_CLIENTS = 32
HEARTBEAT_S = 15.0
LOOK_S = 1.0
_QUEUE = 200  # events that wait for a client; one that is slower has to come again
_KEPT = 1000  # for clients that come again
_FEWEST_S = 2.0  # between two pages that are made anew
_SHARE = 20  # the server takes at most so much of one core for new pages: 5 %
_AGAIN_MS = 2000  # until a client comes again
Event = tuple[int, str]  # number, and the text of the event


class Served(Protocol):
    """What is watched."""

    def stamp(self) -> str:
        """Return a text that is another one when there are new results. Raises StoreError."""
        ...

    def bring_up_to_date(self, *, is_running: bool) -> None:
        """Read new summaries into an index of our own, if it is time to. Raises StoreError."""
        ...

    @property
    def made_in_s(self) -> float:
        """The seconds of a core that the last page took."""
        ...


class Events:
    """The events of a server and its clients; for use in one event loop."""

    def __init__(self, served: Served, journals: Journals | None, threads: Threads) -> None:
        self._served, self._journals, self._threads = served, journals, threads
        self._start = os.urandom(4).hex()  # of the ids: another server's events are others
        self._number = 0
        self._kept: deque[Event] = deque(maxlen=_KEPT)
        self._clients: set[asyncio.Queue[Event | None]] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._stamp: str | None = None
        self._told_at_s = 0.0
        self._said = ""  # of the last look that has failed
        self._gone = ""  # why the index cannot be read

    def close(self) -> None:
        """End all streams."""
        self._over.set()
        for client in self._clients:
            _drop(client)

    def stream(self, last_id: str) -> AsyncIterator[str]:
        """Yield the events from now on, and those since `last_id` where they are known.

        Raises Refused at once where there are too many clients.
        """
        if len(self._clients) >= MOST_CLIENTS:
            raise busy(f"{MOST_CLIENTS} clients listen already")
        return self._sent(last_id)

    async def _sent(self, last_id: str) -> AsyncIterator[str]:
        queue: asyncio.Queue[Event | None] = asyncio.Queue(_QUEUE + 1)
        try:
            self._clients.add(queue)
            missed = self._missed(last_id)  # all later ones come through the queue
            if self._watcher is None or self._watcher.done():
                self._watcher = asyncio.create_task(self._watch())
            yield f"retry: {_AGAIN_MS}\n\n"
            for text in missed:
                yield text
            while not self._over.is_set():
                try:
                    event = await asyncio.wait_for(queue.get(), HEARTBEAT_S)
                except asyncio.TimeoutError:
                    yield ": still here\n\n"
                    continue
                if event is None:
                    return
                yield event[1]
        finally:
            self._clients.discard(queue)

    def _missed(self, last_id: str) -> list[str]:
        """Return the events since an id; without a known one, the state of all runs."""
        start, _, number = last_id.partition("-")
        known = number.isascii() and number.isdecimal() and len(number) < 16
        if start == self._start and known:
            oldest = self._kept[0][0] if self._kept else self._number + 1
            if oldest - 1 <= int(number) <= self._number:
                return [text for at, text in self._kept if at > int(number)]
        states = self._journals.states() if self._journals else []
        texts = [_text("run", state, None) for state in states]
        if self._gone:
            texts.append(_text("store", {"state": "gone", "text": self._gone}, None))
        elif last_id:  # it may have missed some
            texts.append(_text("index", {}, None))
        here = f"id: {self._start}-{self._number}\n\n"
        return [*texts, here]

    async def _watch(self) -> None:
        is_first = self._stamp is None
        # It is never cancelled, since what a look has found would then be told to nobody.
        while self._clients and not self._over.is_set():
            try:
                for kind, data in await self._threads.run(partial(self._look, is_first)):
                    self._publish(kind, data)
                is_first = False
            except Refused:
                pass  # busy: the next look sees it, too
            except Exception as error:  # a watcher that ends leaves the clients without events
                self._say_once(f"events: {type(error).__name__}: {error}")
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._over.wait(), LOOK_S)

    def _say_once(self, text: str) -> None:
        if text != self._said:
            self._said = text
            say(text)

    def _look(self, is_first: bool) -> list[tuple[str, dict[str, Any]]]:
        """Return what has happened since the last look."""
        found = list(self._journals.look(is_first=is_first)) if self._journals else []
        states = self._journals.states() if self._journals else []
        try:
            self._served.bring_up_to_date(is_running=any(s["state"] == "running" for s in states))
            stamp = self._served.stamp()
        except PerfrunError as error:
            if not self._gone:
                self._gone = error.line
                found.append(("store", {"state": "gone", "text": error.line}))
            return found
        if self._gone:
            self._gone, self._stamp = "", ""
            found.append(("store", {"state": "there", "text": ""}))
        rest_s = max(_FEWEST_S, _SHARE * self._served.made_in_s)
        if self._stamp is None:
            self._stamp = stamp
        elif stamp != self._stamp and time.monotonic() - self._told_at_s >= rest_s:
            self._stamp, self._told_at_s = stamp, time.monotonic()
            found.append(("index", {}))
        return found

    def _publish(self, kind: str, data: Mapping[str, Any]) -> None:
        self._number += 1
        event = (self._number, _text(kind, data, f"{self._start}-{self._number}"))
        self._kept.append(event)
        for client in list(self._clients):
            if client.qsize() >= _QUEUE:
                _drop(client)
            else:
                client.put_nowait(event)


def _drop(client: asyncio.Queue[Event | None]) -> None:
    """End a client's stream, whatever waits in it."""
    while not client.empty():
        client.get_nowait()
    client.put_nowait(None)


def _text(kind: str, data: Mapping[str, Any], number: str | None) -> str:
    """Return an event as it is sent; JSON of ASCII in one line, so no text can end it."""
    named = f"id: {number}\n" if number else ""
    return f"{named}event: {kind}\ndata: {json.dumps(redacted(dict(data)))}\n\n"
