"""The plan of a run, and the parsers of PerfZero's mini-languages that fill it.

The syntax is PerfZero's (`--git_repos url;branch;hash,...`, `Class.filter:REGEX`, ...). Errors that
show without touching disk or network are raised here, before anything is cloned or run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from perfrun.dataclass import dataclass, field
from perfrun.errors import UsageError
from perfrun.options.containment import Containment
from perfrun.options.parsers import ProfilerWindow, Repetition, may_be_hash, parse_regex, shown
from perfrun.text import redact

_GIT_SCHEMES = ("http", "https", "ssh", "git", "file")
_DATA_SCHEMES = ("http", "https", "file")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_SCP_LIKE = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+):(?!//)\S.*", re.DOTALL)
# The rules of git check-ref-format: a name that git would refuse is refused before git runs.
_BAD_REF = re.compile(r"^[-/.]|\.\.|//|@\{|[\x00-\x20\x7f~^:?*\[\\]|[/.]$|\.lock$|/\.|^@$")


@dataclass(frozen=True, kw_only=True)
class RepoSpec:
    """One item of `--git_repos`."""

    url: str
    directory: str  # name of the checkout under <workspace>/site-packages
    branch: str | None = None  # branch, tag or full ref; None = the remote's default branch
    git_hash: str | None = None  # 4 to 64 hex digits, lower case

    @property
    def shown_url(self) -> str:
        """The url as it may be recorded and printed."""
        return redact(self.url)


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """One item of `--data_downloads` or `--gcs_downloads`."""

    url: str
    relative_path: str  # under root_data_dir
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class MethodSelector:
    """One item of `--benchmark_methods`: one method, or all of a class or module that match."""

    text: str  # as given; the `name` in the summary
    module: str
    class_name: str  # empty: all classes of the module
    method: str | None = None
    pattern: str | None = None  # regular expression of `Class.filter:REGEX`
    source: str = ""  # the word of the command line that named a file or folder

    @property
    def given(self) -> str:
        """What the user wrote, for messages."""
        return shown(self.source) if self.source else f"--benchmark_methods: {self.text!r}"


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """All that one call of `perfrun` is asked to do, as `options.command_line` has read it."""

    selectors: tuple[MethodSelector, ...]
    num_trials: int = 1
    repetition: Repetition = field(default_factory=Repetition)
    repos: tuple[RepoSpec, ...] = ()
    python_path: tuple[str, ...] = ()
    use_cached_site_packages: bool = False
    workspace: Path = Path("workspace")
    root_data_dir: str = "/data"
    data: tuple[DataSpec, ...] = ()
    execution_id: str | None = None
    execution_label: str | None = None
    ml_framework_build_label: str | None = None
    platform_name: str | None = None
    system_name: str | None = None
    constructor_args: Mapping[str, Any] = field(default_factory=dict)
    class_type: str | None = None
    profiler_windows: tuple[ProfilerWindow, ...] = ()
    profiles: tuple[str, ...] = ()  # kinds; one more trial of each method for each
    profile_scope: str = "timed"  # what a profile trial records: timed, method, process
    upload_methods: tuple[str, ...] = ()
    debug: bool = False
    env: tuple[tuple[str, str], ...] = ()  # of the workers, besides the inherited variables
    python: str = ""  # absolute path of the interpreter under test
    allocator: str = "default"  # of the trials: what provides malloc, and how it is set up
    container: Containment | None = None  # of the trials; then `python` is not used
    timeout_s: float | None = None
    output_format: str = "table"
    quiet: bool = False
    verbose: bool = False
    with_cost: bool = False  # of `perfrun list`
    metrics: re.Pattern[str] | None = None  # of the table; None for the most important ones
    print_perfzero_summary: bool = False  # the three documents at the end of a run
    fail_on_bounds: bool = False
    allow_empty: bool = False
    resume: bool = False
    baseline: str | None = None  # that the results are compared with when the run has ended
    store: str | None = None  # index to which results are added, with its password
    benchmark_flags: tuple[str, ...] = ()  # what follows `--`
    names: tuple[str, ...] = ()  # what `perfrun list` lists; kinds of run for `perfrun doctor`
    flags: Mapping[str, Any] = field(default_factory=dict)  # for benchmark_info.flags
    argv: tuple[str, ...] = ()  # as typed, secrets removed

    @property
    def site_packages(self) -> Path:
        """The folder of the checkouts."""
        return self.workspace / "site-packages"

    @property
    def output(self) -> Path:
        """The folder that holds a folder for each trial."""
        return self.workspace / "output"


def refuse_baseline(plan: RunPlan, command: str) -> None:
    """Raise UsageError for a command that compares by itself, or not at all."""
    if plan.baseline:
        raise UsageError(f"{command}: takes no --baseline, which is a flag of a run")


def split_items(text: str | None) -> list[str]:
    """Split a comma list; empty text and empty items mean nothing."""
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def parse_repos(text: str | None, flag: str = "--git_repos") -> tuple[RepoSpec, ...]:
    """Parse `url[;branch[;hash]],...`."""
    repos = tuple(_parse_repo(item, flag) for item in split_items(text))
    seen: dict[str, RepoSpec] = {}
    for repo in repos:
        if repo.directory in seen:
            raise UsageError(
                f"{flag}: {repo.shown_url} and {seen[repo.directory].shown_url} would both be "
                f"checked out as site-packages/{repo.directory}; give one of them another name"
            )
        seen[repo.directory] = repo
    return repos


def _parse_repo(item: str, flag: str) -> RepoSpec:
    fields = [part.strip() for part in item.split(";")]
    public = redact(item)
    if len(fields) > 3:
        raise UsageError(f"{flag}: {public!r} has more than three fields; write url;branch;hash")
    url, branch, git_hash = (*fields, "", "")[:3]
    _check_git_url(url, flag)
    if branch and _BAD_REF.search(branch):
        raise UsageError(f"{flag}: {branch!r} in {public!r} is not a name of a branch or tag")
    if git_hash and not may_be_hash(git_hash):
        raise UsageError(
            f"{flag}: {git_hash!r} in {public!r} is not a commit hash (4 to 64 hex digits); "
            "a branch or tag goes into the second field"
        )
    return RepoSpec(
        url=url,
        directory=_checkout_name(url, flag),
        branch=branch or None,
        git_hash=git_hash.lower() or None,
    )


def _check_git_url(url: str, flag: str) -> None:
    """Refuse what git would take for an option or a command: `-x`, `ext::`, ssh options."""
    public = redact(url)
    if url.startswith("-") or "::" in url.split("/", 1)[0] or any(ord(c) < 32 for c in url):
        raise UsageError(f"{flag}: {public!r} is not a url that perfrun gives to git")
    if "://" in url:
        parts = _split_url(url, flag)
        if parts.scheme.lower() not in _GIT_SCHEMES:
            raise UsageError(
                f"{flag}: {public!r}: scheme {parts.scheme!r} is not one of "
                + ", ".join(_GIT_SCHEMES)
            )
        if parts.netloc.rpartition("@")[2].startswith("-") or parts.netloc.startswith("-"):
            raise UsageError(f"{flag}: {public!r}: a host cannot begin with '-'")
        if not parts.path.strip("/"):
            raise UsageError(f"{flag}: {public!r} names a host but no repository on it")
        return
    if Path(url).is_absolute():
        return
    scp = _SCP_LIKE.fullmatch(url)
    if not scp or scp["host"].startswith("-"):
        raise UsageError(
            f"{flag}: {public!r} is not a git url; write https://..., ssh://..., git@host:path, "
            "file:///... or an absolute path"
        )


def _split_url(url: str, flag: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{flag}: {redact(url)!r} is not a url: {error}") from None


def _checkout_name(url: str, flag: str) -> str:
    """Return the last segment of the url less its last extension, as PerfZero does."""
    # A query may hold a token, which must not become the name of a folder.
    path = _split_url(url, flag).path if re.match(r"https?://", url, re.IGNORECASE) else url
    name = Path(re.split(r"[/:]", path.rstrip("/"))[-1] or ".").stem
    if not name or name.startswith((".", "-")) or "\\" in name:
        raise UsageError(f"{flag}: {redact(url)!r} gives no usable name for its checkout")
    return name


def parse_data(text: str | None, flag: str) -> tuple[DataSpec, ...]:
    """Parse `url[;relative_path][;sha256=HEX],...`."""
    return tuple(_parse_data_item(item, flag) for item in split_items(text))


def _parse_data_item(item: str, flag: str) -> DataSpec:
    url, *rest = [part.strip() for part in item.split(";")]
    public = redact(item)
    sha256, relative = None, ""
    for part in rest:
        if part.startswith("sha256="):
            sha256 = part.removeprefix("sha256=").lower()
            if not _SHA256.fullmatch(sha256):
                raise UsageError(f"{flag}: {public!r}: sha256 must be 64 hex digits")
        elif relative:
            raise UsageError(f"{flag}: {public!r} names two paths; write url;path;sha256=HEX")
        else:
            relative = part
    parts = _split_url(url, flag)
    if parts.scheme in ("gs", "gcs"):
        raise UsageError(
            f"{flag}: {public!r}: perfrun has no Google Cloud client; use http(s):// or file://"
        )
    if parts.scheme not in _DATA_SCHEMES or not parts.path:
        raise UsageError(f"{flag}: {public!r} must be a http://, https:// or file:// url")
    relative = relative or parts.path.rstrip("/*").rpartition("/")[2]
    path = Path(relative)
    if not relative or path.is_absolute() or ".." in path.parts or relative == ".":
        raise UsageError(f"{flag}: {public!r}: {relative!r} is not a path inside --root_data_dir")
    return DataSpec(url=url, relative_path=relative, sha256=sha256)


def parse_selectors(values: list[str]) -> tuple[MethodSelector, ...]:
    """Parse all `--benchmark_methods`, each of which may be a comma list."""
    return tuple(parse_selector(item) for value in values for item in split_items(value))


def parse_selector(text: str) -> MethodSelector:
    """Parse `module.Class.method`, `module.Class:method` or `module.Class.filter:REGEX`."""
    method: str | None
    pattern: str | None = None
    if "filter:" in text:
        head, pattern = text.split("filter:", 1)
        class_path, method = head[:-1], None
        parse_regex(pattern, f"--benchmark_methods: {shown(text)!r}")
    elif ":" in text:
        class_path, _, method = text.rpartition(":")
    else:
        class_path, _, method = text.rpartition(".")
    module, _, class_name = class_path.rpartition(".")
    names = [*module.split("."), class_name]
    if not all(name.isidentifier() for name in names) or method == "":
        is_file = "/" in text or ".py" in text
        hint = "; a file is named as in `perfrun run FILE.py::Class.method`" if is_file else ""
        raise UsageError(
            f"--benchmark_methods: {text!r} is not module.Class.method, module.Class:method or "
            f"module.Class.filter:REGEX{hint}"
        )
    return MethodSelector(
        text=text, module=module, class_name=class_name, method=method, pattern=pattern
    )


def parse_constructor_args(text: str | None) -> dict[str, Any]:
    """Parse the JSON object of `--perfzero_constructor_args`."""
    if not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--perfzero_constructor_args: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError('--perfzero_constructor_args: must be a JSON object, as {"name": 1}')
    return value


def parse_upload_methods(text: str | None) -> tuple[str, ...]:
    """Parse the comma list of `importable.module.function`."""
    methods = tuple(split_items(text))
    for method in methods:
        if not all(part.isidentifier() for part in method.split(".")) or "." not in method:
            raise UsageError(f"--result_upload_methods: {method!r} is not module.function")
    return methods


def parse_python_path(text: str | None) -> tuple[str, ...]:
    """Parse the comma list of `--python_path`: names under site-packages, or absolute paths."""
    items = tuple(split_items(text))
    for item in items:
        if ".." in Path(item).parts:
            raise UsageError(f"--python_path: {item!r} leads out of the workspace")
    return items
