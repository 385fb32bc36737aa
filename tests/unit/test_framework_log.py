"""What a framework logs for information is not shown between perfrun's lines; all else is."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfrun.reports.framework_log import FrameworkLog

# As TensorFlow 2.21 and 2.15 print them at their start.
ABSL = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
ONEDNN = "I0000 00:00:1795286017.858660   18365 port.cc:153] oneDNN custom operations are on. You\n"
CPU = "I0000 00:00:1795286018.075712   18365 cpu_feature_guard.cc:227] This TensorFlow binary is\n"
REBUILD = "To enable the following instructions: AVX2 FMA, in other operations, rebuild\n"
OLDER = "2026-11-21 20:32:01.123456: I tensorflow/core/util/port.cc:113] oneDNN custom operations\n"
XLA = "I0000 00:00:1795286017.858660   18365 device_compiler.h:188] Compiled cluster using XLA!\n"
HIDDEN = ABSL + ONEDNN + CPU + REBUILD + OLDER + XLA
SHOWN = (
    "W0000 00:00:1795286017.858660   18365 gpu_device.cc:2344] Cannot dlopen some GPU libraries\n",
    "E0000 00:00:1795286017.858660   18365 cuda_dnn.cc:8310] Unable to register cuDNN factory\n",
    "2026-11-21 20:32:01.123456: W tensorflow/core/x.cc:1] Allocation exceeds 10%\n",
    "2026-11-21 20:32:01.123456: E tensorflow/core/x.cc:1] failed call to cuInit\n",
    "I1121 20:32:01.123456 140234 resnet.py:99] the benchmark's own line\n",
    "2026-11-21 20:32:01 INFO the benchmark's own line\n",
    "In the beginning\n",
    "Traceback (most recent call last):\n",
    REBUILD,  # not after a line that is hidden
)


def shown(*texts: str) -> tuple[str, int]:
    log = FrameworkLog()
    return "".join([log.shown(text) for text in texts] + [log.rest()]), log.hidden


def test_information_of_the_start_is_hidden_and_counted() -> None:
    assert shown(HIDDEN) == ("", 6)


@pytest.mark.parametrize("line", SHOWN)
def test_warnings_errors_and_the_benchmarks_own_lines_are_shown(line: str) -> None:
    assert shown(line) == (line, 0)
    assert shown(f"one\n{line}") == (f"one\n{line}", 0)
    assert shown(f"{ONEDNN}error\n{line}{OLDER}") == (f"error\n{line}", 2)


@given(st.lists(st.integers(0, len(HIDDEN) + 400), max_size=12))
def test_it_does_not_matter_in_which_pieces_the_text_comes(cuts: list[int]) -> None:
    text = "".join(a + b for a, b in zip(SHOWN, (ABSL, ONEDNN, CPU, OLDER) * 3, strict=False))
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(places)]
    assert shown(*pieces) == shown(text)


def test_a_progress_bar_is_shown_while_its_line_has_no_end() -> None:
    log = FrameworkLog()
    assert log.shown("\r 42%|####") == "\r 42%|####"
    # On one line with what has been shown, it is shown to its end.
    assert log.shown(ONEDNN) == ONEDNN
    assert log.shown(ONEDNN) == ""


def test_a_last_line_without_an_end_is_not_lost() -> None:
    assert shown("I give up") == ("I give up", 0)
    assert shown(ONEDNN.rstrip("\n")) == ("", 1)
    assert shown("2026") == ("2026", 0)
