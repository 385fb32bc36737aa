"""setup.py as it is called: on a bare host, by any Python from 3.8."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfrun.image.command import gpu_notes, harness_arguments, notes
from perfrun.image.gpus import Access, GpuSupport, Vendor
from perfrun.image.setup_flags import LIST_FLAGS, TEXT_FLAGS
from perfrun.image.spec import NAMED_BUILD_ARGS, ImageSpec

ROOT = Path(__file__).resolve().parents[3]
NOTHING = GpuSupport(None, (), None, False, (), None, None)
BARE_GPU = GpuSupport(Vendor.NVIDIA, ("nvidia0",), "570.1", False, (), None, "install the toolkit")
READY_GPU = GpuSupport(Vendor.NVIDIA, ("nvidia0",), "570.1", True, (), Access.CDI, None)
AMD = GpuSupport(Vendor.AMD, ("kfd",), None, False, (), Access.DEVICE_FILES, None)


def interpreters() -> list[str]:
    """This Python, and each older and newer one that this machine has."""
    names = [f"python3.{minor}" for minor in range(8, 15)]
    folders = sorted(Path.home().glob(".pyenv/versions/3.*/bin"))
    # The interpreters come before the scripts of pyenv that look for them for a third of a second.
    path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")])
    found = {name: shutil.which(name, path=path) for name in names}
    ask = ("-c", "import sys; print(sys.executable)")
    asked = [
        subprocess.run([tool, *ask], capture_output=True, text=True, check=False).stdout.strip()
        for tool in found.values()
        if tool
    ]
    return sorted({sys.executable, *filter(None, asked)})


def run_setup(
    *argv: str, python_flags: tuple[str, ...] = ("-S",), python: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """`python3 setup.py ...` as on a bare host: another folder, and nothing installed."""
    return subprocess.run(
        [python or sys.executable, *python_flags, str(ROOT / "setup.py"), *argv],
        cwd="/",
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("python_flags", [("-S",), ("-I", "-S"), ("-S", "-W", "error")])
@pytest.mark.parametrize("python", interpreters())
def test_setup_py_needs_nothing_but_the_standard_library_of_any_python(
    python: str, python_flags: tuple[str, ...]
) -> None:
    done = run_setup(
        *("--dry_run", "--extra_pip_specs=a; b>1", "--device=cuda", "--python_version=3.9"),
        python_flags=python_flags,
        python=python,
        PATH="/nonexistent",
    )

    assert (done.returncode, done.stderr) == (0, "")
    first = shlex.split(done.stdout.split(" && ")[0])
    assert first[-1] == str(ROOT)
    assert "extra_pip_specs=a;b>1" in first
    assert "base_image=python:3.9-slim-bookworm" in first


@pytest.mark.parametrize("python", interpreters())
def test_help_tells_every_flag(python: str) -> None:
    done = run_setup("--help", python_flags=("-I",), python=python)

    assert done.returncode == 0
    for flag in (*(each[0] for each in (*TEXT_FLAGS, *LIST_FLAGS)), "--offline", "--dry_run"):
        assert flag in done.stdout


def test_setup_py_as_setuptools_ends_with_2_and_one_line() -> None:
    done = run_setup("bdist_wheel")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "perfrun: setup.py builds the container image and knows no command"
    )
    assert done.stderr.count("\n") == 1


def test_without_an_engine_setup_py_says_what_to_install(tmp_path: Path) -> None:
    done = run_setup(PATH=str(tmp_path))

    assert (done.returncode, done.stdout) == (2, "")
    assert "no container engine" in done.stderr
    assert "install Docker (" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_dry_run_needs_no_engine(tmp_path: Path) -> None:
    done = run_setup("--dry_run", PATH=str(tmp_path))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("DOCKER_BUILDKIT=1 docker build --tag perfrun/torch ")


def test_without_image_work_the_copies_are_made_and_no_engine_is_asked(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("")

    done = run_setup(
        "--dockerfile_path=",
        f"--workspace={tmp_path}/work space",
        f"--site_package_downloads={tmp_path}/src:models",
        PATH=str(tmp_path),
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"copied {tmp_path}/src to {tmp_path}/work space/site-packages/models\n"
    nothing = run_setup("--dockerfile_path=", PATH=str(tmp_path))
    assert nothing.stdout == "nothing to do: --dockerfile_path is empty\n"


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "file").write_text("")

    done = run_setup(
        "--dockerfile_path=",
        f"--workspace={tmp_path}/file",
        f"--site_package_downloads={tmp_path}/src:models",
    )

    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert f"{tmp_path}/file" in done.stderr


@pytest.mark.parametrize(
    ("device", "gpus", "words"),
    [
        ("cpu", NOTHING, []),
        ("cpu", READY_GPU, ["note: this machine has a GPU; --device=cuda"]),
        ("cpu", AMD, ["note: this machine has a GPU; --device=rocm"]),
        ("cuda", NOTHING, ["warning: no NVIDIA GPU was found here"]),
        ("rocm", READY_GPU, ["warning: no AMD GPU was found here"]),
        ("cuda", BARE_GPU, ["warning: containers cannot use the GPU of this machine: install the"]),
        ("cuda", READY_GPU, ["GPU nvidia, containers get it by cdi"]),
        ("rocm", AMD, ["GPU amd, containers get it by device files"]),
    ],
)
def test_a_gpu_that_lacks_is_a_warning_because_images_travel(
    device: str, gpus: GpuSupport, words: list[str]
) -> None:
    found = gpu_notes(device, gpus)

    assert len(found) == len(words)
    assert all(line.startswith(word) for line, word in zip(found, words, strict=True))


def test_a_password_in_a_package_url_is_warned_about() -> None:
    spec = ImageSpec(framework="torch", docker_tag="t", index_url="https://me:secret@host.invalid/")

    (line,) = notes(spec, NOTHING)

    assert "can be read in the image's history" in line
    assert "secret" not in line


def test_the_commit_of_the_checkout_becomes_build_arguments(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        author = ("-c", "user.name=A", "-c", "user.email=a@example.com")
        argv = ("git", "-C", str(tmp_path), *author, *words)
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    assert harness_arguments(tmp_path) == {}
    git("init", "-q", "-b", "main")
    assert harness_arguments(tmp_path) == {}
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-q", "-m", "one")
    git("remote", "add", "origin", "https://joe:pw@host.invalid/x.git")
    expected = {
        "harness_url": "https://***@host.invalid/x.git",
        "harness_branch": "main",
        "harness_hash": git("rev-parse", "HEAD"),
        "harness_modified": "",
    }
    assert harness_arguments(tmp_path) == expected
    (tmp_path / "a").write_text("2")
    assert harness_arguments(tmp_path) == {**expected, "harness_modified": "yes"}


@pytest.mark.parametrize(
    "path",
    [
        *(ROOT / name for name in ("setup.py", "perfrun/errors.py", "perfrun/text.py")),
        *sorted((ROOT / "perfrun/image").glob("*.py")),
    ],
    ids=lambda path: path.name,
)
def test_what_setup_py_reads_is_python_3_8(path: Path) -> None:
    ast.parse(path.read_text("utf-8"), feature_version=(3, 8))


def test_every_flag_has_its_argument_in_the_dockerfile() -> None:
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    declared = {line.split()[1].partition("=")[0] for line in lines if line.startswith("ARG ")}

    assert {*NAMED_BUILD_ARGS, "PIP_INDEX_URL", "PIP_NO_INDEX", "PIP_CERT", "ca_bundle"} < declared
