"""Questions to the environment under test, each answered by a worker that ends after it.

The harness never imports benchmark code or a framework: a process does so that can crash or hang
without harm.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from perfrun.dataclass import dataclass
from perfrun.errors import UsageError
from perfrun.launchers.launcher import Launcher
from perfrun.options.parsers import shown
from perfrun.options.plan import MethodSelector
from perfrun.run.digest import sha256_of
from perfrun.run.worker_words import description, discovered, flags_error, text_values, uploads
from perfrun.schema import Wrong
from perfrun.shown import say
from perfrun.summary.document import Environment
from perfrun.untrusted import Folder, Refused, read_file, remove_tree

OLDEST_PYTHON = (3, 8)
MOST_BYTES = 256 * 1024 * 1024  # of an answer: the methods of a large package
ANSWER, LOG = "answer", "log"  # in the folder of a service
_SOURCE_BYTES = 8 * 1024 * 1024
_LOG_BYTES = 64 * 1024  # of a log's end, of which the last line is shown
TIMEOUT_S = 600.0  # importing a framework for the first time from a slow disk takes minutes


@dataclass(frozen=True, kw_only=True)
class Paths:
    """Folders that a worker puts on its import path."""

    first: tuple[str, ...] = ()  # checkouts: before everything installed
    last: tuple[str, ...] = ()  # the folder of the shipped benchmarks: after everything


@dataclass(frozen=True, kw_only=True)
class Method:
    """One method to run. `text` is its name in the summary."""

    text: str
    module: str
    class_name: str
    name: str


class FlagsRefused(UsageError):  # noqa: N818 - it is a finding about a benchmark
    """The benchmark does not know a flag after `--`, or its value: it will not on any machine."""


class Service:
    """A worker that answers one order. Use it as a context manager; `answer` waits for it."""

    def __init__(
        self,
        launcher: Launcher,
        order: Mapping[str, Any],
        paths: Paths,
        *,
        timeout_s: float | None = None,
    ) -> None:
        self.launcher = launcher
        self._timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
        self._folder = _new_folder()
        self._code: int | None = None
        whole = {
            **order,
            "first_paths": paths.first,
            "last_paths": paths.last,
            "answer": str(self._folder / ANSWER),
        }
        try:
            self._serving = launcher.serve(whole, self._folder, self._folder / LOG)
        except UsageError:  # a folder that no container is shown
            remove_tree(self._folder)
            raise
        except OSError as error:
            remove_tree(self._folder)
            why = error.strerror or error
            raise UsageError(f"{launcher.name}: cannot be started: {why}") from None

    def __enter__(self) -> Service:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._serving.end()
        remove_tree(self._folder)

    def answer(self, most_bytes: int = MOST_BYTES) -> str:
        """Wait for the worker and return its answer; an empty text if it died or hung."""
        self._code = self._serving.wait(self._timeout_s)
        if self._code is None:
            self._serving.end()
        return _text(self._folder, ANSWER, most_bytes)

    def end(self) -> str:
        """Return the reason for a missing answer: how the worker ended, and its last line."""
        text = ""
        with contextlib.suppress(OSError, Refused), Folder(self._folder) as folder:
            text = folder.tail(LOG, _LOG_BYTES)[0].decode("utf-8", "replace")
        lines = text.strip().splitlines()
        how = f"exit status {self._code}"
        if self._code is None:
            how = f"no answer in {self._timeout_s:g} s"
        elif self._code < 0:
            how = f"signal {-self._code}"
        return f"{how}: {lines[-1]}" if lines else how


def _text(folder: Path, name: str, most_bytes: int) -> str:
    """Return the text of a file that a worker wrote; an empty one where there is none."""
    try:
        with Folder(folder) as place:
            return place.text(name, most_bytes) or ""
    except OSError:
        return ""


def _new_folder() -> Path:
    """Make a folder that only this user can enter, as `tempfile.mkdtemp` does."""
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    parent = Path(next(filter(None, named), "/tmp")).absolute()  # noqa: S108 - the name is random
    folder = parent / f"perfrun-{os.urandom(8).hex()}"
    try:
        folder.mkdir(mode=0o700)
    except OSError:
        from tempfile import mkdtemp  # its import takes 4 ms; it knows more places

        return Path(mkdtemp(prefix="perfrun-"))
    return folder


def describe(service: Service) -> Environment:
    """Return the contents of the environment, as a service with the order `describe` answers."""
    text = service.answer()
    if not text:
        raise UsageError(
            f"{service.launcher.name}: does not work as an interpreter ({service.end()}); "
            "name a Python 3.8 or newer"
        )
    try:
        answer = description(text)
    except (Refused, Wrong) as error:
        raise UsageError(
            f"{service.launcher.name}: its description of itself cannot be used: it {error}"
        ) from None
    version = answer["python"]["version"]
    if tuple(map(int, version.split("."))) < OLDEST_PYTHON:
        raise UsageError(f"{service.launcher.name}: is Python {version}; 3.8 or newer is needed")
    answer.pop("image_info", None)
    commits = answer["direct_url_commits"]
    lines = [
        f"{name}=={version} {commits.get(name, '')}"
        for name, version in sorted(answer["distributions"].items())
    ]
    digest = sha256_of("\n".join(lines).encode())
    return Environment(**answer, distributions_sha256=digest)


def setup_info(service: Service) -> Mapping[str, Any]:
    """Return what the builder of the image recorded; {} outside perfrun's images.

    The service has the order `describe`.
    """
    try:
        info: Mapping[str, Any] = description(service.answer())["image_info"]
    except (Refused, Wrong):
        return {}
    return info


def image_harness_info(setup: Mapping[str, Any]) -> dict[str, str]:
    """Return url, branch and hash of the checkout that the image was built from; {} without one."""
    info = setup.get("harness_info")
    return text_values(info)


def check_flags(
    launcher: Launcher,
    modules: Sequence[str],
    flags: Sequence[str],
    paths: Paths,
    others: Sequence[Sequence[str]] = (),
) -> None:
    """Let a worker for each module parse the flags after `--`, and `others` in their place.

    Raises FlagsRefused for a flag that a benchmark does not know, and UsageError when nothing can
    parse them.
    """
    for module in dict.fromkeys(modules):
        order = {
            "action": "check_flags",
            "modules": [module],
            "benchmark_flags": list(flags),
            "others": list(map(list, others)),
        }
        with Service(launcher, order, paths) as service:
            text = service.answer()
            if not text:
                raise UsageError(f"flags after --: {module} cannot be imported: {service.end()}")
        try:
            error, is_missing = flags_error(text)
        except (Refused, Wrong) as wrong:
            error, is_missing = f"the worker's answer cannot be used: {wrong}", True
        if error and is_missing:
            raise UsageError(f"flags after --: {module}: {error}")
        if error:
            raise FlagsRefused(f"flags after --: {module}: {error}")


def expand(
    launcher: Launcher, selectors: Sequence[MethodSelector], paths: Paths, allow_empty: bool = False
) -> tuple[Method, ...]:
    """Return the methods that the selectors name, in their order, with filters expanded.

    Raises UsageError when the class of a filter cannot be loaded or, unless `allow_empty`, a
    filter matches no method.
    """
    filters = [s for s in selectors if s.pattern is not None]
    found = {}
    if filters:
        targets = [_target(s) for s in filters]
        answers = discover(launcher, targets, paths)
        found = {s.text: answer for s, answer in zip(filters, answers, strict=True)}
    methods: list[Method] = []
    searched: dict[str, int] = {}  # the methods found for each file or folder of the user's
    for selector in selectors:
        if selector.pattern is None:
            assert selector.method is not None
            methods.append(
                Method(
                    text=selector.text,
                    module=selector.module,
                    class_name=selector.class_name,
                    name=selector.method,
                )
            )
            continue
        answer = found[selector.text]
        if answer.get("error"):
            raise UsageError(f"{selector.given}: {answer['error']}")
        if selector.source:
            known = searched.get(selector.source, 0)
            searched[selector.source] = known + len(answer["methods"])
        elif not answer["methods"] and not allow_empty:
            raise UsageError(f"{selector.given} matches no method")
        for item in answer["methods"]:
            name, of = item["method"], selector.class_name or item["class"]
            # A name that contains a dot can only be written after a colon.
            text = f"{selector.module}.{of}{':' if '.' in name else '.'}{name}"
            methods.append(Method(text=text, module=selector.module, class_name=of, name=name))
    for source, count in searched.items():
        if not count and not allow_empty:
            raise UsageError(
                f"{shown(source)}: has no benchmark; write a class derived from "
                "perfrun.Benchmark, with methods whose names do not begin with _"
            )
    return tuple(methods)


def check_names(
    launcher: Launcher,
    selectors: Sequence[MethodSelector],
    paths: Paths,
    timeout_s: float | None = None,
) -> None:
    """Find wrong names of methods before any trial. Raises UsageError, after a line for each."""
    *others, last = wrong_names(launcher, selectors, paths, timeout_s) or ("",)
    for text in others:
        say(text)
    if last:
        raise UsageError(last)


def wrong_names(
    launcher: Launcher,
    selectors: Sequence[MethodSelector],
    paths: Paths,
    timeout_s: float | None = None,
) -> tuple[str, ...]:
    """Return a line for each method that is named and certainly absent.

    The source of most says that they are there. The rest is imported once, which may take as long
    as a trial, and no longer than that (`timeout_s`). An import that fails, or does not come to its
    end, is the trial's own matter.
    """
    named = [s for s in dict.fromkeys(selectors) if s.method is not None]
    unsure = [s for s in named if not _is_written(s, (*paths.first, *paths.last))]
    if not unsure:
        return ()
    targets = [{**_target(s), "method": s.method} for s in unsure]
    answers = discover(launcher, targets, paths, min(timeout_s or TIMEOUT_S, TIMEOUT_S))
    return tuple(
        f"{s.given}: {answer['error']}{_file_here(s)}"
        for s, answer in zip(unsure, answers, strict=True)
        if answer.get("is_missing") and answer.get("error")
    )


def _file_here(selector: MethodSelector) -> str:
    """Return the end of a message: how to run the file here that has the module's name."""
    path = Path(*selector.module.split(".")).with_suffix(".py")
    if selector.source or not path.is_file():
        return ""
    inside = f"{selector.class_name}.{selector.method}"
    return f"; for the file here: `perfrun run {path}::{inside}`"


