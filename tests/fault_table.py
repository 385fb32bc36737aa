"""Ways for a method to end, and the outcome of each: the same wherever the trial runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the fault table: a method's body and its outcome."""

    body: str
    status: str
    reason: str  # regular expression for all of it
    exit_code: int | None = None
    signal: str | None = None
    phase: str = "method"


TABLE = {
    "an exception": Row(
        body="raise ValueError('no such luck')",
        status="failed",
        reason="ValueError: no such luck",
        exit_code=1,
    ),
    "a setup error": Row(
        body="from perfrun import SetupError\nraise SetupError('depth is 3; it must be even')",
        status="failed",
        reason="SetupError: depth is 3; it must be even",
        exit_code=1,
    ),
    "sys.exit(0)": Row(
        body="sys.exit(0)",
        status="exited",
        reason=r"the benchmark called sys\.exit\(0\)",
        exit_code=0,
    ),
    "sys.exit(3)": Row(
        body="sys.exit(3)",
        status="exited",
        reason=r"the benchmark called sys\.exit\(3\)",
        exit_code=3,
    ),
    "sys.exit with a text": Row(
        body="sys.exit('enough')",
        status="exited",
        reason=r"the benchmark called sys\.exit\(enough\)",
        exit_code=1,
    ),
    "os._exit(0)": Row(
        body="os._exit(0)",
        status="exited",
        reason="the process ended with status 0 during method",
        exit_code=0,
    ),
    "os._exit(7)": Row(
        body="os._exit(7)",
        status="exited",
        reason="the process ended with status 7 during method",
        exit_code=7,
    ),
    "SIGSEGV": Row(
        body="os.kill(os.getpid(), signal.SIGSEGV)\ntime.sleep(60)",
        status="crashed",
        reason="SIGSEGV during method",
        signal="SIGSEGV",
    ),
    "a null pointer": Row(
        body="import ctypes\nctypes.string_at(0)",
        status="crashed",
        reason="SIGSEGV during method",
        signal="SIGSEGV",
    ),
    "abort": Row(
        body="os.abort()",
        status="crashed",
        reason="SIGABRT during method",
        signal="SIGABRT",
    ),
    "SIGKILL": Row(
        body="os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)",
        status="crashed",
        reason="SIGKILL during method",
        signal="SIGKILL",
    ),
    "SIGTERM from elsewhere": Row(
        body="os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)",
        status="crashed",
        reason="SIGTERM during method",
        signal="SIGTERM",
    ),
}
