"""Answers to a question that has no document: a status of HTTP and one line.

They are no errors of perfrun, which end a command: the server goes on.
"""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - it is an answer
    """A question that has no document."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def missing(text: str) -> Refused:
    """Return the answer that there is nothing of that name."""
    return Refused(404, text)


def wrong(text: str) -> Refused:
    """Return the answer that the question cannot be understood."""
    return Refused(400, text)


def busy(text: str) -> Refused:
    """Return the answer that it can be asked again later."""
    return Refused(503, text)
