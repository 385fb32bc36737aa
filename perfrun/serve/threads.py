"""Answer questions in threads, so that the server goes on meanwhile, and ends at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from threading import Thread
from typing import TypeVar

from perfrun.serve.questions import ANSWER_S
from perfrun.serve.refused import busy

_MOST = 4  # at a time
_PATIENCE_S = 2 * ANSWER_S
T = TypeVar("T")


class Threads:
    """A few threads. They are daemons: none keeps the process from its end."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(_MOST)
        self._started: list[Thread] = []

    @property
    def are_at_work(self) -> bool:
        """True while a thread has not come to its end."""
        return any(one.is_alive() for one in self._started)

    async def run(self, function: Callable[[], T]) -> T:
        """Return what the function returns. Raises what it raises, and Refused when too slow."""
        try:
            await asyncio.wait_for(self._free.acquire(), _PATIENCE_S)
            loop = asyncio.get_running_loop()
            future: asyncio.Future[T] = loop.create_future()
            thread = Thread(target=self._work, args=(function, loop, future), daemon=True)
            self._started = [*(one for one in self._started if one.is_alive()), thread]
            thread.start()
            return await asyncio.wait_for(future, _PATIENCE_S)
        except asyncio.TimeoutError:
            raise busy("the server is busy with other questions: ask again") from None

    def _work(
        self,
        function: Callable[[], T],
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[T],
    ) -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = function()
        except BaseException as error:  # whoever asked gets it
            failure = error

        def deliver() -> None:
            self._free.release()
            if future.cancelled():
                return
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        with contextlib.suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(deliver)
