"""The description of an image to build, and the checks of its parts."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence

from perfrun.errors import UsageError

FRAMEWORKS = ("torch", "tensorflow", "jax", "both")
DEVICES = ("cpu", "cuda", "rocm")
BUILD_ARG_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PATH_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
IMAGE_NAME = re.compile(
    r"(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?"  # registry
    rf"{PATH_COMPONENT}(?:/{PATH_COMPONENT})*"
    r"(?::\w[\w.-]{0,127})?",  # tag
    re.ASCII,
)
DIGEST = re.compile(r"(?:@[a-z0-9]+:[0-9a-f]{32,})?")
VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc|\.post|\.dev)\d+)*(\+[A-Za-z0-9.]+)?")
APT_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(?:=[A-Za-z0-9.+~:-]+)?")
PYTHON_VERSION = re.compile(r"3\.(\d{1,3})", re.ASCII)
OLDEST_PYTHON = 8

# Build arguments that have a flag of their own.
NAMED_BUILD_ARGS = (
    *("framework", "framework_version", "framework_pip_spec", "extra_pip_specs", "device"),
    *("base_image", "python_version", "extra_apt_packages"),
)
# The folder on which the Dockerfile mounts scripts/site while it installs.
SITE_IN_IMAGE = "/run/build/site"
CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
DOCKERFILE = "Dockerfile"
NO_GOOGLE_STORAGE = (
    "gs:// needs Google's tools, which perfrun does without; "
    "fetch the file and give its path, or an https:// url"
)


@dataclass(frozen=True)
class SiteFile:
    """A file or folder of this machine that goes into the copy of the build context."""

    name: str
    """Below scripts/site."""
    source: Path | None
    """A file or folder to copy; None: `text` is the content."""
    text: str = ""


@dataclass(frozen=True)
class ImageSpec:
    """One image to build. Empty means the default of the Dockerfile or install_framework.py."""

    framework: str
    docker_tag: str
    framework_version: str = ""
    framework_pip_spec: str = ""
    extra_pip_specs: tuple[str, ...] = ()
    extra_apt_packages: tuple[str, ...] = ()
    device: str = "cpu"
    base_image: str = ""
    python_version: str = ""
    dockerfile: Path | None = None
    """None: the checkout's own."""
    index_url: str = ""
    extra_index_url: str = ""
    find_links: tuple[str, ...] = ()
    """Urls, and folders as the build sees them."""
    is_offline: bool = False
    """Nothing is fetched: the build has no network."""
    has_certificate: bool = False
    lock: Mapping[str, Mapping[str, str]] | None = None
    """Distributions, by environment, that the image must have."""
    site: tuple[SiteFile, ...] = ()
    extra_build_args: tuple[str, ...] = ()
    """`name=value` each, in the order given."""


def parse_line(flag: str, value: str) -> str:
    """Return a value of one line: in the Dockerfile's environment a line break would end it."""
    if len(value.splitlines()) > 1:
        raise UsageError(f"{flag}={value!r}: must be one line")
    return value.strip()


def parse_list(flag: str, text: str) -> tuple[str, ...]:
    """Parse a `;`-separated list of pip specs, which cannot have environment markers."""
    specs = (spec.strip() for spec in parse_line(flag, text).split(";"))
    return tuple(spec for spec in specs if spec)


def parse_apt_packages(text: str) -> tuple[str, ...]:
    """Parse names of Debian packages, NAME or NAME=VERSION, separated by spaces."""
    names = tuple(parse_line("--extra_apt_packages", text).split())
    for name in names:
        if not APT_PACKAGE.fullmatch(name):
            raise UsageError(
                f"--extra_apt_packages={text}: {name!r} is no Debian package's name, like g++"
            )
    return names


def parse_choice(flag: str, value: str, choices: tuple[str, ...]) -> str:
    """Check that a value is one of the choices; empty means the first."""
    value = value or choices[0]
    if value not in choices:
        raise UsageError(f"{flag}={value}: must be one of {', '.join(choices)}")
    return value


def parse_version(value: str) -> str:
    """Check the framework's exact version; a range belongs into --framework_pip_spec."""
    if value and not VERSION.fullmatch(value):
        raise UsageError(f"--framework_version={value}: must be a version such as 2.13.0")
    return value


def parse_python_version(value: str) -> str:
    """Check a version of Python, X.Y, which names an interpreter and a base image."""
    found = PYTHON_VERSION.fullmatch(value)
    if value and not found:
        raise UsageError(f"--python_version={value}: must be X.Y, such as 3.11")
    if found and int(found[1]) < OLDEST_PYTHON:
        raise UsageError(f"--python_version={value}: perfrun's worker needs Python 3.8 or newer")
    return value


