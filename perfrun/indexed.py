"""Choose results by an index instead of opening every summary of a workspace.

A chosen trial is read from its summary where that is at hand; of one that lies on another machine,
or is gone, the index tells what comparing needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfrun.analysis.directions import Direction
from perfrun.readings import Reading, batch_size_of, read_summary
from perfrun.store.address import Address
from perfrun.store.index import Store, open_store
from perfrun.store.query import Selector, Trial

# What `Benchmark.measure` reports by itself and `readings` leaves to the summary.
_DETAIL = re.compile(
    r"(.*/)?(latency_(median|mean|p50|p90|min|max|median_low|median_high)_s|device_time_median_s"
    r"|warmup_s|\w+s_per_second_per_device)"
)


class Index:
    """An index as a place to choose from."""

    def __init__(self, address: Address) -> None:
        """Bring a workspace's own index up to date. Raises StoreError when it cannot be had."""
        self._address = address
        with open_store(address) as store:
            if address.workspace is not None:
                store.refresh()

    def choose(self, selector: Selector) -> tuple[Reading, ...]:
        """The trials that the selector chooses."""
        with open_store(self._address) as store:
            return tuple(_reading(trial) for trial in _trials(store, selector))


def _trials(store: Store, selector: Selector) -> list[Trial]:
    return list(store.trials(selector))


def _reading(trial: Trial) -> Reading:
    try:
        return read_summary(Path(trial.summary_path))
    except (OSError, ValueError):
        return reading_of_trial(trial)


def reading_of_trial(trial: Trial) -> Reading:
    """What the index knows of a trial."""
    document = _document(trial)
    values = {name: one for name, one in trial.values.items() if not _DETAIL.fullmatch(name)}
    directions: dict[str, Direction] = {name: one.direction for name, one in values.items()}
    return Reading(
        path=Path(trial.summary_path),
        document=document,
        method=trial.method,
        execution_id=trial.execution_id,
        run_id=trial.run_id or None,
        label=trial.label or None,
        timestamp=trial.timestamp,
        ran=trial.status in ("passed", "out_of_bounds"),
        disturbed=trial.disturbed,
        values={name: one.value for name, one in values.items()},
        directions=directions,
        batch_size=batch_size_of(document),
    )


def _document(trial: Trial) -> Mapping[str, Any]:
    """A summary as far as `differences` looks into it, made from the trial's context."""
    context = trial.context
    image = {**context["image"], **context["engine"], "limits": context["limits"]}
    names = ("python", "distributions", "direct_url_commits")
    return {
        "execution_id": trial.execution_id,
        "benchmark_result": {
            "name": trial.method,
            "metrics": [{"name": name, "value": one.value} for name, one in trial.values.items()],
            "extras": [{"name": name, "value": value} for name, value in trial.extras.items()],
        },
        "benchmark_info": {
            "env_vars": context["env_vars"],
            "flags": {"perfzero_constructor_args": context["constructor_args"]},
            "site_package_info": {name: {"hash": c} for name, c in trial.commits.items()},
        },
        "ml_framework_info": context["framework"],
        "system_info": context["system"],
        "perfrun": {
            "version": context["harness"].get("version"),
            "benchmark_flags": context["benchmark_flags"],
            "environment": {name: context[name] for name in names},
            "container": image if context["image"] else None,
            "machine": context["machine"],
            "module_sha256": context["module_sha256"],
            "git": [
                {"directory": name, "diff_sha256": one.get("diff_sha256")}
                for name, one in context["git"].items()
            ],
            "outcome": {"status": trial.status},
        },
    }
