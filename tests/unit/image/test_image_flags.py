"""The command line of setup.py: every flag, every refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfrun.errors import UsageError
from perfrun.image.setup_flags import SETUPTOOLS_COMMANDS, TEXT_FLAGS, Request, parse_arguments
from perfrun.image.spec import CA_BUNDLE, ImageSpec, build_args

CHECKOUT = Path(__file__).resolve().parents[3]
DEFAULT = ImageSpec(framework="torch", docker_tag="perfrun/torch")
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def ask(*argv: str) -> Request:
    return parse_arguments(argv, CHECKOUT)


def parse(*argv: str) -> ImageSpec:
    spec = ask(*argv).spec
    assert spec is not None
    return spec


def refusal(*argv: str) -> str:
    with pytest.raises(UsageError) as caught:
        ask(*argv)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_no_flags_mean_torch_and_leave_the_rest_to_the_dockerfile() -> None:
    assert parse() == DEFAULT
    assert build_args(DEFAULT) == ("framework=torch",)


def test_empty_flags_mean_the_same_as_none() -> None:
    flags = [f"{name}=" for name, _, _ in TEXT_FLAGS]

    request = ask(*flags, "--extra_docker_build_args", "", "--find_links", "")

    assert request == ask()
    assert request.spec == DEFAULT


def test_flags_may_be_abbreviated() -> None:
    assert parse("--docker_t=a/b", "--base=c").docker_tag == "a/b"
    assert parse("--python=3.12").python_version == "3.12"
    assert "ambiguous option" in refusal("--docker=x")


def test_the_tag_follows_the_framework() -> None:
    assert parse("--framework=tensorflow").docker_tag == "perfrun/tensorflow"
    assert parse("--framework=both").docker_tag == "perfrun/both"
    assert parse("--framework=tensorflow", "--docker_tag=mine").docker_tag == "mine"


def test_perfzeros_tensorflow_pip_spec_means_tensorflow() -> None:
    spec = parse("--tensorflow_pip_spec=tensorflow-cpu==2.21.0")

    assert (spec.framework, spec.framework_pip_spec) == ("tensorflow", "tensorflow-cpu==2.21.0")
    assert parse("--framework=tensorflow", "--tensorflow_pip_spec=tf").framework_pip_spec == "tf"


def test_a_version_and_a_device_are_passed_on() -> None:
    spec = parse("--framework=tensorflow", "--framework_version=2.13.0", "--device=cuda")

    assert build_args(spec) == ("framework=tensorflow", "framework_version=2.13.0", "device=cuda")


def test_both_frameworks_take_a_spec_each() -> None:
    spec = parse("--framework=both", "--framework_pip_spec=torch==2.12.0; tensorflow==2.20.0")

    assert spec.framework_pip_spec == "torch==2.12.0;tensorflow==2.20.0"
    assert "of which framework?" in refusal("--framework=both", "--framework_version=2")
    assert "one spec, or two" in refusal("--framework_pip_spec=torch==2;numpy")


@pytest.mark.parametrize(
    ("text", "specs"),
    [
        ("numpy==1.16.4;scipy==1.3.1", ("numpy==1.16.4", "scipy==1.3.1")),
        (" numpy ; scipy[all] >= 1 ;; ", ("numpy", "scipy[all] >= 1")),
        (";", ()),
    ],
)
def test_extra_pip_specs_are_separated_by_semicolons(text: str, specs: tuple[str, ...]) -> None:
    spec = parse("--extra_pip_specs", text)

    assert spec.extra_pip_specs == specs
    expected = (f"extra_pip_specs={';'.join(specs)}",) if specs else ()
    assert build_args(spec)[1:] == expected


def test_debian_packages_are_separated_by_spaces() -> None:
    spec = parse("--extra_apt_packages", " g++  libgomp1=12.2.0-14 ")

    assert spec.extra_apt_packages == ("g++", "libgomp1=12.2.0-14")
    assert "extra_apt_packages=g++ libgomp1=12.2.0-14" in build_args(spec)
    assert "no Debian package's name" in refusal("--extra_apt_packages=g++; ls")
    assert "no Debian package's name" in refusal("--extra_apt_packages=--force-yes")


def test_build_args_may_be_given_in_several_flags_and_hold_spaces() -> None:
    spec = parse(
        *("--extra_docker_build_args", "a=1", "two=with a space", ""),
        *("--extra_docker_build_args", "c=a=b"),
    )

    assert spec.extra_build_args == ("a=1", "two=with a space", "c=a=b")
    assert build_args(spec)[1:] == spec.extra_build_args


@pytest.mark.parametrize(
    "name",
    ["perfrun", "perfrun/torch:2.13.0", "host:5000/a/b-c__d.e:Tag_1", "localhost/x", "H.example/x"],
)
def test_image_names_that_the_engine_takes(name: str) -> None:
    assert parse(f"--docker_tag={name}").docker_tag == name
    assert parse(f"--base_image={name}").base_image == name


@pytest.mark.parametrize(
    "name",
    ["Perfrun", "a b", "-x", "a/", "a//b", "a:", "a\n", "a@sha256:" + "0" * 64, "é", "a:b:c"],
)
def test_image_names_that_it_would_refuse_are_refused_here(name: str) -> None:
    with pytest.raises(UsageError, match="not an image name"):
        ask(f"--docker_tag={name}")


def test_a_base_image_may_be_pinned_by_its_digest() -> None:
    name = "python:3.11@sha256:" + "0a" * 32

    assert parse(f"--base_image={name}").base_image == name
    with pytest.raises(UsageError):
        ask("--base_image=python@sha256:nothex")


def test_a_python_version_alone_chooses_the_official_image_that_has_it() -> None:
    assert parse("--python_version=3.9").base_image == "python:3.9-slim-bookworm"
    spec = parse("--python_version=3.9", "--base_image=mine")
    assert build_args(spec)[1:] == ("base_image=mine", "python_version=3.9")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--framework=mxnet"], "--framework=mxnet: must be one of torch, tensorflow, jax, both"),
        (["--device=tpu"], "--device=tpu: must be one of cpu, cuda, rocm"),
        (["--framework=both", "--device=rocm"], "build an image for each"),
        (["--framework=torch", "--tensorflow_pip_spec=x"], "does not go with --framework=torch"),
        (["--framework=both", "--tensorflow_pip_spec=x"], "does not go with --framework=both"),
        (["--framework_pip_spec=y", "--tensorflow_pip_spec=x"], "only one of them"),
        (["--framework_version=1", "--framework_pip_spec=torch"], "only one of them"),
        (["--framework_version=>=2"], "must be a version such as 2.13.0"),
        (["--framework_version=two"], "must be a version such as 2.13.0"),
        (["--python_version=3"], "must be X.Y"),
        (["--python_version=3.11.2"], "must be X.Y"),
        (["--python_version=3.7"], "needs Python 3.8 or newer"),
        (["--framework_pip_spec=a\nb"], "must be one line"),
        (["--extra_pip_specs=a;\nb"], "must be one line"),
        (["--index_url=a\nb"], "must be one line"),
        (["--framework_pip_spec=gs://b/a.whl"], "needs Google's tools"),
        (["--tensorflow_pip_spec=gs://b/a.whl"], "needs Google's tools"),
        (["--extra_pip_specs=numpy; gs://b/a.whl"], "needs Google's tools"),
        (["--dockerfile_path=gs://bucket/image.tar.gz"], "needs Google's tools"),
        (["--dockerfile_path=gs://bucket/Dockerfile"], "needs Google's tools"),
        (["--dockerfile_path=docker/none"], "there is no such file"),
        (["--framework_pip_spec=file:///no/t.whl"], "there is no file /no/t.whl"),
        (["--extra_pip_specs=a; ./missing.whl"], "there is no file missing.whl"),
        (["--find_links=/no/such/folder"], "there is no folder /no/such/folder"),
        (["--ca_certificate=/no/such/file"], "cannot be read"),
        (["--lock=/no/such/file"], "cannot be read"),
        (["--offline"], "needs --find_links=DIR"),
        (["--offline", "--find_links=https://host.invalid/w"], "needs --find_links=DIR"),
        (["--offline", "--index_url=https://host.invalid"], "contradict each other"),
        (["--gce_nvme_raid=all"], "formats every NVMe disk"),
        (["--gcloud_key_file_url=gs://k"], "only Google's tools read such a key"),
        (["--extra_docker_build_args", "novalue"], "'novalue': must be NAME=VALUE"),
        (["--extra_docker_build_args", "base_image=b"], "there is a flag for this, --base_image"),
        (["--extra_docker_build_args", "device=cpu"], "there is a flag for this, --device"),
        (["--site_package_downloads=nocolon"], "must be SRC_DIR:NEW_NAME"),
        (["--site_package_downloads=/tmp:../up"], "is no name for a folder"),
        (["--site_package_downloads=/tmp:.hidden"], "is no name for a folder"),
        (["--site_package_downloads=/no/such:x"], "there is no folder /no/such"),
        (["--site_package_downloads=/tmp:x,/tmp:x"], "x is named twice"),
        (["--no_such_flag"], "unrecognized arguments: --no_such_flag"),
        (["--framew=torch"], "ambiguous option"),
        (["leftover"], "unrecognized arguments: leftover"),
    ],
)
def test_wrong_usage_is_one_line_that_names_the_culprit(argv: list[str], words: str) -> None:
    assert words in refusal(*argv)


@pytest.mark.parametrize("command", SETUPTOOLS_COMMANDS)
def test_setuptools_commands_are_sent_to_pip(command: str) -> None:
    assert "run `pip install .` in this folder" in refusal(command, "--user")
    assert "run `pip install .` in this folder" in refusal("-q", command)


def test_an_empty_dockerfile_path_means_no_image_work() -> None:
    request = ask("--dockerfile_path=")

    assert (request.spec, request.saved_image) == (None, None)


@pytest.mark.parametrize(
    "place", ["saved.tar.gz", "file:///a/b.tar.gz", "https://host.invalid/x.tar.gz", "x.tgz"]
)
def test_a_tarball_is_a_saved_image(place: str) -> None:
    request = ask(f"--dockerfile_path={place}", "--docker_tag=mine")

    assert (request.spec, request.saved_image, request.load_as) == (None, place, "mine")


def test_a_dockerfile_is_found_from_here_and_from_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Docker file").write_text("FROM scratch\n")

    assert parse("--dockerfile_path=Docker file").dockerfile == tmp_path / "Docker file"
    # The checkout has this one; nobody stands in it.
    found = parse("--dockerfile_path=scripts/../Dockerfile").dockerfile
    assert found == CHECKOUT / "Dockerfile"


def test_the_workspace_lies_in_the_checkout_unless_its_path_is_absolute(tmp_path: Path) -> None:
    assert ask().workspace == CHECKOUT / "workspace"
    assert ask(f"--workspace={tmp_path}").workspace == tmp_path


def test_perfzeros_root_data_dir_is_accepted() -> None:
    assert parse("--root_data_dir=/mnt/data") == DEFAULT


def test_site_packages_are_folders_and_names(tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()
    (tmp_path / "c").mkdir()

    request = ask(f"--site_package_downloads={tmp_path}/a:b:one, {tmp_path}/c:two")

    assert request.site_packages == ((tmp_path / "a:b", "one"), (tmp_path / "c", "two"))


def test_local_wheels_are_brought_along_and_named_as_the_build_sees_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my wheels").mkdir()
    for name in ("t-1-py3-none-any.whl", "u-1-py3-none-any.whl", "v-1.tar.gz"):
        (tmp_path / "my wheels" / name).write_text("")

    spec = parse(
        f"--framework_pip_spec=file://{tmp_path}/my%20wheels/t-1-py3-none-any.whl",
        "--extra_pip_specs=numpy; my wheels/u-1-py3-none-any.whl; file://my wheels/v-1.tar.gz",
    )

    assert spec.framework_pip_spec == "/run/build/site/specs/t-1-py3-none-any.whl"
    assert spec.extra_pip_specs == (
        "numpy",
        "/run/build/site/specs/u-1-py3-none-any.whl",
        "/run/build/site/specs/v-1.tar.gz",
    )
    assert [file.source for file in spec.site] == [
        tmp_path / "my wheels" / name
        for name in ("t-1-py3-none-any.whl", "u-1-py3-none-any.whl", "v-1.tar.gz")
    ]


def test_two_local_wheels_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t-1-py3-none-any.whl").write_text("")

    words = refusal(
        f"--framework_pip_spec=file://{tmp_path}/a/t-1-py3-none-any.whl",
        f"--extra_pip_specs=file://{tmp_path}/b/t-1-py3-none-any.whl",
    )

    assert "two files named t-1-py3-none-any.whl" in words


def test_folders_of_wheels_are_brought_along_and_urls_stay(tmp_path: Path) -> None:
    assert "no wheels in" in refusal(f"--find_links={tmp_path}")
    (tmp_path / "a-1-py3-none-any.whl").write_text("")

    spec = parse(
        "--offline", "--find_links", str(tmp_path), f"file://{tmp_path}", "https://host.invalid/w"
    )

    assert spec.find_links == (
        *("/run/build/site/wheels/0", "/run/build/site/wheels/1"),
        "https://host.invalid/w",
    )
    assert build_args(spec)[1:] == (
        f"PIP_FIND_LINKS={' '.join(spec.find_links)}",
        "PIP_NO_INDEX=1",
    )


def test_mirrors_become_pips_own_settings() -> None:
    spec = parse("--index_url=https://host.invalid/simple", "--extra_index_url=https://b https://c")

    assert build_args(spec)[1:] == (
        "PIP_INDEX_URL=https://host.invalid/simple",
        "PIP_EXTRA_INDEX_URL=https://b https://c",
    )


def test_a_certificate_is_brought_along_and_pip_is_pointed_to_the_bundle(tmp_path: Path) -> None:
    path = tmp_path / "site ca.pem"
    path.write_text(CERTIFICATE)

    spec = parse(f"--ca_certificate={path}")

    assert [(file.name, file.source) for file in spec.site] == [("ca/site.pem", path)]
    assert build_args(spec)[1:] == (f"PIP_CERT={CA_BUNDLE}", f"ca_bundle={CA_BUNDLE}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not a certificate", "holds no certificate in PEM form"),
        (CERTIFICATE + "-----BEGIN PRIVATE KEY-----\n", "holds a private key"),
    ],
)
def test_what_is_no_certificate_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(text)

    assert words in refusal(f"--ca_certificate={path}")


INFO = {
    "framework": "tensorflow",
    "framework_version": None,
    "framework_pip_spec": None,
    "extra_pip_specs": "pluggy>=1",
    "extra_apt_packages": "g++ make",
    "base_image": "mine:1",
    "python_version": None,
    "device": "cpu",
    "distributions": {
        "framework": {"tensorflow-cpu": "2.20.0", "pluggy": "1.5.0", "pip": "23.0.1"},
        "perfrun": {"perfrun": "0.1.0", "rich": "13.0"},
    },
}


def write_lock(folder: Path, document: object) -> str:
    path = folder / "lock.json"
    path.write_text(json.dumps(document))
    return f"--lock={path}"


@pytest.mark.parametrize("document", [INFO, {"ml_framework_info": {}, "setup_info": INFO}])
def test_a_lock_says_all_that_no_flag_says(tmp_path: Path, document: object) -> None:
    spec = parse(write_lock(tmp_path, document))

    assert (spec.framework, spec.base_image) == ("tensorflow", "mine:1")
    assert spec.framework_pip_spec == "tensorflow-cpu==2.20.0"
    assert spec.extra_pip_specs == ("pluggy>=1",)
    assert spec.extra_apt_packages == ("g++", "make")
    assert {file.name: file.text for file in spec.site} == {
        "framework.txt": "tensorflow-cpu==2.20.0\npluggy==1.5.0\n",
        "perfrun.txt": "rich==13.0\n",
    }
    assert spec.lock == INFO["distributions"]


def test_flags_go_before_a_lock(tmp_path: Path) -> None:
    lock = write_lock(tmp_path, INFO)

    assert parse(lock, "--base_image=b").base_image == "b"
    assert parse(lock, "--python_version=3.12").base_image == "python:3.12-slim-bookworm"
    other = parse(lock, "--framework=torch")
    assert (other.framework, other.framework_pip_spec) == ("torch", "")
    assert parse(lock, "--framework_version=2.19.0").framework_pip_spec == ""


def test_a_lock_of_an_image_with_a_local_wheel_asks_for_the_wheel(tmp_path: Path) -> None:
    info = {**INFO, "framework_pip_spec": "/run/build/site/specs/t-1-py3-none-any.whl"}

    words = refusal(write_lock(tmp_path, info))

    assert "was built from the local wheel t-1-py3-none-any.whl" in words


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"distributions": {"framework": []}}'])
def test_a_file_that_is_no_lock_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)

    assert f"--lock={path}: is n" in refusal(f"--lock={path}")
