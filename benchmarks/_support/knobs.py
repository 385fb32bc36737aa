"""The knobs of the shipped benchmarks, each declared once, and the base class that takes them.

A knob is a keyword of the class (`--perfzero_constructor_args`) and a flag after `--`. The keyword
wins over the flag, and the flag over the method's default. Flags exist where absl is importable.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, TypeVar, overload

from benchmarks._support.knob import Knob
from perfrun import Benchmark, SetupError

Value = TypeVar("Value")


def _absl_flags() -> Any:
    """Return absl.flags, or None: an environment without absl has the constructor keywords only."""
    try:
        return importlib.import_module("absl.flags")
    except ImportError:
        return None


flags = _absl_flags()

TORCH_COMPILE = ("eager", "default", "reduce-overhead", "max-autotune", "torchscript")
TENSORFLOW_COMPILE = ("eager", "graph", "xla")

_DECLARED = (
    Knob(name="model", kind="text", meaning="the model: `library:name`, or a plain name"),
    Knob(name="forward_only", kind="switch", meaning="inference (true) or training (false)"),
    Knob(name="batch_size", minimum=1, meaning="examples per step and device"),
    Knob(name="batch_sizes", kind="sizes", meaning="several batch sizes, one after the other"),
    Knob(name="iterations", minimum=1, aliases=("num_batches",), meaning="timed steps"),
    Knob(
        name="warmup",
        aliases=("num_warmup_batches",),
        meaning="untimed steps after the first one and before the timed ones",
    ),
    Knob(
        name="num_gpus",
        minimum=1,
        aliases=("num_devices",),
        meaning="accelerators that share the work; on the CPU, processes",
    ),
    Knob(
        name="device",
        kind="text",
        pattern=r"auto|cpu|(gpu|cuda)(:\d+)?|mps|xpu",
        accepts="auto, cpu, gpu, cuda, cuda:N, mps or xpu",
        meaning="where the model runs; auto: the accelerator, where there is one",
    ),
    Knob(
        name="dtype",
        kind="choice",
        choices=("float32", "float16", "bfloat16"),
        synonyms=(("float", "float32"),),
        meaning="the type that the arithmetic is done in; the 16-bit ones by autocast",
    ),
    Knob(name="learning_rate", kind="number", meaning="the rate of a step of training"),
    Knob(
        name="weight_decay",
        kind="number",
        meaning="share of the weights that a step of training adds to their gradients",
    ),
    Knob(name="data_dir", kind="text", meaning="folder of a data set; none: synthetic input"),
    Knob(
        name="data",
        kind="choice",
        choices=("synthetic/device", "synthetic/pinned", "synthetic/pageable"),
        synonyms=(("synthetic", "synthetic/pinned"), ("synthetic/gpu", "synthetic/device")),
        meaning="where synthetic input lives before each step",
    ),
    Knob(
        name="data_backend",
        kind="choice",
        choices=("caffe_lmdb", "image_folder"),
        meaning="the format of the data set",
    ),
    Knob(name="data_shuffle", kind="switch", meaning="read the data set in random order"),
    Knob(
        name="num_loader_threads",
        aliases=("num_workers",),
        meaning="threads or processes that load the data set",
    ),
    Knob(name="data_loader_only", kind="switch", meaning="time the loader alone, without a model"),
    Knob(
        name="cudnn_benchmark",
        kind="switch",
        meaning="let cuDNN try its algorithms and take the fastest",
    ),
    Knob(
        name="cudnn_fastest",
        kind="switch",
        meaning="taken for DLBS' sake and without effect: a setting of Lua Torch",
    ),
    Knob(
        name="compile",
        kind="choice",
        choices=(*TORCH_COMPILE, *TENSORFLOW_COMPILE[1:]),
        meaning="how steps are run: `torch.compile`'s modes, or PyTorch's TorchScript; "
        "`graph` and `xla` are TensorFlow's",
    ),
    Knob(name="channels_last", kind="switch", meaning="memory order of images: channels innermost"),
    Knob(
        name="intra_threads",
        minimum=1,
        aliases=("threads", "num_intra_threads"),
        meaning="threads within one operator",
    ),
    Knob(
        name="inter_threads",
        minimum=1,
        aliases=("num_inter_threads",),
        meaning="operators that run at a time",
    ),
    # At most 32 bits, because numpy's generator, which Keras seeds, too, takes no more.
    Knob(name="seed", maximum=2**32 - 1, meaning="seed of the weights and of the synthetic data"),
    Knob(
        name="input_shape",
        kind="shape",
        meaning="one example, channels first; for text the number of tokens",
    ),
    Knob(
        name="max_batch_search",
        kind="switch",
        meaning="look for the largest batch that fits, and measure with it",
    ),
    Knob(name="max_batch_limit", minimum=1, meaning="where that search ends"),
    Knob(
        name="max_batch_memory",
        minimum=1,
        meaning="bytes of memory that a batch may take in that search",
    ),
    Knob(name="size", minimum=1, meaning="the side of an operator's tensors"),
    Knob(
        name="dist_backend",
        kind="choice",
        choices=("auto", "gloo", "nccl"),
        meaning="how processes talk to each other",
    ),
)
KNOBS: Mapping[str, Knob] = {knob.name: knob for knob in _DECLARED}


class Settings:
    """The knobs of one benchmark object, as its user has set them.

    `takes` names the knobs that `owner` uses. SetupError is raised for a keyword that is unknown,
    not taken, given twice or out of its limits, and for a flag that is not taken.
    """

    def __init__(
        self, *, owner: str = "this", takes: Collection[str] | None = None, **keywords: object
    ) -> None:
        taken = KNOBS if takes is None else {name: KNOBS[name] for name in takes}
        self._taken = taken
        given = {name: value for name, value in keywords.items() if value is not None}
        for name in given:
            if not any(name in knob.names for knob in taken.values()):
                raise SetupError(_refusal(owner, name, taken))
        self._keywords = {
            name: knob.checked(given[spelling])
            for name, knob in taken.items()
            if (spelling := _only_spelling(knob, given)) is not None
        }
        flagged = _given_flags()
        for knob in KNOBS.values():
            spelling = _only_spelling(knob, flagged)
            if spelling is not None and knob.name not in taken and spelling in _OWN_FLAGS:
                raise SetupError(_refusal(owner, spelling, taken))

    @overload
    def value(self, name: str, default: None = None) -> Any: ...

    @overload
    def value(self, name: str, default: Value) -> Value: ...

    def value(self, name: str, default: object = None) -> object:
        """Return the keyword's value, else the flag's, else the default."""
        knob = KNOBS[name]
        if name not in self._taken:  # the class fixes it; a base class reads it all the same
            found = None
        elif name in self._keywords:
            found = self._keywords[name]
        else:
            flagged = _given_flags()
            spelling = _only_spelling(knob, flagged)
            found = None if spelling is None else knob.checked(flagged[spelling])
        return default if found is None else found

    def one_of(self, name: str, default: str, allowed: Collection[str]) -> str:
        """Return the value of a choice; SetupError for a word that is not available here."""
        value = self.value(name, default)
        if value not in allowed:
            raise SetupError(f"{name} is {value!r}; here it must be one of {', '.join(allowed)}")
        return value


def _only_spelling(knob: Knob, given: Mapping[str, object]) -> str | None:
    """Return the spelling by which a knob is given, or None; SetupError for two of them."""
    found = [name for name in knob.names if name in given]
    if len(found) > 1:
        raise SetupError(f"{' and '.join(found)} are the same knob; give one of them")
    return found[0] if found else None


def _refusal(owner: str, name: str, taken: Mapping[str, Knob]) -> str:
    spellings = [name for knob in taken.values() for name in knob.names]
    near = difflib.get_close_matches(name, spellings, n=1)
    known = any(name in knob.names for knob in KNOBS.values())
    said = f"{owner} does not take {name}" if known else f"there is no knob {name}"
    if near and not known:
        return f"{said}; did you mean {near[0]}?"
    return f"{said}; {owner} takes {', '.join(taken) or 'no knobs'}"


# The flags that this module defined: another module may own one of the same name.
_OWN_FLAGS: set[str] = set()


def _given_flags() -> dict[str, Any]:
    """Return the values of all knobs' flags that have one, by spelling."""
    if flags is None:
        return {}
    # Item access: reading a flag as an attribute raises when nobody has parsed the command line.
    spellings = (name for knob in KNOBS.values() for name in knob.names if name in flags.FLAGS)
    values = {name: flags.FLAGS[name].value for name in spellings}
    return {name: value for name, value in values.items() if value is not None}


