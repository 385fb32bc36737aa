"""Take secrets out of text before it is written or shown: credentials in urls, signed queries."""

from __future__ import annotations

import re

# A scheme is short: without that limit, a word of 100,000 letters took 20 s.
_USERINFO = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?P<user>[^/@\s:,;]*)(?P<rest>:[^/@\s]*)?@"
)
# A password of a database may have blanks and what ends a host elsewhere (SQLAlchemy).
_DATABASE = re.compile(
    r"(?P<scheme>postgres(?:ql)?(?:\+\w{1,20})?://)"
    r"[^/:\s\"]{0,300}:[^@\n\"]{0,300}@(?:[^\s\"]{0,300}@)?"
)
_SECRET_QUERY = re.compile(
    r"(?P<name>[?&;][^=&;\s,]*(?:token|secret|password|passwd|signature|sig|credential|key)[^=&;\s,]*=)"
    r"[^&;\s,]+",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """Return `text` without the passwords and tokens of the urls in it.

    A user name of an ssh url (`ssh://git@host`) is no secret and stays; over http a bare user
    name is usually a token, so it goes.
    """

    def without_secret(match: re.Match[str]) -> str:
        scheme, user, rest = match["scheme"], match["user"], match["rest"]
        if rest is None and "ssh" in scheme:
            return f"{scheme}{user}@"
        return f"{scheme}***@"

    hidden = _USERINFO.sub(without_secret, _DATABASE.sub(r"\g<scheme>***@", text))
    return _SECRET_QUERY.sub(r"\g<name>***", hidden)
