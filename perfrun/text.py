"""Text for people: urls without credentials, and values with their units.

Documents for programs (JSON, OpenMetrics, JUnit) keep the base unit: seconds, bytes.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache

TYPE_CHECKING = False  # as type checkers read it: `typing` is no part of every start
if TYPE_CHECKING:
    from typing import Any, TextIO

# Each part of a pattern has a limit, or ends where no other match can begin: a text of megabytes
# takes a time in proportion to its length (tests/attack/test_regular_expressions.py).
# The name of a value and what stands between: `token=`, `"token": "`, also in JSON within JSON.
_NAME = re.compile(
    r"(?<![\w%.\[-])-{0,2}(?P<name>[A-Za-z_%][\w.%\[\]-]{0,63})"
    r"(?:=|\\{0,3}[\"']\s{0,3}(?::|(?P<word>,))\s{0,3}(?=\\{0,3}[\"']))"
)
# The patterns that follow are rarely needed, and compiled then: that takes milliseconds.
_USERINFO = (
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)"
    r"(?P<user>[^/\s:,;\"'<>]*)(?P<rest>:[^/\s\"'<>]*)?@"
)
# A password with a slash in it: what follows the colon is no port.
_SLASHED = (
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)[^/\s:@,;\"'<>\[]{0,300}"
    r":(?!\d{1,5}(?:[/?#\s,;]|$))[^\s@\"'<>]{0,300}@"
)
# A password of a database may have blanks and characters that end a host elsewhere (SQLAlchemy).
_DATABASE = (
    r"(?P<scheme>postgres(?:ql)?(?:\+\w{1,20})?://)(?!\*\*\*@)"
    r"[^/:\s\"]{0,300}:[^@\n\"]{0,300}@(?:[^\s\"]{0,300}@)?"
)
_WEB = (
    r"(?P<origin>[Hh][Tt][Tt][Pp][Ss]?://(?P<host>[\w.-]{1,250})(?::\d{1,5})?)"
    r"/(?P<path>[^\s\"'<>]{1,2000})"
)
_HEADER = (
    r"(?i)(?P<name>(?<![\w-])(?:proxy-)?authorization|(?<![\w-])(?:set-)?cookie"
    r"|(?<![\w-])x-[a-z-]{0,40}(?:key|token))(?P<colon>[\"']?\s{0,3}:\s{0,3}[\"']?)"
    r"(?:(?:basic|bearer|digest|token)\s{1,3})?[^\s\"',;)]+(?:; ?[^\s\"',;)]+)*"
)
_BEARER = r"(?i)\b(Bearer\s{1,3})[\w.~+/=-]{16,}"
_PRIVATE_KEY = r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)[^-]+"
# Secrets that say by themselves what they are.
_FORMATS = (
    r"(?<![\w-])(?:gh[opusr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|hf_[A-Za-z0-9]{30,}|xox[abeprs]-[A-Za-z0-9-]{10,}|sk-(?:[a-z]{2,8}-)?\w{20,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{40,}"
    r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,})"
)
_BEGINNINGS = (
    *("gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat_", "glpat-", "hf_", "xox", "sk-"),
    *("AKIA", "ASIA", "AIza", "npm_", "pypi-", "eyJ"),
)
_SHORTEST = 20  # characters of the shortest secret that is known by its own form
# In the query of a url any name that holds one of these is a secret's.
_OF_QUERY = (
    r"(?i)token|secret|password|passwd|passphrase|signature|sig|credential|key"
    r"|(?:^|[^a-z])(?:auth|pwd|pass|jwt)(?:[^a-z]|$)"
)
_QUOTED = (
    r"(?P<inner>\\{1,3}[\"'])[^\"'\\]*|(?P<double>\")(?:[^\"\\\n]|\\.)*"
    r"|(?P<single>')(?:[^'\\\n]|\\.)*"
)
_OF_URL = r"[^\s\"'<>&;#,]*"
_IN_LIST = r"[^\s\"'<>,]*"
_BARE = r"[^\s\"'<>]*"
_WORDS = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+"
_PLAIN_VALUE = r"(?i)[+-]?\d{1,6}(?:\.\d{1,6}){0,3}|yes|no|on|off"
_NO_VALUE = r"(?i)\*{3}|true|false|none|null|\$\w{1,99}|\$\{\w{1,99}\}|"


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_PASSWORDS = _set("password passwd pwd passphrase secret credential credentials")
_TOKENS = _set("token apikey auth authorization jwt")
_OF_A_KEY = _set(
    "access account api auth deploy encryption license master private secret service signing ssh "
    "storage subscription"
)
_OF_A_PASS = _set("admin db ftp git http login mail proxy registry root service smtp ssh sudo user")
# `--pad_token=<pad>` and its like are words of a language model's vocabulary.
_OF_VOCABULARY = _set(
    "audio bos cls decoder end eos first image mask max min new next num pad per sep special start "
    "stop unk"
)
# `HF_TOKEN_PATH` names a file, and no secret.
_ABOUT = _set(
    "count dir dirs enabled expiry file files folder header length limit max min mode name names "
    "path paths size timeout ttl type version"
)
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_BYTES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "bytes"))
_FLOPS = ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s"))
_RATES = tuple((scale, f"{name}/s") for scale, name in _BYTES)
_SCALES = {"s": _TIMES, "bytes": _BYTES, "bytes/s": _RATES, "FLOP/s": _FLOPS}
_FEWEST_FIGURES, _MOST_FIGURES = 3, 6  # of a value beside its interval


def redact(text: str) -> str:
    """Return `text` without passwords, tokens and keys: those of urls, and those that a name shows.

    A user name of an ssh url (`ssh://git@host`) is no secret and stays; over http a bare user
    name is usually a token and is removed. docs/reference/security.md lists what is hidden and what
    is not.
    """
    if "://" in text:
        text = _without_passwords(text)
    if ":" in text and _is_of_header(text.lower()):
        text = re.sub(_HEADER, r"\g<name>\g<colon>***", text)
    if "=" in text or ":" in text:
        text = _without_values(text)
    if len(text) < _SHORTEST:
        return text
    if any(beginning in text for beginning in _BEGINNINGS):
        text = re.sub(_FORMATS, "***", text)
    if "earer" in text or "EARER" in text:
        text = re.sub(_BEARER, r"\1***", text)
    return re.sub(_PRIVATE_KEY, r"\1***", text) if "-----BEGIN" in text else text


def _is_of_header(lower: str) -> bool:
    return "authorization" in lower or "cookie" in lower or "x-" in lower


def _without_passwords(text: str) -> str:
    """Return the text without what urls hold besides their place: users, passwords, webhooks."""
    if "postgres" in text:
        text = re.sub(_DATABASE, r"\g<scheme>***@", text)
    if "@" in text:
        text = re.sub(_SLASHED, r"\g<scheme>***@", re.sub(_USERINFO, _without_userinfo, text))
    return re.sub(_WEB, _without_hook, text) if "http" in text or "HTTP" in text else text


def redact_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line, redacted; a secret may be the word after its flag."""
    shown, hides = [], False
    for word in words:
        is_value = hides and not word.startswith("-")
        shown.append("***" if is_value and not re.fullmatch(_NO_VALUE, word) else redact(word))
        hides = word.startswith("-") and "=" not in word and says_secret(word.lstrip("-"))
    return shown


