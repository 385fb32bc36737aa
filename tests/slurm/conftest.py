"""A real Slurm, which the tests start themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator

import cluster
import pytest


@pytest.fixture(scope="module")
def slurm_cluster() -> Iterator[cluster.Cluster]:
    """Four nodes and their controller; a second try of a test gets new ones."""
    if missing := cluster.missing():
        reason = (
            f"no Slurm ({', '.join(missing)}): install Debian's packages munge, slurmctld, slurmd "
            "and slurm-client"
        )
        if os.environ.get("PERFRUN_REQUIRE_SLURM") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with cluster.running() as one:
        yield one


@pytest.fixture
def slurm(slurm_cluster: cluster.Cluster, monkeypatch: pytest.MonkeyPatch) -> cluster.Cluster:
    """The cluster, with all nodes idle, to which Slurm's programs speak in this test."""
    for name, value in slurm_cluster.environment.items():
        monkeypatch.setenv(name, value)
    slurm_cluster.reset()
    return slurm_cluster
