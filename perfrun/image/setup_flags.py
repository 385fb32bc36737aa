"""The command line of setup.py: flags become one value, or an error of one line.

PerfZero's flags keep their names and meanings; those for Google's cloud are refused by name.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Optional, Sequence

from perfrun.errors import UsageError
from perfrun.image.context import Site
from perfrun.image.lock import Lock, read_lock
from perfrun.image.spec import (
    DEVICES,
    DOCKERFILE,
    FRAMEWORKS,
    NO_GOOGLE_STORAGE,
    ImageSpec,
    check_offline,
    parse_apt_packages,
    parse_build_arg,
    parse_certificate,
    parse_choice,
    parse_dockerfile,
    parse_image_name,
    parse_line,
    parse_list,
    parse_python_version,
    parse_site_packages,
    parse_version,
)

SAVED_IMAGE_ENDINGS = (".tar.gz", ".tgz", ".tar")
SETUPTOOLS_COMMANDS = (
    *("alias", "bdist", "bdist_dumb", "bdist_egg", "bdist_rpm", "bdist_wheel", "bdist_wininst"),
    *("build", "build_clib", "build_ext", "build_py", "build_scripts", "check", "clean"),
    *("develop", "dist_info", "easy_install", "editable_wheel", "egg_info", "install"),
    *("install_data", "install_egg_info", "install_headers", "install_lib", "install_scripts"),
    *("register", "rotate", "saveopts", "sdist", "setopt", "test", "upload", "upload_docs"),
)
TEXT_FLAGS = (
    ("--framework", "NAME", "torch (default), tensorflow, jax, or both: torch and tensorflow"),
    ("--framework_version", "VERSION", "its version, e.g. 2.13.0 (default: the pinned one)"),
    ("--framework_pip_spec", "SPEC", "the framework for pip, e.g. torch>=2.12, or file:///a.whl"),
    (
        "--tensorflow_pip_spec",
        "SPEC",
        "PerfZero's name for both of --framework=tensorflow and this",
    ),
    ("--extra_pip_specs", "'SPEC;SPEC'", "more packages for the benchmarks; file:// wheels too"),
    ("--extra_apt_packages", "'NAME NAME'", "Debian packages, e.g. g++ for torch.compile"),
    ("--device", "NAME", "cpu (default), cuda or rocm: which build of the framework"),
    ("--base_image", "IMAGE", "build on this image (default: see Dockerfile)"),
    ("--python_version", "X.Y", "the framework's Python (default: the base image's python3)"),
    ("--index_url", "URL", "package index to use instead of the default"),
    ("--extra_index_url", "'URL URL'", "further package indexes"),
    ("--ca_certificate", "FILE", "PEM file of the site's own certificate authorities"),
    ("--lock", "FILE", "build with the versions in an image.json or in a perfzero_summary.json"),
    ("--sbom", "FILE", "copy the image's bill of materials (CycloneDX, JSON) to this file"),
    ("--docker_tag", "NAME", "name of the image (default: perfrun/<framework>)"),
    ("--workspace", "DIR", "folder of the workspace, from the checkout (default: workspace)"),
    ("--site_package_downloads", "SRC:NAME,..", "copy folders to WORKSPACE/site-packages/NAME"),
    ("--root_data_dir", "DIR", "accepted for PerfZero's sake; data sets are mounted at /data"),
    ("--gcloud_key_file_url", "URL", "PerfZero's; must be empty"),
    ("--gce_nvme_raid", "ANY", "PerfZero's; must be empty"),
)
LIST_FLAGS = (
    ("--find_links", "URL|DIR", "where pip finds wheels: a url, or a folder of this machine"),
    ("--extra_docker_build_args", "NAME=VALUE", "more --build-arg; a value may hold spaces"),
)


@dataclass(frozen=True)
class Request:
    """The work that setup.py is asked to do; `spec` and `saved_image` are never both set."""

    spec: ImageSpec | None
    saved_image: str | None
    """Path or url of an image to load."""
    load_as: str
    """Name for the loaded image; empty: the name in the file."""
    ca_certificate: Path | None
    site_packages: tuple[tuple[Path, str], ...]
    """(folder, new name) in the order given."""
    workspace: Path
    is_dry_run: bool
    sbom: Optional[Path] = None
    """File for the image's bill of materials."""


