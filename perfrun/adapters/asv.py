"""asv suites: `perfrun.adapters.asv.<module>.<Class>.<method>`.

The functions of a module that stand in no class are in `Functions`. A benchmark with parameters is
one method for each combination, `time_sort__1000_list`. asv's contract is kept: setup and teardown
of module, class and function around each sample, `setup_cache` in a process of its own, `params`,
`number`, `timeout`, `unit`, the garbage collector off. How often and how long is perfrun's matter,
so `repeat`, `rounds`, `sample_time`, `warmup_time` and `processes` have no effect.
"""

import contextlib
import copy
import importlib
import inspect
import itertools
import os
import pickle
import re
import signal
import subprocess
import sys

from perfrun.adapters.suites import install, with_parameters
from perfrun.worker.author import Benchmark, SetupError
from perfrun.worker.measure.statistics import median

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

    from perfrun.adapters.suites import Run, Suite

__path__: "List[str]" = []  # modules of suites are found below this one, and not as files
_KINDS = ("timeraw", "time", "peakmem", "mem", "track")
# As asv finds them: time_sort, or TimeSort as a function of a module.
_NAME = re.compile(
    r"(%s)_.+|(%s)[A-Z_].+" % ("|".join(_KINDS), "|".join(k.capitalize() for k in _KINDS))
)
_RAW_SAMPLES = 10  # fresh interpreters for a benchmark that times code in one


class _Case:
    """One benchmark of a suite with one combination of its parameters."""

    def __init__(
        self,
        kind: str,
        name: str,
        theirs: "Tuple[ModuleType, Any, str]",
        parameters: "Tuple[Any, ...]",
    ) -> None:
        self._kind, self._name = kind, name
        self._module, self._class, self._function_name = theirs
        self._parameters = parameters
        self._is_set_up = self._is_used = False

    def run(self, benchmark: Benchmark) -> None:
        """Measure it as its kind asks for. Raises what the suite raises."""
        self._find()
        cache = self._attribute("setup_cache")
        self._arguments = self._parameters
        if cache is not None:
            self._arguments = (_in_a_process(cache, benchmark.output_dir), *self._parameters)
        with _deadline(self._attribute("timeout")):
            self._set_up()
            try:
                getattr(self, "_" + self._kind)(benchmark)
            finally:
                self._tear_down()

    def _find(self) -> None:
        """Look the function up, and where asv looks for its attributes."""
        if self._class is None:
            self._function = getattr(self._module, self._function_name)
            self._sources: List[Any] = [self._function, self._module]
        else:
            instance = self._class()
            self._function = getattr(instance, self._function_name)
            self._sources = [self._function, instance, self._module]

    def _attribute(self, name: str) -> "Any":
        """Return the nearest attribute of that name; None without one."""
        found = (getattr(one, name) for one in self._sources if hasattr(one, name))
        return next(found, None)

    def _hooks(self, name: str) -> "List[Any]":
        return [getattr(one, name) for one in self._sources if hasattr(one, name)]

    def _set_up(self) -> None:
        try:
            for hook in reversed(self._hooks("setup")):  # the module's first
                hook(*self._arguments)
        except NotImplementedError as error:  # asv's way to skip a combination
            raise SetupError(
                "the suite skips %s here: %s" % (self._name, str(error) or "NotImplementedError")
            ) from error
        self._is_set_up = True

    def _tear_down(self) -> None:
        if self._is_set_up:
            self._is_set_up = False
            for hook in self._hooks("teardown"):
                hook(*self._arguments)

    def _anew(self) -> None:
        """Tear down and set up between two samples; the first one finds it set up."""
        if self._is_used:
            self._tear_down()
            self._set_up()
        self._is_used = True

    def _time(self, benchmark: Benchmark) -> None:
        function, arguments = self._function, self._arguments
        has_hooks = bool(self._hooks("setup") or self._hooks("teardown"))
        self._is_used = False
        benchmark.measure(
            (lambda: function(*arguments)) if arguments else function,
            name=self._name,
            block_size=self._attribute("number") or None,
            prepare=self._anew if has_hooks else None,
            gc="off",  # as `timeit` has it, by which asv times
        )

    def _timeraw(self, benchmark: Benchmark) -> None:
        """Time code in fresh interpreters: what is first done, as an import, is what counts."""
        code = self._function(*self._arguments)
        statement, setup = code if isinstance(code, tuple) else (code, "pass")
        number = self._attribute("number") or 1
        program = "import sys, timeit; print(timeit.timeit(sys.argv[1], sys.argv[2], number=%d))"
        words = [sys.executable, "-c", program % number]
        words += [inspect.cleandoc(statement), inspect.cleandoc(setup)]
        times = [
            float(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout) / number
            for _ in range(_RAW_SAMPLES)
        ]
        benchmark.report_benchmark(name=self._name, wall_time=median(times), iters=len(times))

    def _peakmem(self, benchmark: Benchmark) -> None:
        self._function(*self._arguments)
        peak = _own_peak_bytes()
        self._report(benchmark, "peak_memory_bytes", float(peak))

    def _mem(self, benchmark: Benchmark) -> None:
        """Report the size of the returned object, as asv does: what a second one would add."""
        try:
            size = importlib.import_module("pympler.asizeof").asizeof
        except ImportError:
            raise SetupError(
                "asv measures objects with pympler; install it where the benchmark runs"
            ) from None
        found = self._function(*self._arguments)
        added = size([found, copy.copy(found)]) - size([found, found])
        self._report(benchmark, "memory_bytes", float(added))

    def _track(self, benchmark: Benchmark) -> None:
        self._report(benchmark, "tracked", self._function(*self._arguments))

    def _report(self, benchmark: Benchmark, name: str, value: "Any") -> None:
        unit = self._attribute("unit")
        benchmark.report_benchmark(
            name=self._name,
            metrics=[{"name": name, "value": value}],
            extras={"unit": str(unit)} if unit else None,
        )


