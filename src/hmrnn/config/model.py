"""The model of a run."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from hmrnn.config.checks import LARGEST, MOVING, Count, Natural, Needs, NotNegative, Positive, Text
from hmrnn.errors import InputError

Network = Literal[
    "hm-lstm", "lstm", "ln-lstm", "gru", "cw-rnn", "leaky", "hrnn",
    "peephole", "coupled", "skip", "echo-state", "time-delay", "output-rnn",
]  # fmt: skip


TOP_DOWN = Needs("model.top_down", ("boundary", "pending", "always"))


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The model: embedding, recurrent network, gated output module, softmax or mixture."""

    rnn: Network = "hm-lstm"
    """The recurrent network: hm-lstm, or a baseline. hrnn is an HM-LSTM that is given the ends of words and lines."""
    embedding_size: Count = 128
    """Text: size of a symbol's embedding."""
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
    """hm-lstm, hrnn, cw-rnn: layer normalisation. ln-lstm always has it; lstm, gru and leaky never have it."""
    flush: bool = True
    """hm-lstm, hrnn: a boundary erases the cell (FLUSH), as in the paper; off: the cell is kept."""
    top_down: Literal["boundary", "pending", "always", "none"] = "boundary"
    """hm-lstm, hrnn: when a layer reads the layer above. boundary: at the step after its own boundary, as in the paper.
    pending: from its boundary until it next moves. always: at every step. none: never."""
    copy: bool = True
    """hm-lstm, hrnn: a layer copies its state until the layer below ends a segment, as in the paper; off: it moves at
    every step."""
    modules: Count = 4
    """cw-rnn: modules per layer, with periods 1, 2, 4 and so on."""
    time_constant: Annotated[float, Meta(ge=1, le=LARGEST)] = 64.0
    """leaky: time constant of the slowest unit of a layer, in steps; the others lie between 1 and this."""
    delay: Count = 8
    """skip: the steps that a skip connection through time goes back."""
    kernel: Count = 8
    """time-delay: the steps that a layer reads of the one below."""
    spectral_radius: Positive = 0.9
    """echo-state: the largest absolute eigenvalue of the recurrent weights."""
    ridge: Annotated[NotNegative, Needs("model.rnn", ("echo-state",))] = 0.0
    """echo-state on text: penalty of the ridge regression that fits the output in one pass. The output is then a linear
    map of h of all layers to the probabilities, each at least a thousandth. 0: the output module, trained by
    gradient."""
    mixtures: Count = 20
    """Strokes: number of Gaussians in the prediction of the next point."""
    bidirectional: bool = False
    """labels, tags, pairs, numbers: read in both directions, with a network for each."""
    read_out: Literal["attention", "mean", "max", "last", "tree"] = "attention"
    """labels, numbers: how the outputs of all steps become one. tree: by a tree-LSTM over the hierarchy of segments."""
    attend: Literal["steps", "segments"] = "steps"
    """labels, numbers, pairs: what attention chooses from: all steps, or the steps at which segments end."""
    level: Count = 1
    """labels, numbers, pairs: the level of the segments that attention chooses from."""
    crf: bool = False
    """tags: a linear-chain CRF over the tags of a sequence, instead of a softmax per tag."""
    halt: bool = False
    """Strokes: predict with every point whether it is the last, so that generated lines end by themselves."""
    condition: Literal["input", "state", "both"] = "input"
    """With data.condition, where the condition goes: beside the input at every step, to the initial state, or both."""
    condition_size: Count = 16
    """Size of the vector that a condition is turned into."""
    classes: tuple[Text, ...] = ()
    """The classes of data.condition; those of the data if none are given."""
    condition_numbers: Natural = 0
    """Numbers in a row of data.condition, 0 if rows are classes; counted in the data if not given."""
    time: Literal["none", "elapsed", "left"] = "none"
    """lines, strokes: the time as a further input: the steps so far, or those that are left, which must be known
    beforehand."""

    @property
    def detectors(self) -> int:
        """Number of boundary detectors."""
        return self.num_layers - 1 if self.rnn in ("hm-lstm", "hrnn") else 0

    @property
    def conditioned(self) -> bool:
        """Whether the model is given a condition with each sequence."""
        return bool(self.classes) or self.condition_numbers > 0

    def check(self) -> None:
        """Raise InputError if a value cannot work."""
        if self.classes and self.condition_numbers:
            raise InputError("excludes model.condition_numbers; leave one of them out", setting="model.classes")
        if len(self.hidden_size) not in (1, self.num_layers):
            raise InputError(
                f"must hold 1 or {self.num_layers} sizes (model.num_layers)",
                setting="model.hidden_size",
                value=self.hidden_size,
            )
