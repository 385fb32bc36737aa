"""perfrun: a benchmark runner for ML frameworks.

Map of the package; the folders stand in the order in which data flows through them:

    benchmark.py   the entry point: runs a command and returns its exit status
    options/       the command line as values: flags become a RunPlan
    workspace/     puts code and data in place: git checkouts, downloads
    launchers/     start a trial's process: any interpreter, any container image
    worker/        the trial's process, inside the environment under test
    probes/        watch from outside: process tree, devices, energy, machine
    summary/       the JSON document of a trial: written, read back, judged
    run/           rounds of trials: order, deadlines, resume, one trial at a time
    store/         the index over summaries
    analysis/      statistics: numbers in, numbers out
    compare/       `perfrun compare`, `perfrun ab`
    changes/       `perfrun history`, `perfrun detect`, `perfrun bisect`
    versus/        `perfrun versus`
    nightly/       `perfrun nightly`, `perfrun prune`
    doctor/        `perfrun doctor`
    selftest/      `perfrun selftest`
    image/         `setup.py`: builds container images of frameworks
    dlbs/          `perfrun dlbs`
    notebook/      `import perfrun; perfrun.load(...)`, `%%perfrun`
    reports/       tables and the terminal, for all commands

errors.py, locks.py, text.py and dataclass.py serve all of them. docs/contributing/architecture.md
says more.

This file is also read inside the environment under test, and before `perfrun --version`. So it
imports nothing; the author API is imported when somebody asks for it.
"""

TYPE_CHECKING = False  # as type checkers read it; `typing` itself takes milliseconds to import
if TYPE_CHECKING:
    from perfrun.notebook.loading import load as load
    from perfrun.notebook.magic import load_ipython_extension as load_ipython_extension
    from perfrun.worker.author import Benchmark, SetupError

__version__ = "0.1.0"

# Without `load`: `from perfrun import *` in the file of a benchmark must not import the harness.
__all__ = ["Benchmark", "SetupError", "__version__"]
_OF_NOTEBOOK = {"load": "loading", "load_ipython_extension": "magic"}


def __getattr__(name: str) -> object:
    if name in ("Benchmark", "SetupError"):
        from perfrun.worker import author

        globals()["Benchmark"], globals()["SetupError"] = author.Benchmark, author.SetupError
        return globals()[name]
    if name in _OF_NOTEBOOK:
        from importlib import import_module

        return getattr(import_module(f"perfrun.notebook.{_OF_NOTEBOOK[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> "list[str]":  # Python 3.8 reads this file
    return sorted({*globals(), "Benchmark", "SetupError", "load"})
