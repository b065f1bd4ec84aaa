"""The commands that use a model: load it, and show what its kind of data makes of the command."""

from __future__ import annotations

from typing import Any

from hmrnn import kind
from hmrnn.cli.arguments import check_kind
from hmrnn.cli.display import show, show_progress
from hmrnn.errors import InputError
from hmrnn.pretrained.load import load
from hmrnn.utils.devices import choose_device


def run(command: str, arguments: Any) -> int:
    model, do = opened(command, arguments)
    show(do(model, arguments), as_json=getattr(arguments, "json", False))
    return 0


def opened(command: str, arguments: Any) -> tuple[Any, Any]:
    """The model of a command, and a function that carries the command out; InputError if they do not go together."""
    model = load(arguments.model, device=choose_device(getattr(arguments, "device", "cpu")))
    reads = kind.of(model.config)
    do = getattr(reads.commands(show_progress), command, None)
    if do is None:
        can = [one for one in ("segment", "predict") if hasattr(reads.commands(show_progress), one)]
        raise InputError(f"{arguments.model} is a model of {reads.name}, for hmrnn {' and '.join(can)}, not {command}")
    check_kind(command, arguments, reads)
    if (condition := getattr(arguments, "condition", None)) is not None:
        model.network.condition = model.as_condition(condition)
    return model, do