def _own_peak_bytes() -> int:
    """Return the high-water mark of this process since it began."""
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _in_a_process(make: "Callable[[], Any]", folder: str) -> "Any":
    """Return what a function makes in a forked process, so that its memory is not this one's."""
    path = os.path.join(folder, "setup_cache.pickle")
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with open(path, "wb") as file:
                pickle.dump(make(), file, protocol=4)
            status = 0
        except BaseException:  # noqa: BLE001 - shown, and the child ends in any case
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("setup_cache failed; the error is in the trial's stderr")
    with open(path, "rb") as file:
        found = pickle.load(file)
    os.unlink(path)
    return found


@contextlib.contextmanager
def _deadline(seconds: "Optional[float]") -> "Iterator[None]":
    """Raise TimeoutError in the benchmark when asv's `timeout` is over; None is no limit."""
    if not seconds:
        yield
        return

    def late(*_: object) -> None:
        raise TimeoutError("the suite's timeout of %g s is over" % seconds)

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _adapt(module: str) -> "Tuple[Optional[str], Suite]":
    """Return the file and the benchmarks of a module of a suite."""
    theirs = importlib.import_module(module)
    found: Dict[str, Dict[str, Tuple[Run, str]]] = {}
    functions: Dict[str, Tuple[Run, str]] = {}
    for name, value in vars(theirs).items():
        if name.startswith("_"):
            continue
        if inspect.isclass(value) and not inspect.isabstract(value):
            methods: Dict[str, Tuple[Run, str]] = {}
            for attribute in sorted(dir(value)):
                if callable(getattr(value, attribute, None)):
                    _add(methods, theirs, value, attribute)
            if methods:
                found[name] = methods
        elif inspect.isfunction(value):
            _add(functions, theirs, None, name)
    if functions:
        found["Functions"] = functions
    return getattr(theirs, "__file__", None), found


def _add(
    methods: "Dict[str, Tuple[Run, str]]", theirs: "ModuleType", holder: "Any", name: str
) -> None:
    match = _NAME.fullmatch(name)
    if not match:
        return
    function = getattr(theirs if holder is None else holder, name)
    sources = [function, *([holder] if holder is not None else []), theirs]
    if any(getattr(one, "skip_benchmark", False) for one in sources[:-1]):
        return
    kind = (match[1] or match[2]).lower()
    names, combinations = _combinations(sources)
    doc = (inspect.getdoc(function) or "").strip().partition("\n")[0]
    for values in combinations:
        method = with_parameters(name, values, methods) if values else name
        told = ", ".join("%s=%r" % pair for pair in zip(names, values))
        case = _Case(kind, method, (theirs, holder, name), values)
        methods[method] = (case.run, "; ".join(filter(None, (doc, told))))


def _combinations(sources: "Sequence[Any]") -> "Tuple[List[str], List[Tuple[Any, ...]]]":
    """Return the names of the parameters and all combinations; one empty one without any."""
    params: Any = next((one.params for one in sources if hasattr(one, "params")), [])
    names: Any = next((one.param_names for one in sources if hasattr(one, "param_names")), [])
    if isinstance(params, dict):
        params, names = list(params.values()), list(params)
    lists = [list(one) if _is_list(one) else None for one in params]
    # A flat list is that of the only parameter.
    axes: List[List[Any]] = (
        [list(params)] if params and None in lists else [one for one in lists if one is not None]
    )
    names = [str(one) for one in names] + ["param%d" % at for at in range(len(names) + 1, 99)]
    return names, list(itertools.product(*axes))


def _is_list(value: "Any") -> bool:
    return isinstance(value, (list, tuple))


install(__name__, _adapt)
