"""Containers of a killed perfrun are told from those of one that still runs."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from perfrun.launchers.docker_engine import harness_labels, is_leftover, remove_leftovers


class Engine:
    """An engine with a list of containers; it records what is removed."""

    def __init__(self, *labels: dict[str, str]) -> None:
        self.removed: list[str] = []
        self._containers = [{"Id": f"id{n}", "Labels": each} for n, each in enumerate(labels)]

    def labelled(self, label: str) -> list[dict[str, Any]]:
        return [each for each in self._containers if label in each["Labels"]]

    def labelled_volumes(self, label: str) -> list[dict[str, Any]]:
        found = self.labelled(label)
        return [{"Name": f"volume of {each['Id']}", "Labels": each["Labels"]} for each in found]

    def remove_volume(self, name: str) -> None:
        self.removed.append(name)

    def remove(self, container: str) -> None:
        if container == "id1":
            raise OSError("it is being removed by another perfrun")
        self.removed.append(container)


def dead() -> str:
    process = subprocess.Popen(["true"])
    process.wait()
    return str(process.pid)


def test_only_what_is_certainly_a_dead_harnesss_is_a_stray() -> None:
    mine = harness_labels("run")
    assert not is_leftover(mine)
    assert is_leftover({**mine, "perfrun.harness.pid": dead()})
    assert is_leftover({**mine, "perfrun.harness.start": "1"})  # the pid is another process's now
    assert is_leftover({**mine, "perfrun.harness.boot": "before"})
    for unknown in (
        {"perfrun.run_id": "made by hand"},
        {**mine, "perfrun.harness.pid": dead(), "perfrun.harness.uid": str(os.getuid() + 1)},
        {**mine, "perfrun.harness.pid": dead(), "perfrun.harness.pid_namespace": "pid:[1]"},
        {**mine, "perfrun.harness.pid": "x"},
        {**mine, "perfrun.harness.boot": ""},
    ):
        assert not is_leftover(unknown), unknown


def test_strays_are_removed_and_said_and_a_race_for_one_is_no_error() -> None:
    gone = {**harness_labels("20260101-1"), "perfrun.harness.pid": dead()}
    engine = Engine(gone, gone, harness_labels("alive"), {"other": "label"})
    said: list[str] = []
    assert remove_leftovers(engine, said.append) == 1
    assert engine.removed == ["id0", "volume of id0", "volume of id1"]
    assert said == ["removed container id0, left behind by run 20260101-1 whose perfrun was killed"]
