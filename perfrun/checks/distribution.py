"""Which Linux distribution this is, as far as installing something goes."""

from __future__ import annotations

import shlex

from perfrun.checks.sysfs import Sysfs

_INSTALL = {
    "debian": "sudo apt-get install",
    "ubuntu": "sudo apt-get install",
    "fedora": "sudo dnf install",
    "rhel": "sudo dnf install",
    "suse": "sudo zypper install",
    "arch": "sudo pacman -S",
    "alpine": "sudo apk add",
}


def install_command(sysfs: Sysfs, packages: dict[str, str]) -> str | None:
    """The command that installs a package named by distribution; `*` is its name elsewhere.

    None on a distribution that is not known, or where the package is not to be had.
    """
    for family in _families(sysfs):
        if family in _INSTALL:
            package = packages.get(family, packages.get("*"))
            return f"{_INSTALL[family]} {package}" if package else None
    return None


def kernel_argument_command(sysfs: Sysfs, argument: str) -> str:
    """What puts an argument on the kernel's command line for good; takes a restart."""
    if sysfs.exists("/usr/sbin/grubby") or sysfs.exists("/sbin/grubby"):
        return f"sudo grubby --update-kernel=ALL --args={argument} && sudo reboot"
    if sysfs.exists("/etc/default/grub"):
        edit = f's/^GRUB_CMDLINE_LINUX="/&{argument} /'
        return f"sudo sed -i '{edit}' /etc/default/grub && sudo update-grub && sudo reboot"
    return f"on the host: add {argument} to the kernel's command line and restart"


def _families(sysfs: Sysfs) -> list[str]:
    """Names of the distribution and of those it is made from, the nearest first: os-release(5)."""
    text = sysfs.text("/etc/os-release") or sysfs.text("/usr/lib/os-release") or ""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        try:
            values[name.strip()] = " ".join(shlex.split(value))
        except ValueError:  # an open quote
            continue
    return [*values.get("ID", "").split(), *values.get("ID_LIKE", "").split()]
