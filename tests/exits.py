"""The end of a worker in good order, for tests that change what they are about."""

from __future__ import annotations

from perfrun.launchers.launcher import Exit

ENDED = Exit(
    exit_code=0,
    signal_number=None,
    stopped_for=None,
    elapsed_s=2.0,
    user_cpu_s=1.0,
    system_cpu_s=0.5,
    max_rss_bytes=50 * 2**20,
    strays=(),
)
