"""The pull request and the branch that a message names."""

from __future__ import annotations

import pytest

from perfrun.workspace.pull_requests import branch_of, pull_request_of


@pytest.mark.parametrize(
    ("subject", "body", "named"),
    [
        ("Merge pull request #12 from x/faster", "", "#12"),
        ("Merge pull request 'Add x (#3)' (#12) from a into main", "", "#12"),
        ("Make it faster (#345)", "", "#345"),
        ("Backport: faster (#12) (#15)", "", "#15"),
        ('Revert "Make it faster (#12)"', "", None),
        ("Make it faster (!7)", "", "!7"),
        ("Merge branch 'fast' into 'main'", "Fast\n\nSee merge request g/sub/p!7", "g/sub/p!7"),
        ("Merge branch 'fast' into 'main'", "See merge request !8\r\n", "!8"),
        ("Merged PR 99: faster", "", "#99"),
        ("Merged in x/faster (pull request #4)", "", "#4"),
        ("PR #6543: [XLA] faster", "", "#6543"),
        (
            "[inductor] faster",
            "Pull Request resolved: https://github.com/pytorch/pytorch/pull/1234\nApproved by: x",
            "#1234",
        ),
        ("fixes #12", "See also merge request !3", None),
        ("Merge pull request #0 from x/y", "", None),
        ("Merge pull request #" + "9" * 40, "", None),
        ("a (#٣)", "", None),
    ],
)  # fmt: skip
def test_a_commit_names_its_own_pull_request(subject: str, body: str, named: str | None) -> None:
    assert pull_request_of(subject, f"{subject}\n\n{body}\n") == named


def test_a_merge_names_its_branch() -> None:
    assert branch_of("Merge pull request #12 from x/faster") == "x/faster"
    assert branch_of("Merge pull request 'Add x' (#12) from a into main") == "a"
    assert branch_of("Merge branch 'a b' into main") == "a b"
    assert branch_of("Merge remote-tracking branch 'origin/x'") == "origin/x"
    assert branch_of("Merged in x/faster (pull request #4)") == "x/faster"
    assert branch_of("Make it faster (#345)") is None


def test_a_message_of_megabytes_is_read_at_its_ends() -> None:
    text = "x" * 10**6 + "\nSee merge request g/p!7\n"
    assert pull_request_of("x", text) == "g/p!7"
