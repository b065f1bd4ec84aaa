"""load(...): the trained model in a directory, or one that is bundled with hmrnn."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from hmrnn import checkpoint, kind
from hmrnn.checkpoint import Checkpoint
from hmrnn.errors import InputError
from hmrnn.nn.hmlstm import hmlstms
from hmrnn.pretrained import bundled
from hmrnn.utils.devices import find_device

LARGEST = 1e15
"""The largest number in the weights of a model: float32 can square it and sum such squares."""


def load(source: str | Path, *, device: str | torch.device = "cpu", engine: str = "auto") -> Any:
    """Load a model from a run directory (its best checkpoint), a checkpoint directory, or by the name of a bundled one.

    ``hf://user/name`` or ``hf://user/name@revision`` is one on the Hub of Hugging Face (``pip install hmrnn[hub]``).

    The name of a bundled model, such as "english-small", always means that model. For a directory of the same name give
    ``./english-small`` or a Path. ``device`` is cpu, cuda, cuda:N, or auto: a GPU if there is one.
    The class of what a directory holds depends on what the model reads; ``isinstance(model, hmrnn.TextModel)`` tells.

    Example::

        >>> model = hmrnn.load("english-small")
        >>> model.segment("the quick brown fox").text
        'the quick brown fox'
        >>> model = hmrnn.load("runs/demo")  # doctest: +SKIP
    """
    place = find_device(device)
    directory = locate(source)
    saved = checkpoint.read(directory)
    try:
        _check_sizes(saved)
        with _WithoutDraws():
            network = _network(saved, engine)
        network.load_state_dict(saved.weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the weights in {directory} do not fit its config or vocabulary: {reason}") from error
    bounds = {name: LARGEST for name, _ in network.named_parameters()}  # a buffer may stand for minus infinity
    wrong = [name for name, a in saved.weights.items() if not _within(a, bounds.get(name, sys.float_info.max))]
    if wrong:
        what = f"{wrong[0]} in {directory} is not finite, or holds more than {LARGEST:g}"
        raise InputError(f"{what}: this model has diverged; use an earlier checkpoint")
    for rnn in hmlstms(network):
        rnn.slope = rnn.slope  # the setter refuses a slope that is not positive and finite
    network.to(place).eval()
    return kind.of(saved.config).model(network, saved.reads, saved.config, str(source))


def _within(a: torch.Tensor, bound: float) -> bool:
    """Whether no number is larger, or NaN: these and infinities show in the extremes, and all() is slow."""
    return a.numel() == 0 or all(abs(float(extreme)) <= bound for extreme in a.aminmax())


def locate(source: str | Path) -> Path:
    """The checkpoint directory that :func:`load` reads."""
    return checkpoint.find(bundled.find(source))


def _network(saved: Checkpoint, engine: str = "auto") -> Any:
    """The network that a checkpoint describes, without its weights."""
    network: Any = kind.of(saved.config).network(saved.config, saved.reads, engine)
    if hasattr(network.rnn, "zoneout"):
        network.rnn.zoneout = saved.config.regularise.zoneout  # the one regulariser that also acts in eval()
    return network


def _check_sizes(saved: Checkpoint) -> None:
    """Raise RuntimeError unless the weights have the sizes of the config, before memory of these sizes is taken."""
    for name, weight in saved.weights.items():
        if weight.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            raise RuntimeError(
                f"{name} must hold floating-point numbers of 16, 32 or 64 bits, and holds {weight.dtype}"
            )
    model, found = saved.config.model, {name: weight.shape for name, weight in saved.weights.items()}
    if max(model.num_layers, model.modules) > len(found):
        raise RuntimeError(f"there are {len(found)} tensors for {model.num_layers} layers")
    with torch.device("meta"), _WithoutDraws():
        expected = {name: weight.shape for name, weight in _network(saved).state_dict().items()}
    wrong = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    if wrong:
        name = wrong[0]
        shapes = (tuple(shapes[name]) if name in shapes else "nothing" for shapes in (expected, found))
        raise RuntimeError("{} must have shape {}, and has {}".format(name, *shapes))


class _WithoutDraws(TorchFunctionMode):
    """Skips random and orthogonal initialisation: the weights are read from a file afterwards.

    Initialisation takes longer than reading them, and on the device "meta" it would import torch's compiler.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.__name__ in ("normal_", "uniform_", "kaiming_uniform_", "orthogonal", "draw_reservoir"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
