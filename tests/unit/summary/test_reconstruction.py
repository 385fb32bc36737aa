"""The flags that run the trial of a summary again."""

from __future__ import annotations

from typing import Any

import pytest

from perfrun.summary.reconstruction import reconstruct


def summary(**own: Any) -> dict[str, Any]:
    checkout = {
        "directory": "models",
        "url": "https://host/models.git",
        "asked_ref": "main",
        "asked_hash": None,
        "git_hash": "a" * 40,
        "dirty": False,
    }
    return {
        "benchmark_info": {
            "flags": {
                "git_repos": "https://host/models.git;main",
                "python_path": "models",
                "perfzero_constructor_args": '{"size": 3}',
                "execution_label": "night",
                "benchmark_num_trials": 5,
                "python": "python3",  # wherever that is
                "allocator": "retain",
            }
        },
        "perfrun": {
            "git": [checkout],
            "env": {"OMP_NUM_THREADS": "1"},
            "container": None,
            "benchmark_flags": ["--batch_size=8"],
            "environment": {"python": {"executable": "/env/bin/python"}},
            **own,
        },
    }


def test_code_and_interpreter_are_what_they_turned_out_to_be() -> None:
    found = reconstruct(summary())
    assert set(found.words) == {
        f"--git_repos=https://host/models.git;main;{'a' * 40}",
        "--python=/env/bin/python",
        "--python_path=models",
        "--allocator=retain",
        '--perfzero_constructor_args={"size": 3}',
        "--env=OMP_NUM_THREADS=1",
    }
    assert found.benchmark_flags == ("--batch_size=8",)
    assert found.lost == ()


def test_an_image_is_named_by_its_id() -> None:
    found = reconstruct(summary(container={"image": "x:latest", "image_id": "sha256:12"}))
    assert "--image=sha256:12" in found.words
    assert not any(word.startswith("--python=") for word in found.words)


@pytest.mark.parametrize(
    ("own", "telling"),
    [
        ({"git": [{"directory": "r", "url": "", "git_hash": ""}]}, "r: was no git checkout"),
        (
            {"git": [{"directory": "r", "url": "u", "git_hash": "a", "dirty": True}]},
            "r: its local edits",
        ),
        (
            {"git": [{"directory": "r", "url": "https://***@h/r", "git_hash": "a"}]},
            "r: the secret in its url",
        ),
        ({"env": {"KEY": "https://***@host/"}}, "the secret in --env=KEY"),
        ({"environment": {}}, "the interpreter"),
        ({"container": {"image": "x"}}, "the id of the image x"),
    ],
)
def test_what_is_not_on_record_is_said(own: dict[str, Any], telling: str) -> None:
    assert reconstruct(summary(**own)).lost == (telling,)


def test_a_summary_of_perfzero_says_too_little() -> None:
    assert reconstruct({"benchmark_info": {"flags": {}}}).lost == ("the summary is not perfrun's",)
