"""Time the steps of a PyTorch model in a loop written by hand; print JSON.

    python overhead/loops/torch_loop.py --model=resnet18 --phase=training --batch_size=2

It imports PyTorch and the model's library, and nothing of perfrun. With `--count` it times nothing
and counts the FLOPs of an example with PyTorch's own counter.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# torchvision registers fakes of operators that its library declares, and fails without the library,
# as where its wheel was built for another PyTorch. Its models need none of them.
_DECLARED = torch.library.Library("torchvision", "FRAGMENT")

SIDES = {
    **{
        f"efficientnet_b{number}": side
        for number, side in enumerate((224, 240, 260, 300, 380, 456, 528, 600))
    },
    "inception_v3": 299,
    "alexnet": 227,
    "alexnet_owt": 227,
    "overfeat": 231,
}
TEXTS = ("bert_base", "bert_large", "distilbert", "gpt2", "gpt2_medium", "llama_small")
FEATURES = {"deep_mnist": 784, "acoustic_model": 540, "sensor_net": 784}
TOKENS = 128
UNNORMALISED = ("vgg", *FEATURES)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--phase", choices=("inference", "training"), default="inference")
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", type=int, help="side of an image, or tokens; none: the model's")
    parser.add_argument("--count", action="store_true", help="count FLOPs, time nothing")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    training = options.phase == "training"
    model = built(options.model).train(training)
    batch = 2 if options.count else options.batch_size
    inputs = example(options.model, model, batch, options.size)
    labels = targets(options.model, inputs)
    if options.count:
        found: dict[str, Any] = {"flops_per_example": counted(model, inputs, labels) / batch}
    else:
        step = (
            trainer(options.model, model, inputs, labels) if training else predictor(model, inputs)
        )
        for _ in range(1 + options.warmup):
            step()
        times_s = []
        for _ in range(options.steps):
            began = time.perf_counter()
            step()
            times_s.append(time.perf_counter() - began)
        found = {
            "median_s": statistics.median(times_s),
            "fastest_s": min(times_s),
            "peak_rss_bytes": peak_rss_bytes(),
        }
    found["parameters"] = sum(weight.numel() for weight in model.parameters())
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def built(name: str) -> Any:
    """Build a model with random weights as the documentation of its library does."""
    own = {
        "deep_mnist": lambda: dense(784, 2500, 2000, 1500, 1000, 500, 10),
        "acoustic_model": lambda: dense(540, *(2048,) * 5, 8192),
        "sensor_net": lambda: dense(784, *(1024,) * 3, 16),
        "alexnet": alexnet,
        "alexnet_owt": alexnet_owt,
        "overfeat": overfeat,
    }
    if name in own:
        return own[name]()
    if name in TEXTS:
        return text_model(name)
    import_torchvision()
    import torchvision

    options: dict[str, Any] = {}
    if name in ("googlenet", "inception_v3"):
        options = {"aux_logits": False, "init_weights": False}
    return torchvision.models.get_model(name, weights=None, **options)


def import_torchvision() -> None:
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        _DECLARED.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _DECLARED.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def text_model(name: str) -> Any:
    import_torchvision()
    import transformers

    large = {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    }
    if name.startswith("bert"):
        more = large if name == "bert_large" else {}
        return transformers.BertModel(transformers.BertConfig(**more))
    if name == "distilbert":
        return transformers.DistilBertModel(transformers.DistilBertConfig())
    if name.startswith("gpt2"):
        more = {"n_embd": 1024, "n_layer": 24, "n_head": 16} if name == "gpt2_medium" else {}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False, **more))
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=512,
            intermediate_size=1376,
            num_hidden_layers=8,
            num_attention_heads=8,
            vocab_size=32000,
            use_cache=False,
        )
    )


def dense(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def conv(inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0) -> list[Any]:
    return [nn.Conv2d(inputs, outputs, size, stride, padding), nn.ReLU(inplace=True)]


def head(inputs: int, first: int, second: int) -> list[Any]:
    return [
        *(nn.Flatten(), nn.Dropout(), nn.Linear(inputs, first), nn.ReLU(inplace=True)),
        *(nn.Dropout(), nn.Linear(first, second), nn.ReLU(inplace=True), nn.Linear(second, 1000)),
    ]


def alexnet() -> nn.Sequential:
    """Build AlexNet on one device, with its local response normalisation."""
    norm = {"alpha": 1e-4, "beta": 0.75, "k": 2.0}
    return nn.Sequential(
        *(*conv(3, 96, 11, 4), nn.LocalResponseNorm(5, **norm), nn.MaxPool2d(3, 2)),
        *(*conv(96, 256, 5, 1, 2), nn.LocalResponseNorm(5, **norm), nn.MaxPool2d(3, 2)),
        *(*conv(256, 384, 3, 1, 1), *conv(384, 384, 3, 1, 1), *conv(384, 256, 3, 1, 1)),
        nn.MaxPool2d(3, 2),
        *head(9216, 4096, 4096),
    )


def alexnet_owt() -> nn.Sequential:
    return nn.Sequential(
        *(*conv(3, 64, 11, 4, 2), nn.MaxPool2d(3, 2), *conv(64, 192, 5, 1, 2), nn.MaxPool2d(3, 2)),
        *(*conv(192, 384, 3, 1, 1), *conv(384, 256, 3, 1, 1), *conv(256, 256, 3, 1, 1)),
        nn.MaxPool2d(3, 2),
        *head(9216, 4096, 4096),
    )


def overfeat() -> nn.Sequential:
    return nn.Sequential(
        *(*conv(3, 96, 11, 4), nn.MaxPool2d(2, 2), *conv(96, 256, 5), nn.MaxPool2d(2, 2)),
        *(*conv(256, 512, 3, 1, 1), *conv(512, 1024, 3, 1, 1), *conv(1024, 1024, 3, 1, 1)),
        nn.MaxPool2d(2, 2),
        *head(36864, 3072, 4096),
    )


def example(name: str, model: Any, batch: int, size: int | None) -> Any:
    if name in TEXTS:
        return torch.randint(model.config.vocab_size, (batch, size or TOKENS))
    if name in FEATURES:
        return torch.randn(batch, FEATURES[name])
    side = size or SIDES.get(name, 224)
    return torch.randn(batch, 3, side, side)


def targets(name: str, inputs: Any) -> Any:
    """Return the tokens themselves, nothing for BERT (it has no head), or random classes."""
    if name in ("bert_base", "bert_large", "distilbert"):
        return None
    if name in TEXTS:
        return inputs
    return torch.randint(10, (inputs.shape[0],))


def loss_of(output: Any, labels: Any) -> Any:
    if labels is None:
        return sum(part.float().square().mean() for part in output.values())
    if labels.dim() == 2:
        logits = output.logits[:, :-1].flatten(0, 1)
        return nn.functional.cross_entropy(logits, labels[:, 1:].flatten())
    return nn.functional.cross_entropy(output, labels)


def predictor(model: Any, inputs: Any) -> Any:
    def step() -> Any:
        with torch.inference_mode():
            return model(inputs)

    return step


def trainer(name: str, model: Any, inputs: Any, labels: Any) -> Any:
    # With 0.01, the loss of VGG would become NaN, and that of the dense nets 0: gradients and
    # momentum would be subnormal numbers, which are slow on a CPU.
    rate = 0.0001 if name.startswith(UNNORMALISED) else 0.01
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def counted(model: Any, inputs: Any, labels: Any) -> int:
    """Count the FLOPs of a pass with PyTorch's counter, attention as its matrix products.

    The gradient of a grouped convolution's weights is counted by the groups of its forward pass:
    the counter of PyTorch 2.13 ignores them there. The counter sees nothing of the fused call by
    which `nn.MultiheadAttention` infers, so that is off.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    torch.backends.mha.set_fastpath_enabled(False)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        if not model.training:
            with torch.no_grad():
                model(inputs)
        else:
            loss_of(model(inputs), labels).backward()
    total = int(counter.get_total_flops())
    return total - (surplus_of_groups(model, inputs) if model.training else 0)


def surplus_of_groups(model: Any, inputs: Any) -> int:
    """Return what the counter adds for the weights' gradients of grouped convolutions."""
    surplus = 0

    def note(layer: Any, _inputs: Any, output: Any) -> None:
        nonlocal surplus
        taps = layer.weight[0, 0].numel()
        full = 2 * output.numel() * layer.in_channels * taps
        surplus += full - full // layer.groups

    layers = [
        layer for layer in model.modules() if isinstance(layer, nn.Conv2d) and layer.groups > 1
    ]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    with torch.no_grad():
        model(inputs)
    for hook in hooks:
        hook.remove()
    return surplus


def peak_rss_bytes() -> int:
    """Return the kernel's mark of this process's resident memory (VmHWM of proc(5))."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


if __name__ == "__main__":
    sys.exit(main())
