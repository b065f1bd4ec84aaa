"""The model of a run."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from msgspec import Meta

from hmrnn.config.checks import LARGEST, MOVING, RATED, Count, Natural, Needs, NotNegative, Positive, Text, network

Network = Literal[
    "hm-lstm", "lstm", "ln-lstm", "gru", "cw-rnn", "leaky", "hrnn",
    "peephole", "coupled", "skip", "echo-state", "time-delay", "output-rnn", "h-net",
]  # fmt: skip


RESERVOIR = network("echo-state")
TOP_DOWN = Needs("model.top_down", ("boundary", "pending", "always"))


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The model: embedding, recurrent network, gated output module; a kind of data adds settings of its own."""

    rnn: Network = "hm-lstm"
    """The recurrent network: hm-lstm, or a baseline. hrnn is an HM-LSTM that is given the ends of words and lines."""
    embedding_size: Count = 128
    """Size of a symbol's embedding."""
    hidden_size: tuple[Count, ...] = (512,)
    """Size of all layers, or one size per layer, the lowest first."""
    num_layers: Annotated[int, Meta(ge=1, le=10_000)] = 3
    """Number of layers."""
    output_size: Count = 512
    """Size of the output embedding (equation 12)."""
    output_layers: Annotated[Literal["all", "first"], MOVING, TOP_DOWN] = "all"
    """Layers that the output module reads: all, as in the paper, or the first alone. first: hm-lstm and hrnn with
    top-down input, through which the layers above reach the first."""
    layer_norm: bool = True
    """hm-lstm, hrnn, cw-rnn, h-net: layer normalisation. ln-lstm always has it; lstm, gru and leaky never have it."""
    flush: Annotated[bool, MOVING] = True
    """A boundary erases the cell (FLUSH), as in the paper; off: the cell is kept."""
    top_down: Annotated[Literal["boundary", "pending", "always", "none"], MOVING] = "boundary"
    """When a layer reads the layer above. boundary: at the step after its own boundary, as in the paper.
    pending: from its boundary until it next moves. always: at every step. none: never."""
    copy: Annotated[bool, MOVING] = True
    """A layer copies its state until the layer below ends a segment, as in the paper; off: it moves at every step."""
    modules: Annotated[Count, network("cw-rnn")] = 4
    """Modules per layer, with periods 1, 2, 4 and so on."""
    time_constant: Annotated[float, Meta(ge=1, le=LARGEST), network("leaky")] = 64.0
    """Time constant of the slowest unit of a layer, in steps; the others lie between 1 and this."""
    delay: Annotated[Count, network("skip")] = 8
    """The steps that a skip connection through time goes back."""
    kernel: Annotated[Count, network("time-delay")] = 8
    """The steps that a layer reads of the one below."""
    spectral_radius: Annotated[Positive, RESERVOIR] = 0.9
    """The largest absolute eigenvalue of the recurrent weights."""
    ridge: Annotated[NotNegative, RESERVOIR] = 0.0
    """On text: penalty of the ridge regression that fits the output in one pass. The output is then a linear
    map of h of all layers to the probabilities, each at least a thousandth. 0: the output module, trained by
    gradient."""
    condition: Literal["input", "state", "both"] = "input"
    """With data.condition, where the condition goes: beside the input at every step, to the initial state, or both."""
    condition_size: Count = 16
    """Size of the vector that a condition is turned into."""
    classes: tuple[Text, ...] = ()
    """The classes of data.condition; those of the data if none are given."""
    condition_numbers: Annotated[Natural, Needs("model.classes", ((),), what="runs without model.classes")] = 0
    """Numbers in a row of data.condition, 0 if rows are classes; counted in the data if not given."""
    time: Literal["none", "elapsed", "left"] = "none"
    """The time as a further input: the steps so far, or those that are left, which must be known
    beforehand."""

    @property
    def detectors(self) -> int:
        """Number of boundary detectors."""
        levels = self.num_layers - 1
        return levels if self.rnn in MOVING.values else min(1, levels) if self.rnn in RATED.values else 0

    @property
    def gated(self) -> bool:
        """Whether there are matrices of gates to train, which a reservoir lacks."""
        return self.rnn not in RESERVOIR.values

    @property
    def by_gradient(self) -> bool:
        """Whether the output is trained by gradient."""
        return not self.ridge

    @property
    def directions(self) -> int:
        """In how many directions sequences are read, by a network for each."""
        return 1

    @property
    def conditioned(self) -> bool:
        """Whether the model is given a condition with each sequence."""
        return bool(self.classes) or self.condition_numbers > 0


CONTEXT = ("model.condition", "model.condition_size", "model.classes", "model.condition_numbers", "model.time")
"""What a model is told beside the sequence."""
KEEPING: dict[str, Any] = {"flush": False, "top_down": "pending"}
"""The cell that keeps what it remembers where a segment ends."""
