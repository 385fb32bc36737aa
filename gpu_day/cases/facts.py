"""Print what one framework sees here, as one line of JSON: `facts.py torch`.

It is run by each interpreter that may have a framework, in a process that may die.
"""

import json
import sys
from typing import Any


def torch_facts() -> dict[str, Any]:
    """Return PyTorch's version, its CUDA and its devices."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        "version": str(torch.__version__),
        "built_for": torch.version.cuda or getattr(torch.version, "hip", None),
        "devices": [torch.cuda.get_device_name(index) for index in range(count)],
    }


def tensorflow_facts() -> dict[str, Any]:
    """Return TensorFlow's version and its devices."""
    import tensorflow

    info = tensorflow.sysconfig.get_build_info()
    found = tensorflow.config.list_physical_devices("GPU")
    return {
        "version": str(tensorflow.__version__),
        "built_for": info.get("cuda_version"),
        "devices": [device.name for device in found],
    }


def jax_facts() -> dict[str, Any]:
    """Return JAX' version and its devices."""
    import jax

    found = [device for device in jax.devices() if device.platform != "cpu"]
    return {
        "version": str(jax.__version__),
        "built_for": found[0].platform if found else None,
        "devices": [str(device.device_kind) for device in found],
    }


if __name__ == "__main__":
    asked = {"torch": torch_facts, "tensorflow": tensorflow_facts, "jax": jax_facts}
    sys.stdout.write("\n" + json.dumps(asked[sys.argv[1]]()) + "\n")
