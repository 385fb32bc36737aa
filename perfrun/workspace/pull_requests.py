"""The pull request and the branch that a commit's message names, as the forges write them.

Messages are written by anybody: what is found is bounded in length, and still text to be cleaned
where it is shown.
"""

from __future__ import annotations

import re

_MOST = 20_000  # characters of a message, from its beginning and from its end
_NUMBER = r"(?P<number>[1-9]\d{0,9})"
# Each with the mark before the number: `!` of GitLab's merge requests.
_OF_SUBJECT = (
    # Of GitHub, of Gitea, of Azure, of Bitbucket, as tools copy them, and squashed.
    ("#", re.compile(rf"Merge pull request #{_NUMBER}\b", re.ASCII)),
    ("#", re.compile(rf"Merge pull request '.{{0,300}}' \(#{_NUMBER}\) from ", re.ASCII)),
    ("#", re.compile(rf"Merged PR #?{_NUMBER}\b", re.ASCII)),
    ("#", re.compile(rf"Pull request #{_NUMBER}\b", re.ASCII)),
    ("#", re.compile(rf"PR #{_NUMBER}\b", re.ASCII)),
    ("#", re.compile(rf"\((?:pull request )?#{_NUMBER}\)\Z", re.ASCII)),
    ("!", re.compile(rf"\(!{_NUMBER}\)\Z", re.ASCII)),
)
_OF_MESSAGE = (
    (
        "!",
        re.compile(
            r"^See merge request (?P<project>[\w.-]{1,100}(?:/[\w.-]{1,100}){1,8})?"
            rf"!{_NUMBER}[ \r]{{0,9}}$",
            re.ASCII | re.MULTILINE,
        ),
    ),
    (
        "#",
        re.compile(
            r"^Pull[ -][Rr]equest(?: resolved)?: https?://[^\s/]{1,250}"
            rf"/[\w.-]{{1,100}}/[\w.-]{{1,100}}/pull/{_NUMBER}[ \r]{{0,9}}$",
            re.ASCII | re.MULTILINE,
        ),
    ),
)
_BRANCH = re.compile(
    r"Merge pull request #\d{1,10} from (?P<github>\S{1,300})"
    r"|Merge pull request '.{0,300}' \(#\d{1,10}\) from (?P<gitea>\S{1,300})"
    r"|Merge (?:remote-tracking )?branch '(?P<git>[^']{1,300})'"
    r"|Merged in (?P<bitbucket>\S{1,300}) \(pull request",
    re.ASCII,
)


def pull_request_of(subject: str, message: str) -> str | None:
    """Return the pull request that a commit names as its own: `#12`, `!7`, `group/project!7`."""
    for mark, form in _OF_SUBJECT:
        at_end = form.pattern.endswith(r"\Z")
        found = form.search(subject[-_MOST:]) if at_end else form.match(subject)
        if found:
            return mark + found["number"]
    text = message if len(message) <= 2 * _MOST else f"{message[:_MOST]}\n{message[-_MOST:]}"
    for mark, form in _OF_MESSAGE:
        found = form.search(text)
        if found:
            return (found.groupdict().get("project") or "") + mark + found["number"]
    return None


def branch_of(subject: str) -> str | None:
    """Return the branch that a merge's subject names."""
    found = _BRANCH.match(subject)
    return None if found is None else next(one for one in found.groups() if one)
