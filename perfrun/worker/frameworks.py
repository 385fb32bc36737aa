"""Which ML framework a finished (or failed) benchmark has loaded: name, version, build."""

from __future__ import annotations

import sys
from types import ModuleType

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

NAMES = ("tensorflow", "torch", "jax")


def loaded_frameworks() -> List[Dict[str, Optional[str]]]:
    """Describe every framework in this process; nothing is imported to find out."""
    found = []
    for name in NAMES:
        module = sys.modules.get(name)
        version = getattr(module, "__version__", None)
        if isinstance(version, str):
            build = _build_version(name, module)
            found.append({"name": name, "version": version, "build_version": build})
    return found


def main_framework(benchmark_class: Any) -> Optional[Dict[str, Optional[str]]]:
    """Return the framework the benchmark is about, when several are loaded.

    A class derived from TensorFlow's is TensorFlow's. Otherwise the one its module names, and
    failing that the first one loaded.
    """
    found = loaded_frameworks()
    if len(found) < 2 or benchmark_class is None:
        return found[0] if found else None
    bases = {base.__module__.partition(".")[0] for base in benchmark_class.__mro__}
    module = sys.modules.get(benchmark_class.__module__)
    named = {_origin(value) for value in list(vars(module).values())} if module else set()
    for names in (bases, named):
        for framework in found:
            if framework["name"] in names:
                return framework
    return found[0]


def _origin(value: Any) -> Optional[str]:
    """The top-level package that a global name of a module was imported from."""
    try:
        name = value.__name__ if isinstance(value, ModuleType) else value.__module__
        return str(name).partition(".")[0]
    except Exception:  # noqa: BLE001 - proxies raise what they like when they are asked
        return None


def _build_version(name: str, module: Any) -> Optional[str]:
    if name == "tensorflow":
        return _plain(getattr(module, "__git_version__", None))
    if name == "torch":
        return _plain(getattr(getattr(module, "version", None), "git_version", None))
    return _plain(getattr(sys.modules.get("jaxlib"), "__version__", None))


def _plain(version: Any) -> Optional[str]:
    """TensorFlow's git version may be the text of a bytes literal; PerfZero strips that."""
    if version is None:
        return None
    text = str(version)
    return text[2:-1] if text.startswith("b'") else text