def redacted(document: Any) -> Any:
    """Return a document of mappings, lists and values with all of its texts redacted."""
    if isinstance(document, str):
        return redact(document)
    if isinstance(document, Mapping):
        return {key: _of_key(str(key), value) for key, value in document.items()}
    if isinstance(document, (list, tuple)):
        if document and all(isinstance(item, str) for item in document):
            return redact_words(document)
        return [redacted(item) for item in document]
    return document


def without_path(url: str) -> str:
    """Return a url without its path, which is the secret of a webhook; a single word may stay."""
    scheme, slashes, rest = url.partition("://")
    found = re.match(r"(?P<host>[^/?#\s]{0,300})(?P<path>(?s:.*))", rest)
    if not slashes or found is None:
        return "***"
    path = found["path"] if re.fullmatch(r"(?:/[a-z]{0,10})?", found["path"]) else "/***"
    return f"{scheme}://{found['host'].rpartition('@')[2]}{path}"


@lru_cache(4096)
def says_secret(name: str) -> bool:
    """Return True when the name of a flag, a variable or a key says that its value is a secret."""
    words = [word.lower() for word in re.findall(_WORDS, name) if not word.isdigit()]
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in _PASSWORDS or last in _TOKENS:
        return before not in _OF_VOCABULARY
    if last.endswith(("password", "passwd", "passphrase", "secret", "token", "apikey")):
        return True  # PGPASSWORD
    if last in ("key", "keys") and before in _OF_A_KEY:
        return True
    if last == "pass":
        return not before or before in _OF_A_PASS
    if len(name) > 3 and name.isupper():  # a variable: more names say it
        return last == "key" or (
            bool({*words} & (_PASSWORDS | {"token", "key"}))
            and last not in _ABOUT
            and not {*words} & _OF_VOCABULARY
        )
    return False


def _of_key(key: str, value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str) and says_secret(key):
        return value if _is_plain(key, value) else "***"
    return redacted(value)


def _is_plain(name: str, value: str) -> bool:
    """Return True for a value that is no secret whatever its name says: `use_token=true`, 0."""
    if any(word in name.lower() for word in _PASSWORDS):
        return re.fullmatch(_NO_VALUE, value) is not None
    return bool(re.fullmatch(_PLAIN_VALUE, value) or re.fullmatch(_NO_VALUE, value))