def parse_build_arg(text: str) -> str:
    """Check one NAME=VALUE of --extra_docker_build_args; the name must not have a flag."""
    name, separator, _ = text.partition("=")
    if not separator or not BUILD_ARG_NAME.fullmatch(name):
        raise UsageError(f"--extra_docker_build_args {text!r}: must be NAME=VALUE")
    if name in NAMED_BUILD_ARGS:
        raise UsageError(f"--extra_docker_build_args {text!r}: there is a flag for this, --{name}")
    return text


def parse_image_name(flag: str, name: str, may_have_digest: bool = False) -> str:
    """Check an image name by the engine's rules, so that a wrong one fails before the build."""
    plain, at_sign, digest = name.partition("@") if may_have_digest else (name, "", "")
    if not IMAGE_NAME.fullmatch(plain) or not DIGEST.fullmatch(at_sign + digest):
        raise UsageError(f"{flag}={name}: not an image name in lower case, like perfrun/torch:2.13")
    return name


def parse_dockerfile(text: str, checkout: Path) -> Path | None:
    """Return a Dockerfile as given or, like PerfZero, in the checkout; None for our own."""
    if text == DOCKERFILE:
        return None
    if text.startswith("gs://"):
        raise UsageError(f"--dockerfile_path={text}: {NO_GOOGLE_STORAGE}")
    for path in (Path(text), checkout / text):
        if os.path.isfile(path):  # pathlib raises for a name that is too long
            return path.resolve()
    raise UsageError(f"--dockerfile_path={text}: there is no such file, here or in {checkout}")


def parse_certificate(text: str) -> Path | None:
    """Return the path of a file of PEM certificates, checked."""
    if not text:
        return None
    path = Path(text)
    try:
        content = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"--ca_certificate={text}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise UsageError("--ca_certificate: a path has no zero byte") from None
    if "-----BEGIN CERTIFICATE-----" not in content:
        raise UsageError(f"--ca_certificate={text}: holds no certificate in PEM form")
    if "PRIVATE KEY-----" in content:
        raise UsageError(f"--ca_certificate={text}: holds a private key, which no image may carry")
    return path.resolve()


def check_offline(is_offline: bool, find_links: Sequence[str], index_url: str) -> None:
    """Check that an offline build has wheels and no index."""
    if is_offline and index_url:
        raise UsageError("--offline and --index_url contradict each other: give only one of them")
    if is_offline and not any("://" not in link for link in find_links):
        raise UsageError("--offline needs --find_links=DIR, a folder of wheels of this machine")


def parse_site_packages(text: str) -> tuple[tuple[Path, str], ...]:
    """Parse `src_dir:new_name,...`: the folders exist, and each name is one plain word."""
    pairs = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        source, separator, name = item.rpartition(":")
        if not separator or not source:
            raise UsageError(f"--site_package_downloads={item}: must be SRC_DIR:NEW_NAME")
        if name in ("", ".", "..") or "/" in name or name.startswith("."):
            raise UsageError(f"--site_package_downloads={item}: {name!r} is no name for a folder")
        if not os.path.isdir(source):
            raise UsageError(f"--site_package_downloads={item}: there is no folder {source}")
        pairs.append((Path(source).resolve(), name))
    names = [name for _, name in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"--site_package_downloads: {twice[0]} is named twice")
    return tuple(pairs)


def build_args(spec: ImageSpec) -> tuple[str, ...]:
    """Return the build arguments as `name=value`; the Dockerfile has defaults for the others."""
    values = {
        "framework": spec.framework,
        "framework_version": spec.framework_version,
        "framework_pip_spec": spec.framework_pip_spec,
        "extra_pip_specs": ";".join(spec.extra_pip_specs),
        "extra_apt_packages": " ".join(spec.extra_apt_packages),
        "device": "" if spec.device == "cpu" else spec.device,
        "base_image": spec.base_image,
        "python_version": spec.python_version,
        "PIP_INDEX_URL": spec.index_url,
        "PIP_EXTRA_INDEX_URL": spec.extra_index_url,
        "PIP_FIND_LINKS": " ".join(spec.find_links),
        "PIP_NO_INDEX": "1" if spec.is_offline else "",
        "PIP_CERT": CA_BUNDLE if spec.has_certificate else "",
        "ca_bundle": CA_BUNDLE if spec.has_certificate else "",
    }
    given = (f"{name}={value}" for name, value in values.items() if value)
    return (*given, *spec.extra_build_args)
