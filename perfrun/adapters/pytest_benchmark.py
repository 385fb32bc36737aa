"""pytest-benchmark suites: `perfrun.adapters.pytest_benchmark.<module>.<Class>.<test>`.

pytest collects the tests of a module that use the fixture `benchmark` and runs the chosen one, with
its fixtures, parameters and conftest files; the fixture itself is this module's, so that perfrun's
loop measures. Tests that stand in no class are in `Functions`. The plugin pytest-benchmark need not
be installed, and is left out where it is.
"""

import functools
import importlib.util
import inspect
import os
import sys

from perfrun.adapters.suites import install, with_parameters
from perfrun.worker.author import Benchmark, SetupError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

    from perfrun.adapters.suites import Run, Suite
    from perfrun.worker.measure.measurement import Measurement

__path__: "List[str]" = []  # modules of suites are found below this one, and not as files
# Without a terminal or a capture of its own: the trial's streams are files already.
_OPTIONS = (
    *("-p", "no:benchmark", "-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:faulthandler"),
    *("-p", "no:xdist", "--capture=no", "--override-ini=addopts="),
)


class _Hooks:
    """The hooks of pytest-benchmark, so that a conftest file may have them; nobody calls them."""

    pytest_benchmark_generate_machine_info = staticmethod(lambda config: None)
    pytest_benchmark_update_machine_info = staticmethod(lambda config, machine_info: None)
    pytest_benchmark_generate_commit_info = staticmethod(lambda config: None)
    pytest_benchmark_update_commit_info = staticmethod(lambda config, commit_info: None)
    pytest_benchmark_group_stats = staticmethod(lambda config, benchmarks, group_by: None)
    pytest_benchmark_scale_unit = staticmethod(
        lambda config, unit, benchmarks, best, worst, sort: None
    )
    pytest_benchmark_generate_json = staticmethod(
        lambda config, benchmarks, include_data, machine_info, commit_info: None
    )
    pytest_benchmark_update_json = staticmethod(lambda config, benchmarks, output_json: None)
    pytest_benchmark_compare_machine_info = staticmethod(
        lambda config, benchmarksession, machine_info, compared_benchmark: None
    )


class Stats(dict):  # type: ignore[type-arg]
    """The figures of a measurement, by the names that pytest-benchmark gives them."""

    def __init__(self, measured: "Measurement") -> None:
        super().__init__(
            min=measured.min_s,
            max=measured.max_s,
            mean=measured.mean_s,
            median=measured.median_s,
            rounds=measured.iterations,
            ops=1 / measured.mean_s if measured.mean_s else 0.0,
        )

    @property
    def stats(self) -> "Stats":
        """The same figures: pytest-benchmark has them one level deeper."""
        return self

    def __getattr__(self, name: str) -> float:
        try:
            return float(self[name])
        except KeyError:
            raise AttributeError("perfrun's stats have no %s" % name) from None


class Fixture:
    """The fixture `benchmark` of a test: calling it measures a function."""

    enabled, disabled = True, False

    def __init__(self, benchmark: Benchmark, method: str, request: "Any") -> None:
        self._benchmark, self._method = benchmark, method
        self.name = request.node.name
        self.fullname = request.node.nodeid
        marker = request.node.get_closest_marker("benchmark")
        self.group: Optional[str] = marker.kwargs.get("group") if marker else None
        self.extra_info: Dict[str, Any] = {}
        self.stats: Optional[Stats] = None
        self._reported: Dict[str, Any] = {}

    def __call__(self, function: "Callable[..., Any]", *args: "Any", **kwargs: "Any") -> "Any":
        """Measure a function and return its result."""
        step = functools.partial(function, *args, **kwargs) if args or kwargs else function
        self._measure(step)
        return step()

    def pedantic(
        self,
        target: "Callable[..., Any]",
        args: "Sequence[Any]" = (),
        kwargs: "Optional[Mapping[str, Any]]" = None,
        setup: "Optional[Callable[[], Any]]" = None,
        teardown: "Optional[Callable[..., Any]]" = None,
        rounds: int = 1,
        warmup_rounds: int = 0,
        iterations: int = 1,
    ) -> "Any":
        """Measure a function in exactly so many rounds of so many calls; return its result.

        The first call is made once more than in pytest-benchmark, since perfrun reports it apart.
        """
        if setup and iterations != 1:
            raise ValueError("Can't use more than 1 `iterations` with a `setup` function.")
        given = _Arguments(args, kwargs or {}, setup, teardown)
        results: List[Any] = [None]

        def step() -> None:
            results[0] = target(*given.args, **given.kwargs)

        self._measure(
            step,
            prepare=given.renew if setup or teardown else None,
            iterations=rounds,
            warmup=warmup_rounds,
            block_size=iterations,
        )
        given.end()
        return results[0]

    def weave(self, *_: "Any", **__: "Any") -> None:
        """Refuse: a function that others call cannot be a step of perfrun's loop."""
        raise SetupError("benchmark.weave is not there under perfrun; call benchmark(function)")

    patch = weave

    def _measure(self, step: "Callable[[], Any]", **options: "Any") -> None:
        if self.stats is not None:
            raise RuntimeError("the fixture benchmark can be used once in a test")
        self._reported = dict(self.extra_info)
        extras, metrics = _split(self._reported)
        if self.group:
            extras["group"] = self.group
        measured = self._benchmark.measure(
            step, name=self._method, extras=extras, metrics=metrics, **options
        )
        self.stats = Stats(measured)

    def finish(self) -> None:
        """Report what the test has added to `extra_info` after it had measured."""
        if self.stats is None:
            raise SetupError("%s has not called its fixture benchmark" % self.fullname)
        later = {k: v for k, v in self.extra_info.items() if self._reported.get(k) != v}
        if later:
            extras, metrics = _split(later)
            name = "%s_extra_info" % self._method
            self._benchmark.report_benchmark(name=name, extras=extras, metrics=metrics)


