"""The test_log wire format, against bytes made by hand and against whatever Hypothesis finds."""

from __future__ import annotations

import contextlib
import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfrun.worker.test_log import TestLogError, decode_entries, encode_entry


def double(value: float) -> bytes:
    return struct.pack("<d", value)


def sized(key: int, body: bytes) -> bytes:
    """One length-delimited field whose key and length fit a byte each."""
    assert len(body) < 128
    return bytes([key, len(body)]) + body


# Keys as `number << 3 | wire type`, written out: the encoder's own arithmetic is not used here.
HAND_MADE = sized(
    0x0A,  # BenchmarkEntries.entry
    sized(0x0A, b"Cases.ok")  # name
    + b"\x10\xd0\x0f"  # iters = 2000
    + b"\x19"
    + double(0.5)  # cpu_time
    + b"\x21"
    + double(1.5)  # wall_time
    + b"\x29"
    + double(7.0)  # throughput
    + sized(0x32, sized(0x0A, b"n") + sized(0x12, b"\x09" + double(0.0)))  # extras["n"] = 0.0
    + sized(
        0x3A,  # metrics
        sized(0x0A, b"acc") + b"\x11" + double(0.9) + sized(0x1A, b"\x09" + double(0.5)),
    ),
)
HAND_MADE_ENTRY = {
    "name": "Cases.ok",
    "iters": 2000,
    "cpu_time": 0.5,
    "wall_time": 1.5,
    "throughput": 7.0,
    "extras": [{"name": "n", "value": 0.0}],
    "metrics": [{"name": "acc", "value": 0.9, "min_value": 0.5}],
}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
numbers = st.floats(allow_nan=False)
metrics = st.fixed_dictionaries(
    {"name": texts, "value": numbers},
    optional={"min_value": numbers, "max_value": numbers},
)
entries = st.fixed_dictionaries(
    {
        "name": texts,
        "iters": st.integers(-(2**63), 2**63 - 1),
        "cpu_time": numbers,
        "wall_time": numbers,
        "throughput": numbers,
        "extras": st.dictionaries(texts, numbers | texts, max_size=4),
        "metrics": st.lists(metrics, max_size=4),
    }
)
quick = settings(max_examples=60, deadline=None, database=None)


def test_bytes_made_by_hand_are_decoded() -> None:
    assert decode_entries(HAND_MADE) == [HAND_MADE_ENTRY]


def test_an_entry_is_encoded_as_the_bytes_made_by_hand() -> None:
    encoded = encode_entry(
        "Cases.ok",
        iters=2000,
        cpu_time=0.5,
        wall_time=1.5,
        throughput=7.0,
        extras={"n": 0.0},
        metrics=[{"name": "acc", "value": 0.9, "min_value": 0.5}],
    )
    assert encoded == HAND_MADE


@quick
@given(entries)
def test_what_is_encoded_is_decoded_again(entry: dict[str, Any]) -> None:
    (decoded,) = decode_entries(encode_entry(**entry))
    expected = {
        **entry,
        "extras": [{"name": key, "value": value} for key, value in entry["extras"].items()],
    }
    for metric in decoded["metrics"]:  # what was left at zero is not on the wire
        metric.setdefault("name", "")
        metric.setdefault("value", 0.0)
    assert decoded == expected


@quick
@given(entries, st.data())
def test_a_file_cut_off_anywhere_is_decoded_or_refused(
    entry: dict[str, Any], data: st.DataObject
) -> None:
    whole = encode_entry(**entry)
    length = data.draw(st.integers(1, len(whole) - 1))
    # The one entry is one length-delimited field, so no proper beginning of it is a whole file.
    with pytest.raises(TestLogError):
        decode_entries(whole[:length])


@quick
@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_decoded_or_refused(data: bytes) -> None:
    for candidate in (data, b"\x0a" + bytes([len(data) & 0x7F]) + data):
        try:
            decoded = decode_entries(candidate)
        except TestLogError:
            continue
        assert all(set(entry) == set(HAND_MADE_ENTRY) for entry in decoded)


def test_a_changed_byte_in_the_middle_never_raises_anything_else() -> None:
    for position in range(len(HAND_MADE)):
        for value in (0x00, 0x0B, 0x7F, 0x80, 0xFF):
            broken = HAND_MADE[:position] + bytes([value]) + HAND_MADE[position + 1 :]
            with contextlib.suppress(TestLogError):  # and nothing else
                assert isinstance(decode_entries(broken), list)


def test_a_length_of_many_gigabytes_is_refused_at_once() -> None:
    with pytest.raises(TestLogError, match="middle of a field"):
        decode_entries(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + b"x" * 10)


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(TestLogError, match="64 bits"):
        decode_entries(b"\x0a" + b"\xff" * 11)


def test_fields_of_later_versions_are_skipped() -> None:
    later = b"\x7a\x02hi" + b"\x78\x05" + b"\x7d" + b"\0" * 4 + b"\x79" + b"\0" * 8
    inner = HAND_MADE[2:] + later
    assert decode_entries(later + bytes([0x0A, len(inner)]) + inner) == [HAND_MADE_ENTRY]


def test_an_empty_file_has_no_entries() -> None:
    assert decode_entries(b"") == []


def test_a_zero_value_is_not_on_the_wire_but_a_zero_bound_is() -> None:
    (entry,) = decode_entries(
        encode_entry("C.m", metrics=[{"name": "zero", "value": 0.0, "min_value": 0.0}])
    )
    assert [list(metric) for metric in entry["metrics"]] == [["name", "min_value"]]
    assert entry["metrics"][0]["min_value"] == 0.0


def test_a_bound_whose_message_is_empty_is_zero() -> None:
    # DoubleValue of 0.0, as protobuf writes it: a message without a field.
    data = sized(0x0A, sized(0x3A, sized(0x0A, b"m") + b"\x1a\x00"))
    assert decode_entries(data)[0]["metrics"] == [{"name": "m", "min_value": 0.0}]


def test_nan_and_infinities_pass() -> None:
    (entry,) = decode_entries(
        encode_entry("C.m", wall_time=math.nan, throughput=-math.inf, extras={"e": math.inf})
    )
    assert math.isnan(entry["wall_time"])
    assert entry["throughput"] == -math.inf
    assert entry["extras"] == [{"name": "e", "value": math.inf}]


def test_a_negative_count_is_kept() -> None:
    encoded = encode_entry("C.m", iters=-1)
    assert b"\x10" + b"\xff" * 9 + b"\x01" in encoded
    assert decode_entries(encoded)[0]["iters"] == -1


def test_text_that_utf8_cannot_hold_is_escaped() -> None:
    (entry,) = decode_entries(encode_entry("C.m", extras={"broken": "a\udcffb"}))
    assert entry["extras"] == [{"name": "broken", "value": "a\\udcffb"}]


def test_several_entries_in_one_file_are_all_returned() -> None:
    names = [e["name"] for e in decode_entries(encode_entry("A.a") + encode_entry("B.b"))]
    assert names == ["A.a", "B.b"]
