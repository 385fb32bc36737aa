"""One trial: import the module, make the object, call the method, write down the outcome.

The code that was checked out is what is measured, so a module from elsewhere is refused. Checkouts
come first on the path, and still Python may take an installed copy: a folder without `__init__.py`
loses to a package further down the path, and Python does not look again for a module that a `.pth`
file loaded at the interpreter's start.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import logging
import os
import sys
import time
import traceback
import types

from perfrun.worker import procfs
from perfrun.worker.allocator import allocator_in_use
from perfrun.worker.author import PREFIX_VARIABLE, SetupError
from perfrun.worker.frameworks import allocator_peaks, loaded_frameworks, main_framework
from perfrun.worker.method_reports import ReportKeeper
from perfrun.worker.outcome_file import SERIES_VARIABLE, STACK, OutcomeFile
from perfrun.worker.profilers.profile_recorder import UnavailableError
from perfrun.worker.profilers.profile_windows import ProfileWindows

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Any, Container, Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple

    from perfrun.worker.profilers.profile_trial import ProfileTrial

_STDLIB: FrozenSet[str] = getattr(sys, "stdlib_module_names", frozenset())  # Python >= 3.10
_ARGUMENTS = "; --perfzero_constructor_args adds to what PerfZero gives a class"
_SIGQUIT, _SIGTERM = 3, 15  # the same everywhere; `signal` makes four enums of its numbers
_NO_MODULE = (
    "%s: it is in no checkout, no --python_path and not in the environment under test; "
    "`perfrun list PACKAGE` prints what there is"
)
LOG_FORMAT = "%(asctime)s %(levelname)s: %(message)s"


class WrongNameError(AttributeError):
    """Raised when a module has no such class, or a class no such method."""


class ResolutionError(ImportError):
    """Raised when a module did not come from the checkout that holds it."""


def find_class(module: Any, name: str) -> Any:
    """Return a class of a module. Raises WrongNameError."""
    try:
        return getattr(module, name)
    except AttributeError as error:
        known = [n for n in dir(module) if isinstance(vars(module).get(n), type)]
        text = _no_such("class", name, module.__name__, known)
        raise WrongNameError(text + getattr_hint(vars(module), error)) from error


def find_method(instance: Any, name: str, module: str) -> Any:
    """Return the bound method. Raises WrongNameError, or what a property of that name raises."""
    try:
        return getattr(instance, name)
    except AttributeError as error:
        its_class = type(instance)
        if name in dir(its_class):
            raise
        text = no_method(its_class, name, module)
        raise WrongNameError(text + getattr_hint(dir(its_class), error)) from error


def no_method(its_class: Any, name: str, module: str) -> str:
    """Return the message about a method that a class has not, with the nearest one."""
    known = [n for n in dir(its_class) if callable(getattr(its_class, n, None))]
    return _no_such("method", name, "%s.%s" % (module, its_class.__name__), known)


def getattr_hint(names: Container[str], error: AttributeError) -> str:
    """Return the message of a `__getattr__` among these names, which may say what to do."""
    if "__getattr__" not in names:
        return ""
    return " (its __getattr__ says: %s)" % " ".join(str(error).split())


def is_wrong_module(error: BaseException, module: str) -> bool:
    """Return True when the benchmark's own module, or a package that holds it, was not found."""
    name = getattr(error, "name", None)
    is_its = bool(name) and (module + ".").startswith("%s." % name)
    return isinstance(error, ModuleNotFoundError) and is_its


def _no_such(kind: str, name: str, holder: str, known: List[str]) -> str:
    import difflib  # 5 ms that a right name does not pay

    names = [one for one in known if not one.startswith("_")]
    near = difflib.get_close_matches(name, names, n=1)
    hint = "did you mean %s?" % near[0] if near else "`perfrun list` prints what there is"
    return "%s has no %s %r; %s" % (holder, kind, name, hint)


def check_module(module: str, path: Optional[str], checkouts: Sequence[str]) -> None:
    """Raise when a checkout holds `module` but it was imported from elsewhere (`path`).

    If several checkouts hold the module, the first on the path counts.
    """
    relative = os.path.join(*module.split("."))
    for checkout in checkouts:
        wanted = (
            os.path.join(checkout, relative + ".py"),
            os.path.join(checkout, relative, "__init__.py"),
        )
        there = [file for file in wanted if os.path.exists(file)]
        if not there:
            continue
        if not (path and os.path.realpath(path) in map(os.path.realpath, there)):
            raise ResolutionError(
                "%s is in the checkout %s, but Python took it from %s: a package of the same name "
                "is installed or comes first" % (module, checkout, path)
            )
        return


def check_loaded(checkouts: Sequence[str]) -> None:
    """Check every other package that has been loaded in the same way, by its top-level name.

    The standard library is left out: a checkout's `types.py` does not replace Python's own.
    """
    if not checkouts:
        return
    library = os.path.dirname(os.path.realpath(os.__file__))
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if "." in name or name in _STDLIB or name in ("perfrun", "__main__") or not path:
            continue
        if os.path.dirname(os.path.realpath(path)) in (library, os.path.join(library, name)):
            continue
        check_module(name, path, checkouts)