class _Arguments:
    """The arguments of a pedantic measurement, which a setup may make anew for each round."""

    def __init__(
        self,
        args: "Sequence[Any]",
        kwargs: "Mapping[str, Any]",
        setup: "Optional[Callable[[], Any]]",
        teardown: "Optional[Callable[..., Any]]",
    ) -> None:
        self.args, self.kwargs = args, kwargs
        self._setup, self._teardown = setup, teardown
        self._is_used = False

    def renew(self) -> None:
        self.end()
        if self._setup:
            made = self._setup()
            if made:
                self.args, self.kwargs = made
        self._is_used = True

    def end(self) -> None:
        """Tear down after a round."""
        if self._is_used and self._teardown:
            self._teardown(*self.args, **self.kwargs)
        self._is_used = False


def _split(info: "Mapping[str, Any]") -> "Tuple[Dict[str, Any], List[Dict[str, Any]]]":
    """Return the notes and the numbers of an `extra_info`."""
    numbers = {
        key: value
        for key, value in info.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    notes = {key: value for key, value in info.items() if key not in numbers}
    return notes, [{"name": str(key), "value": value} for key, value in numbers.items()]


class _Plugin:
    """What a suite expects of pytest-benchmark, besides the fixture."""

    def pytest_addhooks(self, pluginmanager: "Any") -> None:
        pluginmanager.add_hookspecs(_Hooks)

    def pytest_configure(self, config: "Any") -> None:
        config.addinivalue_line("markers", "benchmark: options of pytest-benchmark")


class _Collector(_Plugin):
    """Keeps the tests that use the fixture."""

    def __init__(self) -> None:
        self.items: List[Any] = []
        self.errors: List[str] = []

    def pytest_collection_modifyitems(self, items: "List[Any]") -> None:
        self.items = [item for item in items if "benchmark" in getattr(item, "fixturenames", ())]

    def pytest_collectreport(self, report: "Any") -> None:
        if report.failed:
            self.errors.append(str(report.longrepr).strip().splitlines()[-1])


class _Runner(_Plugin):
    """Gives a test its fixture, and keeps what it raises."""

    def __init__(self, benchmark: Benchmark, method: str) -> None:
        self._benchmark, self._method = benchmark, method
        self.error: Optional[BaseException] = None
        self.skipped = ""
        self.fixtures: List[Fixture] = []

    def pytest_runtest_makereport(self, item: "Any", call: "Any") -> None:
        error = call.excinfo.value if call.excinfo else None
        if type(error).__name__ == "Skipped":
            self.skipped = str(error) or "without a reason"
        elif error is not None and self.error is None:
            self.error = error


def _adapt(module: str) -> "Tuple[Optional[str], Suite]":
    """Return the file and the tests of a module of a suite."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        raise ModuleNotFoundError("No module named %r" % module, name=module)
    file = spec.origin
    if not file or not os.path.isfile(file) or os.path.basename(file) == "__init__.py":
        return None, {}
    collector = _Collector()
    _main([file, "--collect-only"], collector)
    if collector.errors:
        raise ImportError("%s: pytest cannot collect it: %s" % (file, collector.errors[0]))
    found: Dict[str, Dict[str, Tuple[Run, str]]] = {}
    for item in collector.items:
        holder = item.cls.__name__ if item.cls else "Functions"
        methods = found.setdefault(holder, {})
        original = getattr(item, "originalname", None) or item.name.partition("[")[0]
        values = [item.callspec.id] if hasattr(item, "callspec") else []
        method = with_parameters(original, values, methods) if values else original
        node = file + "::" + item.nodeid.partition("::")[2]
        doc = (inspect.getdoc(item.function) or "").partition("\n")[0]
        methods[method] = (
            functools.partial(_run, node, method),
            "; ".join(filter(None, [doc, *values])),
        )
    return file, found


def _run(node: str, method: str, benchmark: Benchmark) -> None:
    """Let pytest run one test; raise what it raised."""
    runner = _Runner(benchmark, method)

    def fixture(request: "Any") -> Fixture:
        made = Fixture(benchmark, method, request)
        runner.fixtures.append(made)
        return made

    status = _main([node], runner, fixture)
    if runner.error is not None:
        raise runner.error
    if runner.skipped:
        raise SetupError("the suite skips %s here: %s" % (method, runner.skipped))
    if not runner.fixtures:
        raise SetupError("pytest ended with status %d and has not run %s" % (status, node))
    for one in runner.fixtures:
        one.finish()


def _pytest() -> "Any":
    try:
        return importlib.import_module("pytest")
    except ImportError:
        raise SetupError("the suite needs pytest; install it where the benchmark runs") from None


def _main(
    words: "Sequence[str]", plugin: _Plugin, fixture: "Optional[Callable[..., Any]]" = None
) -> int:
    """Run pytest with the plugin and the fixture `benchmark`; return its exit status."""
    pytest = _pytest()
    made = fixture or (lambda: None)
    holder = type(sys)("perfrun_benchmark_fixture")
    holder.benchmark = pytest.fixture(name="benchmark")(made)  # type: ignore[attr-defined]
    own = os.environ.pop("PYTEST_ADDOPTS", None)
    try:
        return int(pytest.main([*words, *_OPTIONS], plugins=[plugin, holder]))
    finally:
        if own is not None:
            os.environ["PYTEST_ADDOPTS"] = own


install(__name__, _adapt)
