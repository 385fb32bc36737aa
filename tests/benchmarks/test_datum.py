"""Caffe's Datum: bytes as protobuf writes them, and whatever else may lie in an LMDB."""

from __future__ import annotations

import dataclasses
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._support.datasets.caffe_lmdb import Datum, DatumError, decode, encode

INT32 = st.integers(min_value=-(2**31), max_value=2**31 - 1)
DATUMS = st.builds(
    Datum,
    channels=INT32,
    height=INT32,
    width=INT32,
    data=st.binary(max_size=300),
    label=INT32,
    float_data=st.lists(st.floats(width=32, allow_nan=False), max_size=5).map(tuple),
    encoded=st.booleans(),
)


@given(DATUMS)
def test_every_datum_comes_back_as_it_was_written(datum: Datum) -> None:
    assert decode(encode(datum)) == datum


def test_the_bytes_are_those_that_the_wire_format_prescribes() -> None:
    datum = Datum(channels=3, height=300, data=b"abc", label=-1, encoded=True)
    # Fields 1, 2 and 5 are varints (300 = ac 02; -1 has ten bytes), 4 is bytes, 7 a boolean.
    expected = bytes.fromhex("08 03 10 ac02 28 ffffffffffffffffff01 38 01 22 03") + b"abc"
    assert encode(datum) == expected
    assert decode(expected) == datum


def test_an_unknown_field_is_passed_over_and_packed_floats_are_read() -> None:
    unknown = bytes.fromhex("7a 02 aaaa")  # field 15, two bytes
    packed = bytes.fromhex("32 08 0000803f 00000040")  # field 6, 1.0 and 2.0
    assert decode(unknown + packed + b"\x28\x07") == Datum(label=7, float_data=(1.0, 2.0))


@given(DATUMS, st.data())
def test_what_ends_too_early_is_refused_or_has_fewer_fields(
    datum: Datum, data: st.DataObject
) -> None:
    whole = encode(datum)
    part = whole[: data.draw(st.integers(0, len(whole)))]
    try:
        found = decode(part)
    except DatumError:
        return
    assert encode(found) == part


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (b"\x22\x05ab", "in the middle of a field"),
        (b"\x08", "in the middle of a number"),
        (b"\x08" + b"\xff" * 10, "more than 64 bits"),
        (b"\x0b", "wire type 3"),
        (b"\x20\x01", "a number stands where bytes belong"),
        (b"\x0a\x01a", "bytes stand where a number belongs"),
        (b"\x32\x03abc", "a float has 4 bytes"),
    ],
)
def test_bytes_that_are_no_datum_say_why(record: bytes, said: str) -> None:
    with pytest.raises(DatumError, match=said):
        decode(record)


PROTOBUF = """
import sys
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
file = descriptor_pb2.FileDescriptorProto(name="datum.proto", package="x", syntax="proto2")
message = file.message_type.add(name="Datum")
F = descriptor_pb2.FieldDescriptorProto
fields = [("channels", F.TYPE_INT32), ("height", F.TYPE_INT32), ("width", F.TYPE_INT32),
          ("data", F.TYPE_BYTES), ("label", F.TYPE_INT32), ("float_data", F.TYPE_FLOAT),
          ("encoded", F.TYPE_BOOL)]
for number, (name, kind) in enumerate(fields, 1):
    label = F.LABEL_REPEATED if name == "float_data" else F.LABEL_OPTIONAL
    message.field.add(name=name, number=number, type=kind, label=label)
pool = descriptor_pool.DescriptorPool()
pool.Add(file)
Datum = message_factory.GetMessageClass(pool.FindMessageTypeByName("x.Datum"))
datum = Datum.FromString(bytes.fromhex(sys.argv[1]))
print({name: getattr(datum, name) for name, _ in fields} | {"float_data": [*datum.float_data]})
print(datum.SerializeToString().hex())
"""


@pytest.mark.tensorflow
def test_protobuf_itself_reads_our_bytes_and_writes_what_we_read(tensorflow_python: str) -> None:
    datum = Datum(
        channels=3, height=4, width=5, data=b"\0\xff", label=999, float_data=(0.5, -2), encoded=True
    )
    done = subprocess.run(
        [tensorflow_python, "-c", PROTOBUF, encode(datum).hex()], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    read, written = done.stdout.splitlines()
    assert eval(read) == {**dataclasses.asdict(datum), "float_data": [0.5, -2.0]}
    assert decode(bytes.fromhex(written)) == datum
