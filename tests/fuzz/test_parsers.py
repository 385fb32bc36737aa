"""Whatever the bytes, a parser returns a value or raises the error that it names."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .mutation import mutated
from .runner import check
from .target import Target
from .targets import TARGETS

INPUTS = int(os.environ.get("PERFRUN_FUZZ_INPUTS", "60"))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_seeds_of_a_target_are_near_what_it_reads(target: Target) -> None:
    accepted = [check(target, seed) for seed in target.seeds]
    assert any(accepted)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_changed_input_gives_a_value_or_the_named_error(target: Target) -> None:
    chance = random.Random(target.name)
    for _ in range(INPUTS):
        check(target, mutated(target.seeds, chance))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@settings(max_examples=max(10, INPUTS // 3))
@given(data=st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_any_bytes_give_a_value_or_the_named_error(target: Target, data: bytes) -> None:
    check(target, data)
