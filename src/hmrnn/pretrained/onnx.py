"""One step of a model as ONNX: a symbol or a point and the state in; what follows, boundaries and the next state out.

The inputs are ``x`` and, for a model that takes them, ``condition``, ``clock`` and ``text``, as in
:class:`hmrnn.nn.context.Condition`; and the state, ``h.0`` and so on, which is zeros at the start of a sequence. The
outputs are ``probabilities`` of symbols, or the parts of another prediction; ``boundaries``; and the next state,
``next.h.0`` and so on. All have a first dimension for sequences side by side. The metadata ``config`` and ``reads`` are
the files config.json and input.json of a checkpoint.
"""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hmrnn.config.json import to_json
from hmrnn.errors import InputError, installed
from hmrnn.nn.context import Condition
from hmrnn.nn.distributions import Categorical
from hmrnn.nn.predictor import Predictor
from hmrnn.ops import State
from hmrnn.pretrained.export import without_places
from hmrnn.pretrained.load import load
from hmrnn.utils import files


class Step(nn.Module):
    """The step of a network, from tensors by name to tensors by name; ``start`` is a state."""

    def __init__(self, network: Predictor, start: State) -> None:
        super().__init__()
        self.network, self.start = network, start

    def forward(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        parts = iter([given[name] for name in self.start.named()])
        state = self.start.apply(lambda _: next(parts))
        condition = Condition(given.get("condition"), given.get("clock"), given.get("text"))
        prediction, out, end = self.network.predict(given["x"][None], state, condition=condition)
        if isinstance(prediction, Categorical):
            said = {"probabilities": torch.softmax(prediction.logits[0], dim=-1)}
        else:
            said = _named(prediction) | self.network.beside(end, condition)
        return said | {"boundaries": out.boundaries[0]} | {f"next.{name}": a for name, a in end.named().items()}


def _named(prediction: Any) -> dict[str, Tensor]:
    """The tensors (1, B, ...) of named tuples in one another, without their first dimension."""
    found: dict[str, Tensor] = {}
    for name, part in prediction._asdict().items():
        found |= {name: part[0]} if isinstance(part, Tensor) else _named(part)
    return found


def write_step(source: str | Path, path: str | Path) -> Path:
    """Write the step of the model that :func:`hmrnn.load` finds at ``source``. Needs ``hmrnn[onnx]``."""
    installed("onnxscript", "hmrnn export --onnx", "onnx")
    model = load(source)
    network, m = model.network, model.config.model
    reasons = {
        "it reads sequences as a whole": not isinstance(network, Predictor),
        "its segmental head also reads what follows": model.config.segments.size > 0,
        "its condition sets the state that sequences start from": m.conditioned and m.condition != "input",
    }
    for why, holds in reasons.items():
        if holds:
            raise InputError(f"{source} has no step that can be written as ONNX: {why}; take another model")
    network.rnn.engine = "reference"  # plain operations of torch
    x, condition = network.example(2)
    start = network.initial_state(2, condition)
    told = zip(("condition", "clock", "text"), condition)
    given = {"x": x, **{name: a for name, a in told if a is not None}, **start.named()}
    step, batch = Step(network, start), torch.export.Dim("batch")
    sizes = {name: {0: batch, 1: torch.export.Dim("letters")} if name == "text" else {0: batch} for name in given}
    for library in ("torch.onnx", "onnxscript"):
        logging.getLogger(library).setLevel(logging.ERROR)
    place = Path(os.path.expanduser(path))
    with files.replacing(place, advice=files.ADVICE) as file, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter's, about itself
        program = torch.onnx.export(
            step, (), kwargs={"given": given}, dynamic_shapes={"given": sizes}, input_names=list(given),
            output_names=list(step(given)), verbose=False,
        )  # fmt: skip
        assert program is not None
        program.model.metadata_props.update(
            config=to_json(without_places(model.config)).decode(), reads=to_json(model.reads.to_dict()).decode()
        )
        file.write(program.model_proto.SerializeToString())
    return place