class TrialReport:
    """The outcome of one trial, filled in phase by phase."""

    def __init__(self, order: Dict[str, Any]) -> None:
        self.order = order
        self.benchmark_class: Any = None
        self.outcome: Dict[str, Any] = {
            "complete": False,
            "phase": "start",
            "pid": os.getpid(),
            "error": None,
            "phases": {},
            "timestamp": time.time(),
            "memory": {},
            "resources": {},
            "allocators": [],
            "allocator": None,
            "module_file": None,
            "benchmark_version": None,
            "framework": None,
            "frameworks": [],
            "unsaved_reports": [],
            "profiles": [],
            "notes": [],
        }
        self.file = OutcomeFile(order["private_dir"])
        self.keeper = ReportKeeper(os.path.join(order["output_dir"], "proto_"))

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one phase in seconds of wall clock and of CPU (all threads).

        The outcome so far is saved first, in case the phase kills the process.
        """
        self.outcome["phase"] = name
        self.file.save(self.outcome)
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.outcome["phases"][name] = {
                "wall_s": time.perf_counter() - wall,
                "cpu_s": time.process_time() - cpu,
            }

    def run(self) -> None:
        """Run the phases; an exception of the benchmark passes through."""
        method = self.order["method"]
        profile = self._profile_trial()
        if profile:
            profile.process_begins()
        with self.phase("import"):
            module = importlib.import_module(method["module"])
        self._note_module(module)
        self.benchmark_class = find_class(module, method["class_name"])
        self._note_version()
        parse_flags(self.order["benchmark_flags"])
        with self.phase("construct"):
            instance = self.benchmark_class(**self.order["constructor"])
        bound = find_method(instance, method["name"], method["module"])
        os.environ[PREFIX_VARIABLE] = os.path.join(self.order["output_dir"], "proto_")
        os.environ[SERIES_VARIABLE] = self.order["private_dir"]
        self.keeper.watch(type(instance))
        self._before_method()
        windows = ProfileWindows(
            self.order["profiler_windows"],
            os.path.join(self.order["output_dir"], "profiler_data"),
            (self.outcome["framework"] or {}).get("name"),
        )
        windows.start()
        self.outcome["resources"]["before"] = procfs.own_counts()
        try:
            with self.phase("method"), profile or contextlib.nullcontext():
                returned = bound()
            refuse_unrun(returned)
        finally:
            self.outcome["resources"]["after"] = procfs.own_counts()
            windows.stop()
            self.outcome["notes"] += windows.notes
            if windows.is_used:
                self.outcome["profiles"].append(windows.facts())
            if profile:
                self.outcome["profiles"].append(profile.facts())

    def _profile_trial(self) -> Optional[ProfileTrial]:
        """Return the recording of a trial of `--profile`; None in a trial that counts."""
        if not self.order.get("profile"):
            return None
        from perfrun.worker.profilers.profile_trial import ProfileTrial

        scope = self.order["profile_scope"]
        all_rows = bool(self.order.get("all_rows"))
        return ProfileTrial(self.order["profile"], self.order["output_dir"], scope, all_rows)

    def _note_module(self, module: Any) -> None:
        path = getattr(module, "__file__", None)
        self.outcome["module_file"] = path
        check_module(self.order["method"]["module"], path, self.order["first_paths"])
        check_loaded(self.order["first_paths"])

    def _note_version(self) -> None:
        """Record the version that the author gave the class; it stands for the module's hash."""
        with contextlib.suppress(Exception):  # a metaclass may do anything; so may a huge int
            version = getattr(self.benchmark_class, "version", None)
            if isinstance(version, (str, int)) and not isinstance(version, bool):
                self.outcome["benchmark_version"] = str(version)

    def _before_method(self) -> None:
        """Record the state in which the method starts."""
        self.outcome["memory"]["before_method"] = procfs.memory_marks()
        self.outcome["memory"]["reset"] = procfs.reset_peak()
        self.outcome["frameworks"] = loaded_frameworks()
        self.outcome["framework"] = main_framework(self.benchmark_class)
        self.outcome["timestamp"] = time.time()

    def finish(self) -> None:
        """Write the final outcome. The memory marks are read as late as possible."""
        self.outcome["frameworks"] = loaded_frameworks()
        self.outcome["framework"] = main_framework(self.benchmark_class)
        self.outcome["unsaved_reports"] = self.keeper.unsaved
        self.outcome["complete"] = True
        self.outcome["memory"]["end"] = procfs.memory_marks()
        self.outcome["allocators"] = allocator_peaks()
        self.outcome["allocator"] = allocator_in_use()
        self.file.finish(self.outcome)


