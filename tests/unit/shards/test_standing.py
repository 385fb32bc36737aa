"""How a submission stands: the time left, the machines, the sweep as a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfrun.shards import standing
from perfrun.shards.places import Begun, Ended, How
from perfrun.shards.plan import ShardState
from perfrun.shards.status import ShardStatus, statuses
from tests.submissions import finished, plan


def test_the_time_left_follows_from_what_the_same_took(tmp_path: Path) -> None:
    made = plan(tmp_path, 2, 3)
    finished(made, 0)
    (done, *others) = statuses(made)
    (last,) = done.attempts
    took = [
        replace(
            last,
            begun=Begun(host="lab1", pid=1, begun=100.0),
            ended=Ended(how=How.RAN, ended=100.0 + seconds),
        )
        for seconds in (10.0, 40.0)
    ]
    ended = [
        ShardStatus(shard=made.shards[at], state=ShardState.DONE, attempts=(took[at],))
        for at in (0, 1)
    ]
    running = [replace(one, state=ShardState.RUNNING) for one in others[1:3]]
    waiting = [replace(one, state=ShardState.WAITING) for one in others[3:]]
    # 10 + 40 s run, and 10 + 40 s wait, on two machines.
    assert standing.seconds_left([*ended, *running, *waiting]) == pytest.approx(50.0)
    assert standing.seconds_left([*running, *waiting]) is None
    assert standing.seconds_left(ended) is None
    document = standing.document(made, [*ended, *running, *waiting])
    assert document["machines"] == [
        {"machine": "lab1", "shards": 2, "attempts": 2, "machine_failures": 0}
    ]
