"""One order of the commits of several repositories that moved together.

Each repository keeps its own order; between two of them the time of the commits decides. Clocks
differ: a commit that came out of order by its time counts as made when the one before it was, so
one wrong clock does not move the commits after it. What order was true nobody can know, and the
search needs none: each step changes one repository, and any order of the same steps ends at bad.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfrun.workspace.commits import Commit


@dataclass(frozen=True, kw_only=True)
class Step:
    """The state of all repositories after a commit of one of them."""

    repository: str
    commit: Commit
    commits: Mapping[str, str]  # of every repository


def merged_steps(histories: Mapping[str, Sequence[Commit]]) -> tuple[Step, ...]:
    """Return the steps from good to bad, by histories that begin with the good commit each.

    The first step is good: the commits that all histories begin with, the newest of which names it.
    """
    times = {name: settled([commit.committed for commit in own]) for name, own in histories.items()}
    places = {name: place for place, name in enumerate(histories)}
    ordered = list(
        merge(
            *(
                [(times[name][at], places[name], at, name) for at in range(1, len(own))]
                for name, own in histories.items()
            )
        )
    )
    state = {name: own[0].git_hash for name, own in histories.items()}
    newest = max(histories, key=lambda name: (times[name][0], places[name]))
    steps = [Step(repository=newest, commit=histories[newest][0], commits=dict(state))]
    for _, _, at, name in ordered:
        commit = histories[name][at]
        state[name] = commit.git_hash
        steps.append(Step(repository=name, commit=commit, commits=dict(state)))
    return tuple(steps)


def settled(times: Sequence[float]) -> list[float]:
    """Return times that never fall: as few as can be are changed, to that of the one before."""
    # The longest subsequence that never falls is kept (by patience sorting).
    ends: list[float] = []
    last: list[int] = []  # index of the end of the best subsequence of each length
    before: list[int] = []
    for at, time in enumerate(times):
        length = bisect_right(ends, time)
        before.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(time)
            last.append(at)
        else:
            ends[length], last[length] = time, at
    kept = set()
    at = last[-1] if last else -1
    while at >= 0:
        kept.add(at)
        at = before[at]
    found: list[float] = []
    for at in range(len(times)):
        if at in kept:
            found.append(times[at])
        else:
            found.append(found[-1] if found else times[min(kept)])
    return found
