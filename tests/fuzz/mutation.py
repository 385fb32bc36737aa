"""Make inputs near a seed: what a parser is not made for is nearly right, not random."""

from __future__ import annotations

import random

# What parsers have stumbled over: sizes, numbers, escapes, names, half characters.
WORDS = (
    b"", b"\x00", b"\xff" * 9, b"\xed\xa0\x80", b"\\ud800", b"\xc2\xb2", b"\xd9\xa1", b"-", b"-1",
    b"0", b"1e999", b"-0.0", b"NaN", b"Infinity", b"null", b"true", b"[]", b"{}", b'""', b"9" * 400,
    b"1" * 5000, b"[" * 200, b'{"a":' * 70, b"../..", b"/", b"~", b"%", b"=", b";", b",", b":",
    b"@", b"://", b"?key=", b"&token=", b"\n", b"\r\n", b"\t", b"\x1b[31m", b"'", b'"', b"$(id)",
    b"{0}", b"(", b"(a+)+$", b"[[", b'"""', b"\xe2\x80\xae", b"\x80", b"A" * 3000, b"\x0a\x7f",
    b"_" * 50,
)  # fmt: skip


def mutated(seeds: tuple[bytes, ...], chance: random.Random, most_bytes: int = 64 * 1024) -> bytes:
    """Return one of the seeds after up to eight changes."""
    data = bytearray(chance.choice(seeds))
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