def refuse_unrun(returned: Any) -> None:
    """Raise when the call only made a coroutine or generator: no line of the method has run."""
    if isinstance(returned, (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)):
        raise TypeError(
            "the method returned a %s, so nothing of it has run; a benchmark is a plain method"
            % type(returned).__name__
        )


def parse_flags(arguments: Any) -> None:
    """Let absl parse the flags that were given after `--`, if any were."""
    if not arguments:
        return
    from absl import flags

    rest = flags.FLAGS([sys.argv[0], *arguments])[1:]
    if rest:
        raise flags.Error("'%s' is not a flag; flags begin with --" % rest[0])


def run_trial(order: Dict[str, Any]) -> int:
    """Run the trial that `order` describes; return the status to exit with."""
    stack = open(os.path.join(order["private_dir"], STACK), "w")
    faulthandler.enable(stack)
    # SIGTERM leaves a dump and then ends the process; SIGQUIT only leaves the dump.
    faulthandler.register(_SIGTERM, stack, chain=True)
    faulthandler.register(_SIGQUIT, stack)
    for stream in (sys.stdout, sys.stderr):
        # Lines must be on disk when the process dies, and seen when they are printed.
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    log_to_files(order)
    trial = TrialReport(order)
    status = _run_and_record(trial)
    if os.getpid() == trial.outcome["pid"]:  # not in a child that the method forked
        trial.finish()
    return status


def exit_of(code: Any) -> Tuple[str, int]:
    """Return what `sys.exit` was called with as a text, and the status that Python makes of it."""
    try:
        text = str(code)
    except Exception:  # noqa: BLE001 - thousands of digits, or an object of the benchmark's
        text = "a value of type %s" % type(code).__name__
    if not isinstance(code, int):
        return text, int(code is not None)
    return text, code if -(2**63) <= code < 2**63 else -1


def _run_and_record(trial: TrialReport) -> int:
    """Run the trial, put its error into the outcome, and return the exit status."""
    try:
        trial.run()
        return 0
    except SystemExit as error:
        message, code = exit_of(error.code)
        trial.outcome["error"] = {"kind": "exit", "message": message, "exit_code": code}
        return code & 0xFF
    except BaseException as error:  # noqa: BLE001 - a benchmark may raise anything
        text = traceback.format_exc()
        if isinstance(error, (SetupError, UnavailableError, WrongNameError)):  # the user's mistake
            logging.getLogger().error("%s", error)
        elif is_wrong_module(error, trial.order["method"]["module"]):
            logging.getLogger().error("%s", no_module(error))
        elif trial.outcome["phase"] == "import" and is_not_installed(error):
            logging.getLogger().error(
                "%s: install it in the environment under test, or name another (--python)%s",
                error,
                active_environment(),
            )
        elif trial.outcome["phase"] == "construct" and is_refused_call(error):
            hint = "" if "abstract" in str(error) else _ARGUMENTS
            logging.getLogger().error("%s: %s%s", type(error).__name__, error, hint)
        else:
            hint = active_environment() if is_not_installed(error) else ""
            logging.getLogger().error("the benchmark failed\n%s%s", text, hint.lstrip("; "))
        trial.outcome["error"] = {
            "kind": "exception",
            "type": type(error).__name__,
            "message": _text(error),
            "traceback": text,
        }
        return 1


def is_refused_call(error: BaseException) -> bool:
    """Return True when the arguments did not fit, so that no line of the benchmark has run."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    is_ours = trace is not None and trace.tb_frame.f_code.co_filename == __file__
    return is_ours and isinstance(error, TypeError)


def is_not_installed(error: BaseException) -> bool:
    """Return True when an import failed because a whole package is absent."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or "." in error.name:
        return False
    from importlib.util import find_spec  # for an error only

    return find_spec(error.name) is None


def no_module(error: BaseException) -> str:
    """Return the message about a module of a benchmark that is nowhere."""
    return _NO_MODULE % error + active_environment()


def active_environment() -> str:
    """Return the end of a message: how to run in the environment in which the user is."""
    for variable, kind in (("VIRTUAL_ENV", "virtual"), ("CONDA_PREFIX", "conda")):
        prefix = os.environ.get(variable)
        if not prefix or os.path.realpath(prefix) == os.path.realpath(sys.prefix):
            continue
        if os.access(os.path.join(prefix, "bin", "python"), os.X_OK):
            text = "; you are in the %s environment %s: add --python=$%s/bin/python"
            return text % (kind, prefix, variable)
    return ""


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception whose own text cannot be had
        return "(no text)"


def log_to_files(order: Dict[str, Any]) -> None:
    """Make the root logger write to stderr and to the trial's `perfzero.log`, as PerfZero does."""
    level = logging.DEBUG if order.get("debug") else logging.INFO
    handlers: Any = [logging.StreamHandler()]
    try:
        path = os.path.join(order["output_dir"], "perfzero.log")
        handlers.append(logging.FileHandler(path, encoding="utf-8"))
    except OSError:
        pass
    logging.basicConfig(level=level, format=LOG_FORMAT, handlers=handlers)