class ArgumentParser(argparse.ArgumentParser):
    """argparse whose errors are UsageErrors of one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `python3 setup.py --help`")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of setup.py. Flags may be abbreviated; empty means not given."""
    parser = ArgumentParser(
        prog="python3 setup.py",
        description="Build the container image that `docker compose run --rm perfrun` runs.",
        epilog="perfrun itself is installed with `pip install .`",
    )
    for flag, metavar, text in TEXT_FLAGS:
        parser.add_argument(flag, metavar=metavar, default="", help=text)
    parser.add_argument(
        "--dockerfile_path",
        metavar="PATH",
        default=DOCKERFILE,
        help="Dockerfile, or a saved image *.tar.gz (path or url) to load; empty: no image",
    )
    for flag, metavar, text in LIST_FLAGS:
        parser.add_argument(
            flag, metavar=metavar, nargs="*", action="extend", default=[], help=text
        )
    parser.add_argument(
        "--offline",
        action="store_true",
        help="fetch nothing: packages from --find_links only, a build without network",
    )
    parser.add_argument(
        "--dry_run", action="store_true", help="print the commands and do not run them"
    )
    return parser


def parse_arguments(argv: Sequence[str], checkout: Path) -> Request:
    """Parse the command line. Raises UsageError. Reads files that flags name, writes none."""
    refuse_setuptools_command(argv)
    flags = make_parser().parse_args(argv)
    refuse_google_flags(flags)
    wants_saved = flags.dockerfile_path.endswith(SAVED_IMAGE_ENDINGS)
    certificate = parse_certificate(flags.ca_certificate)
    if flags.docker_tag:
        parse_image_name("--docker_tag", flags.docker_tag)
    if wants_saved and flags.dockerfile_path.startswith("gs://"):
        raise UsageError(f"--dockerfile_path={flags.dockerfile_path}: {NO_GOOGLE_STORAGE}")
    wants_build = bool(flags.dockerfile_path) and not wants_saved
    return Request(
        spec=parse_spec(flags, checkout, certificate) if wants_build else None,
        saved_image=flags.dockerfile_path if wants_saved else None,
        load_as=flags.docker_tag,
        ca_certificate=certificate,
        site_packages=parse_site_packages(flags.site_package_downloads),
        workspace=checkout / (flags.workspace or "workspace"),
        is_dry_run=flags.dry_run,
        sbom=parse_sbom(flags.sbom, wants_build),
    )


def parse_sbom(text: str, wants_build: bool) -> Optional[Path]:
    """Return the file for the bill of materials; its folder has to be there before the build."""
    if not text:
        return None
    if not wants_build:
        raise UsageError("--sbom: only an image that is built here has a bill of materials")
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(f"--sbom={text}: name a file in a folder that is there")
    return path


def refuse_setuptools_command(argv: Sequence[str]) -> None:
    """Refuse commands of setuptools and name pip: this setup.py builds images."""
    words = [word for word in argv if not word.startswith("-")]
    if words and words[0] in SETUPTOOLS_COMMANDS and argv[0] in (words[0], "-q", "--quiet", "-v"):
        raise UsageError(
            f"setup.py builds the container image and knows no command {words[0]!r}; "
            "to install perfrun, run `pip install .` in this folder"
        )


def refuse_google_flags(flags: argparse.Namespace) -> None:
    """Refuse, with the reason, PerfZero's flags for its authors' cloud machines."""
    if flags.gce_nvme_raid:
        raise UsageError(
            "--gce_nvme_raid: formats every NVMe disk of the machine, in use or not; perfrun does "
            "not do that: prepare the disk yourself and mount it at /data"
        )
    if flags.gcloud_key_file_url:
        raise UsageError(
            "--gcloud_key_file_url: only Google's tools read such a key, and perfrun has none; "
            "leave the flag out"
        )


