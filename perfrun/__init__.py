"""perfrun: a benchmark runner for ML frameworks.

Map of the package, in the order in which a run passes through it:

    benchmark.py   entry point            runner.py      the trial loop
    cli.py         argv -> RunPlan        launchers/     start and stop a trial's process
    plan.py        what to do, as values  worker/        runs inside the environment under test
    workspace.py   git checkouts          probes/        what is watched from outside
    downloads.py   data sets              summary.py     the PerfZero document
    image.py       framework images       reports/       what a person reads

This file is also read inside the environment under test, and before `perfrun --version`, so it
imports nothing; the author API is imported when it is asked for.
"""

TYPE_CHECKING = False  # as type checkers read it; `typing` itself takes milliseconds to import
if TYPE_CHECKING:
    from perfrun.worker.author import Benchmark, SetupError

__version__ = "0.1.0"

__all__ = ["Benchmark", "SetupError", "__version__"]


def __getattr__(name: str) -> object:
    if name in ("Benchmark", "SetupError"):
        from perfrun.worker import author

        globals()["Benchmark"], globals()["SetupError"] = author.Benchmark, author.SetupError
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
