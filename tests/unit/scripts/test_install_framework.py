"""scripts/install_framework.py, run for real: real pip, real environments, tiny wheels made here.

No index is asked: pip sees a folder of wheels that have the names, versions and dependencies of the
real ones and next to no content.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

import pytest
from wheels import make_wheel

SCRIPT = Path(__file__).parents[3] / "scripts" / "install_framework.py"

BUNDLED = ("pip", "setuptools")  # what a fresh environment has

# uv's own part in the contract, without its network: it records what it was asked, and installs
# from the place that only it knows.
UV_STAND_IN = """#!python
import json, os, subprocess, sys
if "--help" in sys.argv:
    sys.exit(print("[possible values: auto, cpu, cu130, rocm6.4, rocm7.1, rocm5.7]"))
with open(os.environ["TEST_UV_RECORD"], "w") as record:
    json.dump({"argv": sys.argv[1:], "index": os.environ.get("UV_DEFAULT_INDEX")}, record)
python = sys.argv[sys.argv.index("--python") + 1]
specs = [word for word in sys.argv[3:] if "==" in word]
sys.exit(subprocess.call(
    [python, "-m", "pip", "install", "--find-links", os.environ["TEST_UV_WHEELS"], *specs]
))
"""


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install_framework", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["install_framework"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


script = load_script()


class Machine:
    """One environment, one folder of wheels, and the script run in them."""

    def __init__(self, folder: Path, template: Path) -> None:
        self.wheels = folder / "wheels"
        self.prefix = folder / "environment"
        shutil.copytree(template, self.prefix, symlinks=True)
        self.home = folder / "home"
        self.home.mkdir()
        self.variables: dict[str, str] = {}
        for companion in script.TORCH_COMPANIONS:
            make_wheel(self.wheels, companion, "1.0")

    @property
    def python(self) -> Path:
        return self.prefix / "bin" / "python"

    def offers(self, name: str, version: str, *requires: str) -> Path:
        return make_wheel(self.wheels, name, version, requires)

    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
        own = {
            "HOME": str(self.home),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
        }
        return {**kept, **own, **self.variables}

    def install(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [str(self.python), str(SCRIPT), *arguments]
        return subprocess.run(argv, capture_output=True, text=True, env=self.environment())

    def installed(self) -> dict[str, str]:
        places = [str(path) for path in self.prefix.glob("lib/python3*/site-packages")]
        found = {one.name: one.version for one in distributions(path=places)}
        return {name: version for name, version in found.items() if name not in BUNDLED}


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("template") / "environment"
    venv.create(prefix, with_pip=True, symlinks=True)
    return prefix


@pytest.fixture
def machine(tmp_path: Path, template: Path) -> Machine:
    return Machine(tmp_path, template)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.slow
def test_on_a_cpu_the_cpu_build_is_taken_and_nothing_for_cuda_comes_with_it(
    machine: Machine,
) -> None:
    machine.offers("torch", "2.13.0", "nvidia-fakelib")
    machine.offers("torch", "2.13.0+cpu")
    machine.offers("torchvision", "0.28.0", "torch==2.13.0", "nvidia-fakelib")
    machine.offers("nvidia-fakelib", "1.0")
    done = machine.install("--framework", "torch", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert machine.installed() == {
        "torch": "2.13.0+cpu",
        "torchvision": "0.28.0",
        "numpy": "1.0",
        "pillow": "1.0",
        "absl-py": "1.0",
    }
    assert last_line(done).startswith("installed: torch 2.13.0+cpu, torchvision 0.28.0, numpy 1.0")


@pytest.mark.slow
def test_a_second_call_installs_nothing_does_not_ask_pip_and_says_so(machine: Machine) -> None:
    machine.offers("torch", "2.13.0+cpu")
    machine.offers("torchvision", "0.28.0")
    arguments = ("--framework", "torch", "--device", "cpu")
    assert machine.install(*arguments).returncode == 0
    shutil.rmtree(machine.wheels)
    (package,) = machine.prefix.glob("lib/python3*/site-packages/pip")
    shutil.rmtree(package)
    package.mkdir()
    (package / "__init__.py").write_text("open(__file__ + '.asked', 'w')\n")
    again = machine.install(*arguments)
    assert [path.name for path in package.iterdir()] == ["__init__.py"]
    assert again.returncode == 0, again.stderr
    assert again.stderr.startswith("nothing to do, there already: torch 2.13.0+cpu")


@pytest.mark.slow
def test_without_a_cpu_build_one_line_says_what_to_do_and_nothing_is_installed(
    machine: Machine,
) -> None:
    machine.offers("torch", "2.13.0", "nvidia-fakelib")
    machine.offers("nvidia-fakelib", "1.0")
    done = machine.install("--framework", "torch", "--device", "cpu")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "found no cpu build of torch==2.13.0" in done.stderr
    assert "set PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL to a place that has torch==2.13.0+cpu" in (
        done.stderr
    )
    assert machine.installed() == {}


@pytest.mark.slow
def test_a_wheel_that_would_bring_cuda_is_refused_on_a_cpu_before_it_is_installed(
    machine: Machine,
) -> None:
    wheel = machine.offers("torch", "2.99.0", "nvidia-fakelib", "cuda-bindings", "friend")
    for name in ("nvidia-fakelib", "cuda-bindings", "friend"):
        machine.offers(name, "1.0")
    done = machine.install("--framework", "torch", "--device", "cpu", "--spec", str(wheel))
    assert done.returncode == 1
    assert "would bring 2 CUDA packages, cuda-bindings first" in done.stderr
    assert machine.installed() == {}


@pytest.mark.slow
def test_uv_is_the_last_resort_and_is_told_the_interpreter_the_backend_and_the_index(
    machine: Machine, tmp_path: Path
) -> None:
    record, hidden = tmp_path / "uv.json", tmp_path / "hidden"
    make_wheel(machine.wheels, "uv", "1.0", program=UV_STAND_IN)
    make_wheel(hidden, "torch", "2.13.0+cpu")
    make_wheel(hidden, "torchvision", "0.28.0+cpu", ("torch==2.13.0",))
    machine.variables = {
        "TEST_UV_RECORD": str(record),
        "TEST_UV_WHEELS": str(hidden),
        "PIP_INDEX_URL": "file:///mirror/simple",
    }
    done = machine.install("--framework", "torch", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    asked = json.loads(record.read_text())
    assert asked["argv"] == [
        *("pip", "install", "--python", str(machine.python), "--torch-backend=cpu"),
        *("torch==2.13.0", "torchvision==0.28.0"),
    ]
    assert asked["index"] == "file:///mirror/simple"
    found = machine.installed()
    assert found["torch"] == "2.13.0+cpu"
    assert found["torchvision"] == "0.28.0+cpu"
    assert "uv" not in found  # it was there for this one call only


@pytest.mark.slow
def test_for_cuda_the_cpu_build_is_passed_over_even_where_pip_prefers_it(machine: Machine) -> None:
    machine.offers("torch", "2.99.0+cpu")
    machine.offers("torch", "2.99.0", "nvidia-fakelib")
    machine.offers("torchvision", "0.114.1")
    machine.offers("nvidia-fakelib", "1.0")
    arguments = ("--framework", "torch", "--spec", "torch==2.99.0")
    assert machine.install(*arguments, "--device", "cpu").returncode == 0
    assert machine.installed()["torch"] == "2.99.0+cpu"
    done = machine.install(*arguments, "--device", "cuda")
    assert done.returncode == 0, done.stderr
    found = machine.installed()
    assert (found["torch"], found["nvidia-fakelib"]) == ("2.99.0", "1.0")
    assert found["torchvision"] == "0.114.1"


@pytest.mark.slow
def test_extras_are_installed_beside_the_framework_and_cannot_replace_it(machine: Machine) -> None:
    machine.offers("torch", "2.13.0+cpu")
    machine.offers("torch", "3.0.0")
    machine.offers("torchvision", "0.28.0")
    machine.offers("friend", "1.2", "torch>=2")
    machine.offers("other", "0.1")
    machine.offers("greedy", "1.0", "torch>=3")
    base = ("--framework", "torch", "--device", "cpu", "--extra")
    done = machine.install(*base, "friend==1.2; other")
    assert done.returncode == 0, done.stderr
    assert machine.installed()["friend"] == "1.2"
    assert machine.installed()["other"] == "0.1"
    refused = machine.install(*base, "greedy")
    assert refused.returncode == 1
    assert "pip could not install" in last_line(refused)
    assert machine.installed()["torch"] == "2.13.0+cpu"


@pytest.mark.slow
def test_an_extra_that_would_bring_cuda_to_a_cpu_is_refused_before_it_is_installed(
    machine: Machine,
) -> None:
    machine.offers("torch", "2.13.0+cpu")
    machine.offers("torchvision", "0.28.0")
    machine.offers("friend", "1.0", "nvidia-fakelib")
    machine.offers("nvidia-fakelib", "1.0")
    base = ("--framework", "torch", "--extra", "friend", "--device")
    refused = machine.install(*base, "cpu")
    assert refused.returncode == 1
    assert "friend would bring 1 CUDA packages, nvidia-fakelib first; leave" in last_line(refused)
    assert "friend" not in machine.installed()


@pytest.mark.slow
def test_a_dry_run_prints_every_command_and_changes_nothing(machine: Machine) -> None:
    done = machine.install("--framework", "torch", "--device", "cpu", "--dry_run", "--extra", "a;b")
    assert done.returncode == 0, done.stderr
    assert "install torch==2.13.0+cpu\n" in done.stderr
    assert "--torch-backend=cpu torch==2.13.0 torchvision==0.28.0\n" in done.stderr
    assert "install --no-deps torchvision==0.28.0\n" in done.stderr
    assert " numpy pillow absl-py a b\n" in done.stderr
    assert machine.installed() == {}


@pytest.mark.slow
def test_tensorflow_is_installed_and_a_second_distribution_of_it_is_refused(
    machine: Machine,
) -> None:
    name = script.default_spec("tensorflow", "cpu").partition("==")[0]
    machine.offers(name, "2.21.0")
    done = machine.install("--framework", "tensorflow", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert machine.installed() == {name: "2.21.0"}
    rival = machine.install("--framework", "tensorflow", "--spec", "tf-nightly")
    assert rival.returncode == 1
    assert f"{name} 2.21.0 is installed" in rival.stderr
    assert "use a fresh environment" in rival.stderr


@pytest.mark.slow
def test_jax_comes_with_the_library_of_its_models_and_no_torch(machine: Machine) -> None:
    machine.offers("jax", script.JAX_VERSION)
    machine.offers("flax", "0.12.8")
    done = machine.install("--framework", "jax", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert {"jax", "flax", "numpy"} <= set(machine.installed())
    assert not {"torch", "torchvision"} & set(machine.installed())
    again = machine.install("--framework", "jax", "--device", "cpu")
    assert last_line(again).startswith("nothing to do, there already: jax 0.10.2, flax 0.12.8")
    refused = machine.install("--framework", "jax", "--device", "rocm")
    assert "jax has no build for ROCm" in last_line(refused)


@pytest.mark.slow
def test_both_frameworks_are_resolved_together_into_one_environment(machine: Machine) -> None:
    name = script.default_spec("tensorflow", "cpu").partition("==")[0]
    machine.offers("torch", "2.13.0+cpu", "common>=1")
    machine.offers("torchvision", "0.28.0")
    machine.offers(name, "2.21.0", "common<3")
    for version in ("1.0", "2.0", "3.0"):
        machine.offers("common", version)
    done = machine.install("--framework", "both", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    found = machine.installed()
    assert (found["torch"], found[name], found["common"]) == ("2.13.0+cpu", "2.21.0", "2.0")
    assert last_line(done).startswith(f"installed: torch 2.13.0+cpu, {name} 2.21.0, torchvision")


@pytest.mark.slow
def test_constraints_of_a_lock_are_obeyed_by_the_framework_and_the_extras(
    machine: Machine, tmp_path: Path
) -> None:
    machine.offers("torch", "2.13.0+cpu", "friend")
    machine.offers("torchvision", "0.28.0")
    for version in ("1.0", "2.0"):
        machine.offers("friend", version)
        machine.offers("extra", version)
    lock = tmp_path / "lock.txt"
    lock.write_text("torch==2.13.0+cpu\nfriend==1.0\nextra==1.0\n")
    machine.variables = {"PIP_CONSTRAINT": str(lock)}
    done = machine.install("--framework", "torch", "--device", "cpu", "--extra", "extra")
    assert done.returncode == 0, done.stderr
    found = machine.installed()
    assert (found["friend"], found["extra"]) == ("1.0", "1.0")


@pytest.mark.slow
def test_a_version_replaces_the_pinned_one(machine: Machine) -> None:
    machine.offers("torch", "2.12.1+cpu")
    machine.offers("torchvision", "0.27.3")
    done = machine.install("--framework", "torch", "--device", "cpu", "--version", "2.12.1")
    assert done.returncode == 0, done.stderr
    assert machine.installed()["torch"] == "2.12.1+cpu"
    assert machine.installed()["torchvision"] == "0.27.3"


@pytest.mark.slow
def test_for_rocm_a_build_that_is_not_for_it_is_passed_over_and_uv_is_asked(
    machine: Machine, tmp_path: Path
) -> None:
    hidden = tmp_path / "hidden"
    machine.offers("torch", "2.13.0+cpu")
    make_wheel(machine.wheels, "uv", "1.0", program=UV_STAND_IN)
    make_wheel(hidden, "torch", "2.13.0+rocm7.1")
    make_wheel(hidden, "torchvision", "0.28.0+rocm7.1")
    machine.variables = {
        "TEST_UV_RECORD": str(tmp_path / "uv.json"),
        "TEST_UV_WHEELS": str(hidden),
    }
    done = machine.install("--framework", "torch", "--device", "rocm")
    assert done.returncode == 0, done.stderr
    asked = json.loads((tmp_path / "uv.json").read_text())["argv"]
    assert "--torch-backend=rocm7.1" in asked  # the newest of those that its help names
    assert machine.installed()["torch"] == "2.13.0+rocm7.1"


@pytest.mark.slow
def test_without_a_rocm_build_one_line_says_what_is_missing(machine: Machine) -> None:
    machine.offers("torch", "2.13.0+cpu")
    done = machine.install("--framework", "torch", "--device", "rocm")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "torch 2.13.0+cpu, no build for ROCm" in done.stderr
    assert "to a place that has torch==2.13.0+rocm" in done.stderr
    assert machine.installed() == {}


@pytest.mark.parametrize(
    ("framework", "device", "version", "spec"),
    [
        ("torch", "cuda", "2.9.1", "torch==2.9.1"),
        ("tensorflow", "cuda", "", f"tensorflow[and-cuda]=={script.TENSORFLOW_VERSION}"),
        ("tensorflow", "cuda", "2.13.0", "tensorflow[and-cuda]==2.13.0"),
        ("jax", "cpu", "", f"jax=={script.JAX_VERSION}"),
        ("jax", "cuda", "0.9.2", "jax[cuda13]==0.9.2"),
        ("tensorflow", "rocm", "", "tensorflow-rocm==2.14.0.600"),
        ("tensorflow", "rocm", "2.13.1", "tensorflow-rocm==2.13.1.*"),
        ("tensorflow", "rocm", "2.13.1.540", "tensorflow-rocm==2.13.1.540"),
    ],
)
def test_a_device_decides_which_distribution_is_meant(
    framework: str, device: str, version: str, spec: str
) -> None:
    assert script.default_spec(framework, device, version) == spec


def test_of_both_one_spec_each_may_be_given() -> None:
    default = script.default_spec("tensorflow", "cpu")

    assert script.choose_specs("both", "cpu", "", "") == (script.TORCH_SPEC, default)
    assert script.choose_specs("both", "cpu", "", "tensorflow==2.20.0") == (
        script.TORCH_SPEC,
        "tensorflow==2.20.0",
    )
    assert script.choose_specs("both", "cpu", "", "tf-nightly; torch>=2") == (
        *("torch>=2", "tf-nightly"),
    )
    with pytest.raises(script.InstallError, match="one of torch and one of tensorflow"):
        script.choose_specs("both", "cpu", "", "tensorflow;tf-nightly")
    with pytest.raises(script.InstallError, match="choose one"):
        script.choose_specs("both", "rocm", "", "")


@pytest.mark.slow
def test_a_wrong_framework_is_a_usage_error(machine: Machine) -> None:
    done = machine.install("--framework", "caffe")
    assert done.returncode == 2
    assert "caffe" in done.stderr


@pytest.mark.parametrize(
    ("torch", "torchvision"),
    [
        ("torch==2.13.0", "torchvision==0.28.0"),
        ("torch==2.12.1", "torchvision==0.27.*"),
        ("torch==2.10", "torchvision==0.25.*"),
        ("torch==2.12.1+cpu", "torchvision==0.27.*"),
        ("torch>=2.5", "torchvision"),
        ("./torch-2.12.whl", "torchvision"),
        ("/run/torch-2.12.1+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", "torchvision==0.27.*"),
    ],
)
def test_torchvision_follows_torch(torch: str, torchvision: str) -> None:
    assert script.torchvision_spec(torch) == torchvision


@pytest.mark.parametrize(
    ("system", "machine_name", "has_cuda"),
    [
        ("linux", "x86_64", True),
        ("linux", "aarch64", False),
        ("darwin", "arm64", False),
        ("win32", "AMD64", False),
    ],
)
def test_the_plain_build_is_tried_only_where_it_is_the_cpu_one(
    system: str, machine_name: str, has_cuda: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert script.plain_torch_has_cuda(system, machine_name) is has_cuda
    monkeypatch.setattr(script, "plain_torch_has_cuda", lambda: has_cuda)
    specs = [way.specs[0] for way in script.routes("torch", "cpu", "torch==2.13.0")]
    middle = [] if has_cuda else ["torch==2.13.0"]
    assert specs == ["torch==2.13.0+cpu", *middle, "torch==2.13.0"]


def test_pips_report_is_objected_to_only_for_what_is_not_for_the_device() -> None:
    def report(**planned: str) -> dict[str, list[dict[str, dict[str, str]]]]:
        names = {name.replace("_", "-"): version for name, version in planned.items()}
        entries = ({"name": name, "version": version} for name, version in names.items())
        return {"install": [{"metadata": entry} for entry in entries]}

    plain = report(torch="2.13.0", nvidia_cublas="13.1", cuda_toolkit="13.0", triton="3.7")
    slim = report(torch="2.13.0+cpu", sympy="1.14", cudaless_name="1.0")
    assert script.objection(plain, "cpu") == "2 CUDA packages, cuda-toolkit first"
    assert script.objection(plain, "cuda") is None
    assert script.objection(slim, "cpu") is None
    assert script.objection(slim, "cuda") == "the CPU build 2.13.0+cpu"


def test_a_driver_is_found_by_its_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert script.has_nvidia_driver() is Path("/proc/driver/nvidia/version").exists()
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert script.has_nvidia_driver()


def test_a_python_too_old_for_the_default_is_told_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "MINIMUM_PYTHON", (99, 0))
    assert script.main(["--framework", "torch", "--device", "cpu"]) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "choose an older one with --version or --spec" in said


def test_the_script_is_python_3_8_standard_library_only_and_names_no_host() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 8))
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
    assert {name.partition(".")[0] for name in modules} <= sys.stdlib_module_names
    assert "://" not in text