def _is_written(selector: MethodSelector, roots: Sequence[str]) -> bool:
    """Return True when the source of a method's class surely defines it."""
    assert selector.method is not None
    for root in roots:
        place = Path(root, *selector.module.split("."))
        path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        try:
            text = read_file(path, _SOURCE_BYTES)
        except OSError:
            continue
        except Refused:  # a link
            return False
        heads = [f"class {selector.class_name}{sign}".encode() for sign in "(:"]
        if f"def {selector.method}(".encode() in text and any(head in text for head in heads):
            return True
        from perfrun.worker.modules import could_define  # 5 ms that most runs do not pay

        return could_define(root, selector.module, selector.class_name, selector.method)
    return False


def _target(selector: MethodSelector) -> dict[str, Any]:
    """Return the question about a filter, or about all of a module."""
    if not selector.class_name:
        return {"module": selector.module}
    whole = {"class_name": selector.class_name, "pattern": selector.pattern}
    return {"module": selector.module, **whole}


def discover(
    launcher: Launcher,
    targets: Sequence[Mapping[str, Any]],
    paths: Paths,
    timeout_s: float | None = None,
) -> list[dict[str, Any]]:
    """Return an answer for each target (class or module): its methods, or an error.

    When a module kills the worker, only its own answer is lost: a new worker takes the next one.
    """
    answers: list[dict[str, Any]] = []
    while len(answers) < len(targets):
        order = {"action": "discover", "targets": list(targets[len(answers) :])}
        with Service(launcher, order, paths, timeout_s=timeout_s) as service:
            lines = [line for line in service.answer().splitlines() if line]
            # No more lines than questions: what else stands there is not the worker's.
            answers += map(discovered, lines, targets[len(answers) :])
            if len(answers) < len(targets):
                target = targets[len(answers)]
                answers.append({"target": target, "error": f"import ended with {service.end()}"})
    return answers


def upload(
    launcher: Launcher, functions: Sequence[str], summary: Path, paths: Paths
) -> list[dict[str, Any]]:
    """Call the upload functions with the summary; return the result of each."""
    order = {"action": "upload", "functions": list(functions), "summary": str(summary)}
    try:
        with Service(launcher, order, paths) as service:
            text = service.answer()
            failure = None if text else service.end()
    except UsageError as error:  # the interpreter was removed since the run began
        text, failure = "", str(error)
    if failure:
        return [{"method": name, "error": failure} for name in functions]
    try:
        return uploads(text, functions)
    except (Refused, Wrong) as error:
        why = f"the worker's answer cannot be used: {error}"
        return [{"method": name, "error": why} for name in functions]