def _without_userinfo(match: re.Match[str]) -> str:
    scheme, user, rest = match["scheme"], match["user"], match["rest"]
    if rest is None and "ssh" in scheme and "@" not in user:
        return f"{scheme}{user}@"
    return f"{scheme}***@"


def _without_hook(match: re.Match[str]) -> str:
    host, path = match["host"].lower(), match["path"].lower()
    is_hook = (
        host.startswith("hooks.")
        or "webhook" in host
        or path.startswith(("api/webhooks/", "webhook", "services/t"))
        or (host == "api.telegram.org" and path.startswith("bot"))
    )
    return f"{match['origin']}/***" if is_hook else match[0]


def _without_values(text: str) -> str:
    """Return the text with `***` for each value whose name says that it is a secret."""
    parts, done, at = [], 0, 0
    while found := _NAME.search(text, at):
        at, start = found.end(), found.start()
        if found["word"] and text[start] != "-":
            continue  # two words of a list, of which the first is no flag
        begin, end, is_secret = _value(text, found["name"], text[start - 1] if start else "", at)
        if is_secret:
            parts += [text[done:begin], "***"]
            done = at = end
    return "".join([*parts, text[done:]]) if parts else text


def _value(text: str, name: str, before: str, at: int) -> tuple[int, int, bool]:
    """Return where the value of a name begins and ends, and True when it is to be hidden."""
    if before and before in "?&;#":
        decoded = name
        if "%" in name:
            from urllib.parse import unquote  # few names have one

            decoded = unquote(name)
        if not re.search(_OF_QUERY, decoded):
            return at, at, False
        end = _end(_OF_URL, text, at)
        return at, end, end > at
    if not says_secret(name):
        return at, at, False
    quoted = re.compile(_QUOTED).match(text, at)
    if quoted:
        begin, end = at + len(quoted[quoted.lastgroup or 0]), quoted.end()
    else:
        begin, end = at, _end(_IN_LIST if before == "," else _BARE, text, at)
    return begin, end, not _is_plain(name, text[begin:end])


def _end(pattern: str, text: str, at: int) -> int:
    found = re.compile(pattern).match(text, at)
    return found.end() if found else at


def counted(count: int, what: str) -> str:
    """Return a count with its noun: `1 trial`, `2 trials`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def duration(seconds: float, figures: int = 4) -> str:
    """Return a duration with its unit: `0.01469` is `14.69 ms`."""
    return with_unit(float(seconds), "s", figures)


def with_unit(value: float, unit: str, figures: int = 4) -> str:
    """Return a value with its unit; seconds, bytes and FLOP/s are scaled to suit the value."""
    scale, name = scale_of(value, unit, figures)
    return f"{rounded(value / scale, figures)} {name}".rstrip()


def spread(median: float, low: float, high: float, unit: str) -> str:
    """Return `14.7 ms (13.7..20.6)`; the median decides the unit of all three.

    The interval decides the number of figures: two that it leaves open, and those before them.
    """
    scale, name = scale_of(median or high, unit)
    if low == high:
        return f"{rounded(median / scale)} {name}".rstrip()
    figures = _figures(median or high, high - low)
    shown = [rounded(value / scale, figures) for value in (median, low, high)]
    return f"{' '.join(filter(None, (shown[0], name)))} ({shown[1]}..{shown[2]})"


def _figures(value: float, width: float) -> int:
    share = abs(width / value) if value else 1.0
    known = math.ceil(-math.log10(share)) if 0 < share < math.inf else 0
    return min(max(known + 2, _FEWEST_FIGURES), _MOST_FIGURES)


def scale_of(value: float, unit: str, figures: int = 4) -> tuple[float, str]:
    """Return the divisor and the name of the largest unit in which the value is 1 or more.

    Zero, and values that are not finite, stay as they are.
    """
    scales = _SCALES.get(unit)
    if not scales or not value or not math.isfinite(value):
        return 1.0, unit
    size = abs(float(f"{value:.{figures}g}"))  # 0.99999 s is printed as one second
    return next((pair for pair in scales if size >= pair[0]), scales[-1])


def columns(stream: TextIO | None = None) -> int:
    """Return the width of the terminal of a stream, by the rules of `shutil.get_terminal_size`.

    Without a stream that is standard output as the process has it, whatever replaces it since.
    """
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    try:
        place = (stream or sys.__stdout__).fileno()  # type: ignore[union-attr]
        return os.get_terminal_size(place).columns or 80
    except (AttributeError, ValueError, OSError):
        return 80


def rounded(value: float, figures: int = 4) -> str:
    """Return a value with so many figures, without an exponent if it is large."""
    value = float(value)
    text = f"{value:.{figures}g}"
    shown = value if value.is_integer() else float(text)
    if not 1000 <= abs(shown) < 1e15:
        return text
    return f"{shown:,.0f}" if shown.is_integer() else f"{shown:,}"
