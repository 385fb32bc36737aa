"""Every mini-language of the command line: what it means, and what is refused."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfrun.errors import UsageError
from perfrun.options.parsers import (
    ProfilerWindow,
    parse_profile_scope,
    parse_profiler_windows,
    parse_profiles,
)
from perfrun.options.plan import (
    DataSpec,
    MethodSelector,
    RepoSpec,
    parse_constructor_args,
    parse_data,
    parse_python_path,
    parse_repos,
    parse_selector,
    parse_selectors,
    parse_upload_methods,
    split_items,
)

FULL = "0123456789abcdef0123456789abcdef01234567"


def one_line(error: pytest.ExceptionInfo[UsageError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert text.startswith("--")
    return text


# --git_repos


@pytest.mark.parametrize(
    ("text", "url", "directory", "branch", "git_hash"),
    [
        ("https://h/models.git", "https://h/models.git", "models", None, None),
        ("https://h/models.git;", "https://h/models.git", "models", None, None),
        ("https://h/models.git;;", "https://h/models.git", "models", None, None),
        ("https://h/models.git;dev", "https://h/models.git", "models", "dev", None),
        (f"https://h/models.git;;{FULL}", "https://h/models.git", "models", None, FULL),
        (f"https://h/m;dev;{FULL.upper()}", "https://h/m", "m", "dev", FULL),
        (" https://h/m ; dev ; abcd ", "https://h/m", "m", "dev", "abcd"),
        ("https://h/a.b.git", "https://h/a.b.git", "a.b", None, None),
        ("https://h/a.b", "https://h/a.b", "a", None, None),
        ("https://h/m/", "https://h/m/", "m", None, None),
        ("https://h/m?token=a/b", "https://h/m?token=a/b", "m", None, None),
        ("git@h:group/m.git", "git@h:group/m.git", "m", None, None),
        ("git@h:m.git", "git@h:m.git", "m", None, None),
        ("ssh://git@h:22/m.git", "ssh://git@h:22/m.git", "m", None, None),
        ("file:///srv/a b/m", "file:///srv/a b/m", "m", None, None),
        ("/srv/it's/m.git", "/srv/it's/m.git", "m", None, None),
        ("https://h/m;refs/pull/1/head", "https://h/m", "m", "refs/pull/1/head", None),
        ("https://h/m;feature/über", "https://h/m", "m", "feature/über", None),
        ("https://h/m;v1.0-rc.1", "https://h/m", "m", "v1.0-rc.1", None),
    ],
)
def test_a_repository(
    text: str, url: str, directory: str, branch: str | None, git_hash: str | None
) -> None:
    assert parse_repos(text) == (
        RepoSpec(url=url, directory=directory, branch=branch, git_hash=git_hash),
    )


def test_empty_text_and_empty_items_mean_no_repository() -> None:
    assert parse_repos(None) == parse_repos("") == parse_repos(" , ,") == ()


def test_two_repositories_of_one_name_are_refused_with_both_named() -> None:
    with pytest.raises(UsageError) as error:
        parse_repos("https://joe:pw@h/a/models.git,https://h/b/models")
    text = one_line(error)
    assert "https://***@h/a/models.git" in text
    assert "https://h/b/models" in text
    assert "pw" not in text


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c touch% /tmp/x",
        "fd::17",
        "-oProxyCommand=touch",
        "--upload-pack=touch",
        "ssh://-oProxyCommand=touch/x",
        "ssh://git@-oProxyCommand=touch/x",
        "-oProxyCommand=touch:x",
        "git@-oProxyCommand=touch:x",
        "javascript://x/y",
        "ftp://h/x.git",
        "relative/path",
        "models",
        "..",
        "https://h",
        "https://joe:pw@h",
        "https://[h/x",
        "https://h/..",
        "https://h/.git",
        "https://h/",
        "https://h/-x",
        "https://h/a\\b",
        "https://h/a\nb",
        "https://h/a\x00b",
        "/",
        "/srv/..",
    ],
)
def test_a_hostile_or_senseless_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        parse_repos(url)


@pytest.mark.parametrize(
    "ref",
    [
        "--upload-pack=touch",
        "-x",
        "a..b",
        "a b",
        "a~1",
        "a^",
        "a:b",
        "a?",
        "a*",
        "a[",
        "a\\b",
        "@{-1}",
        "@",
        "/a",
        "a/",
        "a//b",
        ".a",
        "a/.b",
        "a.",
        "a.lock",
        "a\tb",
        "a\x7f",
    ],
)
def test_a_hostile_ref_is_refused(ref: str) -> None:
    with pytest.raises(UsageError, match="is not a name of a branch or tag"):
        parse_repos(f"https://h/m;{ref};{FULL}")


@pytest.mark.parametrize("git_hash", ["abc", "xyz1", "main", "-abc1", FULL * 2, f"{FULL} x"])
def test_what_is_no_hash_is_refused(git_hash: str) -> None:
    with pytest.raises(UsageError, match="is not a commit hash") as error:
        parse_repos(f"https://h/m;;{git_hash}")
    one_line(error)


def test_a_fourth_field_is_refused() -> None:
    with pytest.raises(UsageError, match="more than three fields"):
        parse_repos("https://h/m;a;abcd;x")


@pytest.mark.parametrize(
    "text",
    [
        "ftp://joe:s3cret@h/x",
        "https://joe:s3cret@h/m;a b",
        "https://joe:s3cret@h/m;;zz",
        "https://joe:s3cret@h/",
    ],
)
def test_no_message_tells_a_password(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_repos(text)
    assert "s3cret" not in str(error.value)


@given(st.text(max_size=40))
def test_any_text_is_repositories_or_a_usage_error_and_no_folder_leads_out(text: str) -> None:
    try:
        repos = parse_repos(text)
    except UsageError:
        return
    for repo in repos:
        assert "/" not in repo.directory
        assert repo.directory not in ("", ".", "..")
        assert not repo.directory.startswith(("-", "."))
        assert not repo.url.startswith("-")
        assert not (repo.branch or "").startswith("-")


@given(
    name=st.text(alphabet=string.ascii_lowercase, min_size=1, max_size=10),
    branch=st.text(alphabet=string.ascii_letters + "/_", min_size=1, max_size=12).filter(
        lambda name: "//" not in name and name.strip("/") == name
    ),
    git_hash=st.text(alphabet="0123456789abcdef", min_size=4, max_size=40),
)
def test_url_branch_and_hash_come_back_as_given(name: str, branch: str, git_hash: str) -> None:
    url = f"https://h.invalid/{name}.git"
    spec = RepoSpec(url=url, directory=name, branch=branch, git_hash=git_hash)
    assert parse_repos(f"{url};{branch};{git_hash}") == (spec,)


# --data_downloads


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://h/a/b.tgz", DataSpec(url="https://h/a/b.tgz", relative_path="b.tgz")),
        ("https://h/b?token=x", DataSpec(url="https://h/b?token=x", relative_path="b")),
        ("https://h/b;c/d", DataSpec(url="https://h/b", relative_path="c/d")),
        ("file:///x/set/*", DataSpec(url="file:///x/set/*", relative_path="set")),
        (
            f"https://h/b;sha256={'AB' * 32}",
            DataSpec(url="https://h/b", relative_path="b", sha256="ab" * 32),
        ),
        (
            f"https://h/b;c;sha256={'0' * 64}",
            DataSpec(url="https://h/b", relative_path="c", sha256="0" * 64),
        ),
        (
            f"https://h/b;sha256={'0' * 64};c",
            DataSpec(url="https://h/b", relative_path="c", sha256="0" * 64),
        ),
    ],
)
def test_an_item_of_data(text: str, expected: DataSpec) -> None:
    assert parse_data(text, "--data_downloads") == (expected,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gs://bucket/x", "no Google Cloud client"),
        ("gcs://bucket/x", "no Google Cloud client"),
        ("ftp://h/x", "must be a http://, https:// or file:// url"),
        ("/plain/path", "must be a"),
        ("https://h", "must be a"),
        ("https://[h/x", "is not a url"),
        ("https://h/", "is not a path inside --root_data_dir"),
        ("https://h/x;../y", "is not a path inside"),
        ("https://h/x;a/../../y", "is not a path inside"),
        ("https://h/x;/etc/passwd", "is not a path inside"),
        ("https://h/..", "is not a path inside"),
        ("https://h/x;.", "is not a path inside"),
        ("https://h/x;a;b", "names two paths"),
        ("https://h/x;sha256=abc", "sha256 must be 64 hex digits"),
        (f"https://h/x;sha256={'g' * 64}", "sha256 must be 64 hex digits"),
    ],
)
def test_data_that_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as error:
        parse_data(text, "--data_downloads")
    one_line(error)


@given(st.text(max_size=40))
def test_no_data_lands_outside_of_the_root(text: str) -> None:
    try:
        items = parse_data(f"https://h/x;{text}", "--data_downloads")
    except UsageError:
        return
    for item in items:
        assert not item.relative_path.startswith("/")
        assert ".." not in item.relative_path.split("/")


# --benchmark_methods


@pytest.mark.parametrize(
    ("text", "module", "class_name", "method", "pattern"),
    [
        ("pkg.mod.Class.method", "pkg.mod", "Class", "method", None),
        ("mod.Class.method", "mod", "Class", "method", None),
        ("pkg.mod.Class:method", "pkg.mod", "Class", "method", None),
        ("pkg.mod.Class:a.b", "pkg.mod", "Class", "a.b", None),
        ("pkg.mod.Class.filter:bench.*", "pkg.mod", "Class", None, "bench.*"),
        ("pkg.mod.Class.filter:", "pkg.mod", "Class", None, ""),
        ("pkg.mod.Class.filter:a:b.c", "pkg.mod", "Class", None, "a:b.c"),
    ],
)
def test_a_method(
    text: str, module: str, class_name: str, method: str | None, pattern: str | None
) -> None:
    assert parse_selector(text) == MethodSelector(
        text=text, module=module, class_name=class_name, method=method, pattern=pattern
    )


def test_values_are_repeated_and_split_in_order() -> None:
    found = parse_selectors(["m.C.a,m.C.b", "", " m.C.c ,"])
    assert [selector.text for selector in found] == ["m.C.a", "m.C.b", "m.C.c"]


@pytest.mark.parametrize(
    "text",
    [
        "method",
        "Class.method",
        "m.C.",
        "m.C:",
        "m..C.x",
        "m-x.C.y",
        "m.1C.y",
        ".C.x",
        "a b.C.x",
        ":",
    ],
)
def test_what_is_no_method_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not module") as error:
        parse_selector(text)
    assert repr(text) in one_line(error)


def test_a_bad_pattern_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'\*' is not a regular expression: nothing to repeat"):
        parse_selector("m.C.filter:*")


@given(st.text(max_size=30))
def test_any_text_is_a_method_or_a_usage_error(text: str) -> None:
    try:
        selector = parse_selector(text)
    except UsageError:
        return
    assert (selector.method is None) != (selector.pattern is None)


# The rest


@pytest.mark.parametrize(
    ("text", "windows"),
    [
        (None, []),
        ("", []),
        ("1:2", [(1, 2)]),
        ("0:1,5:9", [(0, 1), (5, 9)]),
        ("3", [(3, 31536000)]),
        ("3:", [(3, 31536000)]),
    ],
)
def test_profiler_windows(text: str | None, windows: list[tuple[int, int]]) -> None:
    expected = tuple(ProfilerWindow(begin_s=begin, end_s=end) for begin, end in windows)
    assert parse_profiler_windows(text) == expected


@pytest.mark.parametrize(
    "text", ["a", "1:b", "-1:2", "2:1", "1:1", "1:5,3:8", "5:6,1:2", "1.5:2", ":3"]
)
def test_senseless_profiler_windows_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_profiler_windows(text)
    one_line(error)


def test_constructor_arguments_are_a_json_object() -> None:
    assert parse_constructor_args("") == parse_constructor_args(None) == {}
    assert parse_constructor_args('{"a": [1, null], "ä": "x"}') == {"a": [1, None], "ä": "x"}
    for text in ("[1]", "1", "{", "{'a': 1}"):
        with pytest.raises(UsageError, match="--perfzero_constructor_args") as error:
            parse_constructor_args(text)
        one_line(error)


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none() | st.booleans()))
def test_constructor_arguments_come_back_as_given(values: dict[str, object]) -> None:
    assert parse_constructor_args(json.dumps(values)) == values


def test_upload_methods_are_importable_names() -> None:
    assert parse_upload_methods("a.b.c, d.e") == ("a.b.c", "d.e")
    assert parse_upload_methods("") == ()
    for text in ("f", "a.", "a-b.c", "a b.c", "a.b()"):
        with pytest.raises(UsageError, match="is not module"):
            parse_upload_methods(text)


def test_python_path_stays_in_the_workspace() -> None:
    assert parse_python_path("models, models/sub ,/abs") == ("models", "models/sub", "/abs")
    assert parse_python_path("") == ()
    for text in ("..", "a/../..", "/a/../b"):
        with pytest.raises(UsageError, match="leads out of the workspace"):
            parse_python_path(text)


@given(st.lists(st.text(alphabet=string.ascii_letters + ". ", max_size=5), max_size=6))
def test_splitting_keeps_what_is_not_blank_in_order(items: list[str]) -> None:
    expected = [item.strip() for item in items if item.strip()]
    assert split_items(",".join(items)) == expected


def test_kinds_of_profile_keep_their_order_and_count_once() -> None:
    assert parse_profiles(" torch,cprofile,,torch ") == ("torch", "cprofile")
    assert parse_profiles(None) == parse_profiles("") == ()


def test_the_scope_of_a_profile_is_one_of_three_and_needs_a_profile() -> None:
    assert parse_profile_scope(None, None) == parse_profile_scope(None, "torch") == "timed"
    assert parse_profile_scope("process", "torch") == "process"
    for scope, kinds in (("steps", "torch"), ("method", None), ("method", " ")):
        with pytest.raises(UsageError, match="--profile_scope"):
            parse_profile_scope(scope, kinds)


def test_an_unknown_kind_of_profile_is_one_line_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean cprofile") as error:
        parse_profiles("cprofiler")
    assert "tensorflow" in one_line(error)
