"""Put a history in the order of its commits; the order of time differs when nights are replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from perfrun.errors import WorkspaceError
from perfrun.options.parsers import is_full
from perfrun.store.query import Origins, Series
from perfrun.workspace.git import SHA256_DIGITS, GitFailed, ask, objects_alone

Positions = Mapping[str, int]  # commit to its position: an ancestor has a lower one
_MOST_COMMITS = 20_000  # arguments of one command line


def by_ancestry(
    series: Sequence[Series],
    urls: Mapping[str, str],
    clones: Mapping[str, Path],
    workspace: Path | None,
) -> tuple[Series, ...]:
    """Return the series with points by ancestry where it is known; others stay by time.

    `urls` and `clones` are by the folder of the checkout. A summary may come from anywhere, so
    neither its url nor its folder leads git to a place: the history is taken from the clone that
    the user names, or from what perfrun itself made in this workspace for just that url. Shallow
    clones do not have the order.
    """
    wanted: dict[str, set[str]] = {}
    by_id = {id(one.origins): one.origins for one in series}  # metrics share theirs
    for commits_of in _distinct(by_id.values()):
        for name, commits in _varying(commits_of).items():
            wanted.setdefault(name, set()).update(commits)
    known = {}
    for name, commits in wanted.items():
        folders = _clones(name, urls.get(name, ""), clones, workspace)
        if found := _known_positions(folders, commits):
            known[name] = found
    if not known:
        return tuple(series)
    orders = {number: _order(origins, known) for number, origins in by_id.items()}
    moved = {number: by_id[number].taken(order) for number, order in orders.items()}
    return tuple(
        replace(
            one,
            origins=moved[id(one.origins)],
            values=[one.values[place] for place in orders[id(one.origins)]],
        )
        for one in series
    )


def _known_positions(folders: Sequence[Path], commits: set[str]) -> Positions:
    if len(commits) > _MOST_COMMITS:
        return {}
    return next((found for folder in folders if (found := positions(folder, commits))), {})


def _clones(
    name: str, url: str, clones: Mapping[str, Path], workspace: Path | None
) -> Sequence[Path]:
    if name in clones:
        return [clones[name]]
    if workspace is None:
        return []
    from perfrun.workspace.cache import made_for  # 30 ms, for histories with several commits

    return made_for(workspace, name, url)


def positions(folder: Path, commits: Iterable[str]) -> Positions:
    """Return the commits' positions in the history of a clone; empty unless it has all of them."""
    wanted = sorted(set(commits))
    if not wanted or not all(map(is_full, wanted)):
        return {}
    git_dir = folder / ".git" if (folder / ".git").is_dir() else folder
    words = ("rev-list", "--topo-order", "--reverse", "--ignore-missing", "--end-of-options")
    try:
        if not (git_dir / "objects").is_dir() or (git_dir / "shallow").exists():
            return {}
        with objects_alone(git_dir, is_sha256=len(wanted[0]) == SHA256_DIGITS) as repository:
            listed = ask(repository, *words, *wanted).decode("ascii").split()
    except (GitFailed, WorkspaceError, OSError):
        return {}
    places = {commit: place for place, commit in enumerate(listed)}
    return {c: places[c] for c in wanted} if all(c in places for c in wanted) else {}


def _distinct(several: Iterable[Origins]) -> Iterable[Sequence[Mapping[str, str]]]:
    """Return the commits of the trials of each series, without repetitions.

    Trials with equal commits mostly share one object, and methods run in the same nights.
    """
    found = {}
    for origins in several:
        seen = {id(commits): commits for commits in origins.commits}
        found[frozenset(seen)] = tuple(seen.values())
    return found.values()


def _varying(several: Iterable[Mapping[str, str]]) -> dict[str, set[str]]:
    """Return the commits of each checkout that changed within a series and is in all its trials."""
    found: dict[str, set[str]] = {}
    everywhere: set[str] | None = None
    for seen in several:
        everywhere = set(seen) if everywhere is None else everywhere & set(seen)
        for name, commit in seen.items():
            found.setdefault(name, set()).add(commit)
    return {n: c for n, c in found.items() if len(c) > 1 and n in (everywhere or ())}


def _order(origins: Origins, known: Mapping[str, Positions]) -> Sequence[int]:
    """Return the indices of the trials, by ancestry where it is known, else by time as they are."""
    commits = origins.commits
    names = sorted(_varying({id(one): one for one in commits}.values()).keys() & known.keys())
    if not names:
        return range(len(commits))
    # With several repositories, a trial that is ahead in one and behind in none has the larger sum.
    ahead = [sum(known[name][own[name]] for name in names) for own in commits]
    return sorted(range(len(commits)), key=ahead.__getitem__)
