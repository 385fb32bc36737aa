"""PerfZero's treatment of a benchmark class, and nothing else: `python perfzero_contract.py ...`.

Written from PerfZero's contract and not from perfrun's code. argv: `module.Class.method`, the
output folder, constructor keywords as JSON. A forked child builds the class, calls the method
without arguments, and reads the one file named after it; the parent prints the result as PerfZero
has it in its summary. perfrun is imported by the benchmark class alone.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import struct
import sys
from pathlib import Path
from typing import Any


def fields(data: bytes) -> list[tuple[int, Any]]:
    """Return the fields of a protobuf message: number and value, bytes for what has a length."""
    found, at = [], 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif wire == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            raise ValueError(f"wire type {wire}")
        found.append((number, value))
    return found


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def wrapped(data: bytes) -> float:
    """google.protobuf.DoubleValue; a zero is an empty message."""
    return dict(fields(data)).get(1, 0.0)


def metric(data: bytes) -> dict[str, Any]:
    """MetricEntry: name, value, min_value, max_value."""
    found = dict(fields(data))
    bounds = {
        key: wrapped(found[number]) for number, key in ((3, "min"), (4, "max")) if number in found
    }
    return {"name": found[1].decode(), "value": found.get(2, 0.0), **bounds}


def extra(data: bytes) -> tuple[str, Any]:
    """A map's entry: the name, and an EntryValue of a double or a string."""
    found = dict(fields(data))
    ((number, value),) = fields(found[2]) or ((1, 0.0),)
    return found[1].decode(), value if number == 1 else value.decode()


def entry(data: bytes) -> dict[str, Any]:
    """BenchmarkEntries with its one BenchmarkEntry."""
    ((number, message),) = fields(data)
    assert number == 1
    parts = fields(message)
    single = dict(parts)
    return {
        "name": single[1].decode(),
        "iters": single.get(2, 0),
        "wall_time": single.get(4, 0.0),
        "throughput": single.get(5, 0.0),
        "extras": dict(extra(value) for number, value in parts if number == 6),
        "metrics": [metric(value) for number, value in parts if number == 7],
    }


def child(queue: Any, target: str, folder: str, keywords: dict[str, Any]) -> None:
    module, class_name, method = target.rsplit(".", 2)
    try:
        found = getattr(importlib.import_module(module), class_name)
        made = found(output_dir=folder, root_data_dir=None, tpu=None, **keywords)
        prefix = f"{folder}/proto_"
        os.environ["TEST_REPORT_FILE_PREFIX"] = prefix
        getattr(made, method)()
        result = entry(Path(f"{prefix}{class_name}.{method}").read_bytes())
        result["name"] = target
        queue.put((False, result))
    except Exception as error:
        queue.put((True, {"name": target, "wall_time": -1, "error": repr(error)}))


def succeeded(result: dict[str, Any]) -> bool:
    return result["wall_time"] != -1 and all(
        each.get("min", each["value"]) <= each["value"] <= each.get("max", each["value"])
        for each in result["metrics"]
    )


def main() -> int:
    target, folder, keywords = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    queue: Any = multiprocessing.Queue()
    process = multiprocessing.Process(target=child, args=(queue, target, folder, keywords))
    process.start()
    failed, result = queue.get(timeout=200)
    process.join()
    told = {"has_exception": failed, "succeeded": succeeded(result), **result}
    sys.stdout.write(json.dumps(told) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
