"""Every regular expression of perfrun takes a time in proportion to the text, however hostile."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import time
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from perfrun.options.parsers import parse_regex
from perfrun.text import redact

if sys.version_info >= (3, 11):
    from re import _constants as sre_constants  # type: ignore[attr-defined]
    from re import _parser as sre_parse  # type: ignore[attr-defined]
else:
    import sre_constants
    import sre_parse

PACKAGE = Path(__file__).resolve().parents[2] / "perfrun"
CALLS = {"compile", "match", "search", "sub", "subn", "split", "findall", "fullmatch", "finditer"}
BYTES = 1_000_000  # of the text for which the worst of the pieces is repeated
MOST_CPU_S = 5.0  # generous: a linear one takes milliseconds, another one hours
# Modules that keep patterns as texts, which are compiled when they are needed.
_CONSTANTS = ("shown", "text", "analysis.directions", "fleet.kubernetes_flags", "worker.modules")
# Patterns of a user for his own results, or of a table of ours, on names that are bounded.
GIVEN = {"options.parsers", "nightly.report", "worker.services", "run.outcome", "schema"}


def patterns() -> list[tuple[str, Any, int]]:
    """All patterns of the package with their flags: found in the syntax tree, whoever uses them."""
    found: dict[tuple[Any, int], str] = {}
    unknown = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in CALLS or ast.unparse(node.func.value) != "re":
                continue
            try:
                pattern, flags = _values(name, node)
            except (NameError, AttributeError):
                unknown.append(name)
                continue
            if isinstance(pattern, re.Pattern):
                pattern, flags = pattern.pattern, pattern.flags & ~re.UNICODE
            found.setdefault((pattern, flags), f"{name}:{node.lineno}")
    assert set(unknown) <= GIVEN.union(_CONSTANTS), unknown
    return [(place, pattern, flags) for (pattern, flags), place in found.items()]


def _values(name: str, call: ast.Call) -> tuple[Any, int]:
    """The pattern and the flags of a call, as the module's constants say."""
    known = vars(importlib.import_module(f"perfrun.{name}"))
    pattern = eval(ast.unparse(call.args[0]), dict(known))
    if not isinstance(pattern, str | bytes | re.Pattern):
        raise AttributeError(pattern)
    others = [*call.args[1:], *(word.value for word in call.keywords if word.arg == "flags")]
    flags = 0
    for other in others:
        text = ast.unparse(other)
        if re.fullmatch(r"re\.[A-Z]+( \| re\.[A-Z]+)*", text):
            flags |= int(eval(text, {"re": re}))
    return pattern, flags


def constants() -> list[tuple[str, Any, int]]:
    """Patterns that are compiled at import, or kept as a text and compiled when they are needed."""
    found = []
    for name in _CONSTANTS:
        module = importlib.import_module(f"perfrun.{name}")
        for key, value in vars(module).items():
            for one in value if isinstance(value, tuple) else (value,):
                one = one[0] if isinstance(one, tuple) and one else one
                if isinstance(one, re.Pattern):
                    found.append((f"{name}.{key}", one.pattern, one.flags & ~re.UNICODE))
                elif isinstance(one, str | bytes) and key.startswith("_") and _is_pattern(one):
                    found.append((f"{name}.{key}", one, 0))
    return found


def _is_pattern(text: str | bytes) -> bool:
    try:
        return any(sign in str(text) for sign in "\\[(*+") and bool(re.compile(text))
    except re.error:
        return False


def pieces(pattern: Any, flags: int) -> list[str]:
    """Texts of which the worst input of a pattern may consist: its own prefixes and repetitions."""
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = sre_parse.parse(text, flags & ~re.DEBUG)
    words = ["", *dict.fromkeys(_words(list(tree)))]
    found = dict.fromkeys(word for word in words if word)
    for first in list(found)[:4]:
        for second in list(found)[:4]:
            found.setdefault(first + second)
    for common in ("a", " ", "\t", "\n", "=", "://", "@", '"', "\\", "0", "-", ".", "[", "("):
        found.setdefault(common)
    return list(found)[:24]


def _words(items: list[Any]) -> Iterator[str]:
    """Yield what stands for the growing beginnings of a pattern, and for each part of it."""
    begun = ""
    for item in items:
        one = _example(item)
        yield from _inner(item)
        if one:
            begun += one
            yield one
            yield begun


def _inner(item: Any) -> Iterator[str]:
    kind, value = item
    if kind in (sre_constants.MAX_REPEAT, sre_constants.MIN_REPEAT):
        yield from _words(list(value[2]))
    elif kind is sre_constants.SUBPATTERN:
        yield from _words(list(value[3]))
    elif kind is sre_constants.BRANCH:
        for branch in value[1]:
            yield from _words(list(branch))


def _example(item: Any) -> str:
    kind, value = item
    if kind is sre_constants.LITERAL:
        return chr(value)
    if kind is sre_constants.NOT_LITERAL:
        return "a" if value != ord("a") else "b"
    if kind is sre_constants.ANY:
        return "a"
    if kind is sre_constants.IN:
        return _of_class(value)
    if kind in (sre_constants.MAX_REPEAT, sre_constants.MIN_REPEAT):
        return "".join(map(_example, value[2])) * min(max(value[0], 1), 20)
    if kind is sre_constants.SUBPATTERN:
        return "".join(map(_example, value[3]))
    if kind is sre_constants.BRANCH:
        return "".join(map(_example, value[1][0]))
    return ""


