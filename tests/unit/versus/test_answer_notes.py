"""The note on disturbed trials below the table of frameworks."""

from __future__ import annotations

import pytest

from perfrun.versus.answer import Cell, disturbance_note
from perfrun.versus.options import Case


def cell(label: str, ran: int, disturbed: int) -> Cell:
    return Cell(
        platform_name="here",
        case=Case(phase="inference", batch_size=1),
        label=label,
        framework=label,
        method="benchmarks.torch.model.Model.inference",
        trials=ran,
        ran=ran,
        disturbed=disturbed,
        failure=None,
    )


@pytest.mark.parametrize(
    ("torch", "tensorflow", "said", "is_busy"),
    [
        ((7, 0), (7, 0), None, False),
        ((7, 0), (0, 0), None, False),
        ((7, 1), (7, 0), "torch 1 of 7.", False),
        ((7, 1), (0, 0), "torch 1 of 7.", False),
        ((7, 1), (7, 4), "torch 1 of 7, tensorflow 4 of 7.", True),
        ((7, 7), (7, 7), "torch 7 of 7, tensorflow 7 of 7.", True),
    ],
)
def test_a_disturbed_trial_is_said_and_a_busy_machine_only_where_half_of_them_were(
    torch: tuple[int, int], tensorflow: tuple[int, int], said: str | None, is_busy: bool
) -> None:
    notes = disturbance_note([cell("torch", *torch), cell("tensorflow", *tensorflow)])
    assert len(notes) == (said is not None)
    for note in notes:
        assert str(said) in note
        assert ("busy machine" in note) is is_busy