def _define_flags() -> None:
    class Parser(flags.ArgumentParser):  # type: ignore[misc, name-defined]
        """absl's view of a knob."""

        def __init__(self, knob: Knob) -> None:
            self._knob = knob
            self.syntactic_help = knob.limits

        def parse(self, argument: Any) -> Any:
            return self._knob.parsed(str(argument))

        def flag_type(self) -> str:
            return self._knob.kind

    for knob in KNOBS.values():
        for name in knob.names:
            # Another module of the process may own a flag of this name; then that flag is read.
            if name in flags.FLAGS:
                continue
            meaning = knob.meaning if name == knob.name else f"the same as --{knob.name}"
            flag = flags.Flag(
                Parser(knob),
                flags.ArgumentSerializer(),
                name,
                None,
                f"{meaning} (default: the method's own)",
                boolean=knob.kind == "switch",
            )
            flags.DEFINE_flag(flag)
            _OWN_FLAGS.add(name)


if flags is not None:
    _define_flags()


class Configured(Benchmark):
    """A benchmark with knobs: PerfZero's constructor, and `self.settings`."""

    # The names of the knobs that the class takes. Any other one given to it is an error.
    takes: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        output_dir: str | None = None,
        root_data_dir: str | None = None,
        tpu: str | None = None,
        **knobs: object,
    ) -> None:
        super().__init__(output_dir=output_dir, root_data_dir=root_data_dir, tpu=tpu, **knobs)
        self.settings = Settings(owner=type(self).__name__, takes=self.takes, **knobs)