def _of_class(value: list[Any]) -> str:
    letters = [*map(chr, range(32, 127)), "\n", "\t", "\x1b", "\x00", "\u200b"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for letter in letters[33:] + letters[:33]:
            matched = any(_is_in(part, letter) for part in value)
            if matched != (value[0][0] is sre_constants.NEGATE):
                return letter
    return "a"


def _is_in(part: Any, letter: str) -> bool:
    kind, value = part
    if kind is sre_constants.LITERAL:
        return ord(letter) == value
    if kind is sre_constants.RANGE:
        return bool(value[0] <= ord(letter) <= value[1])
    if kind is sre_constants.CATEGORY:
        names = {"DIGIT": r"\d", "WORD": r"\w", "SPACE": r"\s"}
        last = str(value).rpartition("_")[2]
        inside = re.fullmatch(names.get(last, "a"), letter) is not None
        return inside != ("NOT" in str(value))
    return False


def spent_s(compiled: re.Pattern[Any], piece: str, size: int, *, scans: bool = True) -> float:
    """The CPU time for a text of repetitions of the piece, with and without another end."""
    text = (piece * (size // len(piece) + 1))[:size]
    begun = time.process_time()
    for hostile in (text, text + "\x01"):
        data: Any = hostile.encode("latin-1", "replace") if bytes_only(compiled) else hostile
        compiled.match(data)
        compiled.fullmatch(data)
        if scans:
            for _ in compiled.finditer(data):
                pass
    return time.process_time() - begun


@lru_cache
def whole_source() -> str:
    return "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))


def not_only_anchored(place: str) -> bool:
    """Return False for a pattern that is only ever matched from one place on: `match`, `fullmatch`.

    To try such a one from every place of a text would be what nobody does.
    """
    name, _, number = place.partition(":")
    scanning = ("search", "sub", "subn", "split", "findall", "finditer")
    if not number:  # a constant that is kept as a text
        given = rf"\(\s*{re.escape(name.rpartition('.')[2])}\b"
        scanned = re.search(rf"\b(?:{'|'.join(scanning)}){given}", whole_source())
        matched = re.search(rf"\b(?:full)?match{given}", whole_source())
        return scanned is not None or matched is None
    lines = PACKAGE.joinpath(*name.split(".")).with_suffix(".py").read_text().splitlines()
    source = lines[int(number) - 1]
    if "re.compile" not in source:
        return re.search(r"re\.(?:full)?match\(", source) is None
    constant = re.match(r"\s*(\w+)(?::[^=]*)? = re\.compile", source)
    if constant is None:
        return True
    return any(f"{constant[1]}.{name}(" in whole_source() for name in scanning)


def bytes_only(compiled: re.Pattern[Any]) -> bool:
    return isinstance(compiled.pattern, bytes)


# A suite is the user's own file, and setup.py's flags and files are; nobody else writes them.
OWN_FILES = ("nightly.suite_values", "image.")
ALL = {
    (pattern, flags): place
    for place, pattern, flags in [*patterns(), *constants()]
    if not place.startswith(OWN_FILES)
}


@pytest.mark.parametrize(
    ("pattern", "flags"), ALL.keys(), ids=[f"{place}" for place in ALL.values()]
)
def test_a_pattern_is_linear_on_a_megabyte_of_its_worst_input(pattern: Any, flags: int) -> None:
    compiled = re.compile(pattern, flags)
    scans = not_only_anchored(ALL[pattern, flags])
    worst: tuple[float, str] = (0.0, "a")
    for piece in pieces(pattern, flags):
        # Three times the text, nine times the time: that shows before a large text hangs.
        small = spent_s(compiled, piece, BYTES // 1000, scans=scans)
        assert small < MOST_CPU_S / 50, (piece, small)
        larger = spent_s(compiled, piece, BYTES // 200, scans=scans)
        assert larger < MOST_CPU_S / 20, (piece, larger)
        worst = max(worst, (larger, piece))
    size = BYTES if worst[0] < MOST_CPU_S / 200 else BYTES // 4  # of the costly ones a part tells
    assert spent_s(compiled, worst[1], size, scans=scans) < MOST_CPU_S, worst


def test_all_patterns_are_found() -> None:
    assert len(ALL) > 80


@pytest.mark.parametrize(
    "piece",
    [
        "?key", "&token", "a://", "a://b:", "?key=", "#token=", "token=", 'token="',
        '\\"token\\":"',
        "x-token:", "authorization: ", "eyJaaaaaaaaaaa.", "http://a.", "postgresql://a:", "://",
        "-----BEGIN PRIVATE KEY-----", "'--token', ", "https://a:b/", "Bearer ", "a-", "%74",
    ],
)  # fmt: skip
def test_redaction_is_linear(piece: str) -> None:
    # `?key` repeated 2,000 times took 38 s.
    text = (piece * (BYTES // len(piece) + 1))[:BYTES]
    begun = time.process_time()
    redact(text)
    assert time.process_time() - begun < MOST_CPU_S


def test_a_users_own_pattern_is_taken_as_it_is() -> None:
    assert parse_regex("a+", "--methods").search("caat")