def parse_spec(flags: argparse.Namespace, checkout: Path, certificate: Path | None) -> ImageSpec:
    """Return the image to build; a lock counts where no flag is given."""
    lock = read_lock(Path(flags.lock)) if flags.lock else Lock()
    facts = lock.facts
    name, pip_spec, version = parse_framework(flags, facts)
    if not (pip_spec or version) and name == facts.get("framework"):
        pip_spec = lock.framework_spec(name)
    extra = flags.extra_pip_specs or facts.get("extra_pip_specs", "")
    apt = flags.extra_apt_packages or facts.get("extra_apt_packages", "")
    device = parse_choice("--device", flags.device or facts.get("device", ""), DEVICES)
    python_version = parse_python_version(flags.python_version or facts.get("python_version", ""))
    site = Site()
    find_links = tuple(site.place_links(link) for link in flags.find_links if link)
    check_offline(flags.offline, find_links, flags.index_url)
    if device == "rocm" and name == "both":
        raise UsageError(
            "--framework=both --device=rocm: no releases of torch and tensorflow-rocm go together; "
            "build an image for each"
        )
    return ImageSpec(
        framework=name,
        docker_tag=flags.docker_tag or f"perfrun/{name}",
        framework_version=version,
        framework_pip_spec=";".join(
            site.place_spec("--framework_pip_spec", each)
            for each in parse_list("--framework_pip_spec", pip_spec)
        ),
        extra_pip_specs=tuple(
            site.place_spec("--extra_pip_specs", each)
            for each in parse_list("--extra_pip_specs", extra)
        ),
        extra_apt_packages=parse_apt_packages(apt),
        device=device,
        base_image=parse_base_image(flags, facts, python_version),
        python_version=python_version,
        dockerfile=parse_dockerfile(flags.dockerfile_path, checkout),
        index_url=parse_line("--index_url", flags.index_url),
        extra_index_url=parse_line("--extra_index_url", flags.extra_index_url),
        find_links=find_links,
        is_offline=flags.offline,
        has_certificate=certificate is not None,
        lock=lock.distributions or None,
        site=site.files(lock, certificate),
        extra_build_args=tuple(
            parse_build_arg(text) for text in flags.extra_docker_build_args if text
        ),
    )


def parse_framework(flags: argparse.Namespace, facts: dict[str, str]) -> tuple[str, str, str]:
    """Return (framework, pip spec, version); PerfZero's flag implies TensorFlow."""
    name, pip_spec, version = (
        *(flags.framework, flags.framework_pip_spec),
        parse_version(flags.framework_version),
    )
    if flags.tensorflow_pip_spec:
        if pip_spec:
            raise UsageError("--tensorflow_pip_spec is --framework_pip_spec: give only one of them")
        if name not in ("", "tensorflow"):
            raise UsageError(f"--tensorflow_pip_spec does not go with --framework={name}")
        name, pip_spec = "tensorflow", flags.tensorflow_pip_spec
    if version and pip_spec:
        raise UsageError("--framework_version and a pip spec say the same: give only one of them")
    same = name in ("", facts.get("framework", name))
    if same and not (pip_spec or version):
        pip_spec, version = facts.get("framework_pip_spec", ""), facts.get("framework_version", "")
    name = parse_choice("--framework", name or facts.get("framework", ""), FRAMEWORKS)
    if name == "both" and version:
        raise UsageError(
            f"--framework_version={version}: of which framework? Give "
            "--framework_pip_spec='torch==VERSION; tensorflow-cpu==VERSION'"
        )
    specs = parse_list("--framework_pip_spec", pip_spec)
    if len(specs) > (2 if name == "both" else 1):
        raise UsageError(
            f"--framework_pip_spec={pip_spec}: one spec, or two with --framework=both; "
            "more packages go into --extra_pip_specs"
        )
    return name, pip_spec, version


def parse_base_image(flags: argparse.Namespace, facts: dict[str, str], python_version: str) -> str:
    """Return the base image; a Python version alone means the official image that has it."""
    name = str(flags.base_image)
    if not name and not flags.python_version:
        name = facts.get("base_image", "")
    if not name and python_version:
        name = f"python:{python_version}-slim-bookworm"
    return parse_image_name("--base_image", name, may_have_digest=True) if name else ""
