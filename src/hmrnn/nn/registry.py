"""Which recurrent network ``model.rnn`` names, and the boundaries that a text gives away."""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import Tensor

from hmrnn.config import ModelConfig
from hmrnn.data.text.vocabulary import Vocabulary
from hmrnn.errors import InputError
from hmrnn.nn.baselines.base import Baseline
from hmrnn.nn.baselines.clockwork import ClockworkRNN
from hmrnn.nn.baselines.layer_norm_lstm import LayerNormLSTM
from hmrnn.nn.baselines.leaky import LeakyRNN
from hmrnn.nn.baselines.recurrent import GRU, LSTM
from hmrnn.nn.checks import layer_sizes
from hmrnn.nn.hmlstm import HMLSTM

RNN: TypeAlias = HMLSTM | Baseline

LEVELS = (" \n", "\n")
"""The symbols that end a segment of each level that can be seen in a text: words, then lines."""


def make_rnn(input_size: int, config: ModelConfig, engine: str = "auto") -> RNN:
    """The network of ``config``; "hrnn" is an HM-LSTM, whose boundaries the caller gives."""
    sizes, count = layer_sizes(config.hidden_size, config.num_layers), config.num_layers
    match config.rnn:
        case "lstm":
            return LSTM(input_size, sizes, count, engine=engine)
        case "ln-lstm":
            return LayerNormLSTM(input_size, sizes, count, engine=engine)
        case "gru":
            return GRU(input_size, sizes, count, engine=engine)
        case "cw-rnn":
            return ClockworkRNN(
                input_size, sizes, count, modules=config.modules, layer_norm=config.layer_norm, engine=engine
            )
        case "leaky":
            return LeakyRNN(input_size, sizes, count, time_constant=config.time_constant, engine=engine)
        case "hm-lstm" | "hrnn":
            return HMLSTM(
                input_size,
                sizes,
                count,
                layer_norm=config.layer_norm,
                boundary=config.boundary,
                on_copy=config.on_copy,
                engine=engine,
            )


def given_boundaries(vocabulary: Vocabulary, num_boundaries: int) -> Tensor:
    """(symbols, num_boundaries): whether a symbol ends a segment of each level; NaN where a text does not say.

    A word ends with the space or line end after it, a line with its line end. A level beyond these, or whose symbols
    are not in the vocabulary, is left to its detector.
    """
    pieces = vocabulary.pieces(range(len(vocabulary)))
    table = torch.full((len(vocabulary), num_boundaries), math.nan, device="cpu")  # whatever torch.device(...) is on
    for level, ends in enumerate(LEVELS[:num_boundaries]):
        if any(symbol in ends for symbol in pieces):
            table[:, level] = torch.tensor([float(symbol in ends) for symbol in pieces], device="cpu")
    if num_boundaries > 0 and bool(table.isnan().all()):
        raise InputError(
            "model.rnn hrnn takes the spaces and line ends of a text for boundaries, and this vocabulary has neither; "
            "use hm-lstm, which finds its own"
        )
    return table
