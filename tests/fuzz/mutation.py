"""Make inputs near a seed: what a parser is not made for is nearly right, not random."""

from __future__ import annotations

import json
import random
from typing import Any

# What parsers have stumbled over: sizes, numbers, escapes, names, half characters.
WORDS = (
    b"", b"\x00", b"\xff" * 9, b"\xed\xa0\x80", b"\\ud800", b"\xc2\xb2", b"\xd9\xa1", b"-", b"-1",
    b"0", b"1e999", b"-0.0", b"NaN", b"Infinity", b"null", b"true", b"[]", b"{}", b'""', b"9" * 400,
    b"1" * 5000, b"[" * 200, b'{"a":' * 70, b"../..", b"/", b"~", b"%", b"=", b";", b",", b":",
    b"@", b"://", b"?key=", b"&token=", b"\n", b"\r\n", b"\t", b"\x1b[31m", b"'", b'"', b"$(id)",
    b"{0}", b"(", b"(a+)+$", b"[[", b'"""', b"\xe2\x80\xae", b"\x80", b"A" * 3000, b"\x0a\x7f",
    b"_" * 50, b"\xc5\xbf", b"\xe2\x84\xaa", b"@-", b"@_",
)  # fmt: skip

# Values that a field of JSON is not made for.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 255, 2**31, 2**53, 2**63, 10**30, 0.5, -0.0, 1e-320, 1e308,
    float("nan"), float("inf"), -float("inf"), "", "x", "x" * 3000, "\ud800", "\0", "a\x1b[31m\nb",
    "../..", "/dev/zero", "1", "1e999", "\u202e", "=1+1", [], {}, [[]], [{}], {"a": []}, ["x", 1],
)  # fmt: skip
MOST_JSON_BYTES = 2**20  # a second of the processor is what a parser has for a megabyte
MOST_COPIED_BYTES = 2**16  # else a hundred copies of a hundred copies take seconds to write


def mutated(seeds: tuple[bytes, ...], chance: random.Random, most_bytes: int = 64 * 1024) -> bytes:
    """Return one of the seeds after up to eight changes; of JSON, half stay JSON."""
    seed = chance.choice(seeds)
    changed = _changed_json(seed, chance) if chance.random() < 0.5 else None
    if changed is not None and len(changed) <= MOST_JSON_BYTES:
        return changed
    data = bytearray(seed)
    for _ in range(chance.randint(1, 8)):
        begin = chance.randint(0, len(data))
        end = min(len(data), begin + chance.choice((0, 1, 2, 8, 64)))
        match chance.randint(0, 5):
            case 0:
                data[begin:end] = chance.choice(WORDS)
            case 1:
                data[begin:end] = chance.randbytes(chance.randint(0, 4))
            case 2:  # a part twice, or many times
                data[begin:begin] = data[begin:end] * chance.choice((1, 2, 100))
            case 3:
                del data[begin:end]
            case 4:  # a part of another seed
                other = chance.choice(seeds)
                cut = chance.randint(0, len(other))
                data[begin:end] = other[cut : cut + chance.choice((1, 8, 64))]
            case _:
                if begin < len(data):
                    data[begin] ^= 1 << chance.randint(0, 7)
    return bytes(data[:most_bytes])


def _changed_json(data: bytes, chance: random.Random) -> bytes | None:
    """Return a document, or a line that is one among others, with up to four other values."""
    if data[:1] not in (b"{", b"["):
        return None
    try:
        return _changed(json.loads(data), chance)
    except ValueError:
        lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    try:
        lines[at] = _changed(json.loads(lines[at]), chance)
    except ValueError:
        return None
    return b"\n".join(lines)


def _changed(document: Any, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 4)):
        place, outer = document, None
        while (
            isinstance(place, (dict, list)) and place and (outer is None or chance.random() < 0.7)
        ):
            outer = place
            key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
            place = outer[key]
        if outer is None:
            break
        match chance.randint(0, 4):
            case 0:
                del outer[key]
            case 1 if isinstance(outer, dict):
                outer[str(chance.choice(VALUES))] = outer.pop(key)
            case 2:
                times = chance.choice((1, 2, 100))
                fits = times == 1 or times * len(json.dumps(place)) <= MOST_COPIED_BYTES
                outer[key] = [place] * (times if fits else 1)
            case _:
                outer[key] = chance.choice(VALUES)
    return json.dumps(document).encode()
