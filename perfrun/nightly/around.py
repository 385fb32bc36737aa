"""What a suite says of a night besides its runs: when it must be over, and what follows it."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlsplit

from perfrun.budget import DEFAULT_CHANGES, Budget, parse_budget
from perfrun.errors import UsageError
from perfrun.nightly.clock import parse_deadline
from perfrun.nightly.source import Where
from perfrun.nightly.suite import Outputs
from perfrun.nightly.values import Values
from perfrun.retention import Policy, parse_age

_OUTPUTS = ("junit", "markdown", "openmetrics", "json")


class Around(Values):
    """The keys of deadline, outputs, webhook, retention and confirmation."""

    def _deadline(self) -> str | None:
        text: str | None = self.take((), "deadline", str)
        if text is not None:
            self.judged(("deadline",), partial(parse_deadline, text, 0.0))
        return text

    def _outputs(self) -> Outputs:
        if self.take((), "output", dict) is None:
            return Outputs()
        self.source.refuse_unknown(("output",), _OUTPUTS)
        return Outputs(**{key: self.path(("output",), key) for key in _OUTPUTS})

    def _retention(self) -> Policy:
        if self.take((), "retention", dict) is None:
            return Policy()
        where: Where = ("retention",)
        ages = ("older_than", "unfinished_older_than")
        self.source.refuse_unknown(where, ("keep_nights", "keep_per_series", *ages))
        numbers = {}
        for key in ("keep_nights", "keep_per_series"):
            numbers[key] = self.take(where, key, int)
            if numbers[key] is not None and numbers[key] < 1:
                raise self.source.error((*where, key), f"{key}: must be 1 or more")
        older, unfinished = (self._age(where, key) for key in ages)
        return Policy(**numbers, older_than_s=older, unfinished_older_than_s=unfinished)

    def _age(self, where: Where, key: str) -> float | None:
        age = self.take(where, key, str)
        return self.judged((*where, key), partial(parse_age, age, f"--{key}")) if age else None

    def _confirm(self) -> Budget | None:
        """`true`, or a table of limits."""
        given = self.take((), "confirm", bool, dict)
        if given is True:
            return Budget(most=DEFAULT_CHANGES)
        if given is None or given is False:
            return None
        where: Where = ("confirm",)
        self.source.refuse_unknown(where, ("max_pairs", "time_budget", "max_changes"))
        texts = {"max_changes": str(DEFAULT_CHANGES)}
        for key in given:
            texts[key] = str(self.take(where, key, int, str))
            try:
                parse_budget(**{key: texts[key]})
            except UsageError as error:
                text = str(error).removeprefix("--").replace("=", " = ", 1)
                raise self.source.error((*where, key), text) from None
        return parse_budget(**texts)

    def _webhook(self) -> str | None:
        url: str | None = self.expanded("webhook")
        if url and not _is_http(url):
            raise self.source.error(("webhook",), "webhook: must be an http:// or https:// url")
        return url


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # half of an IPv6 address, a port that is no number
        return False
