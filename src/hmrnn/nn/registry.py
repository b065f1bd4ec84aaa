"""make_rnn: the recurrent network that ``model.rnn`` names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from hmrnn.config import DetectorConfig, ModelConfig
from hmrnn.nn.baselines.base import Baseline
from hmrnn.nn.baselines.cells import LeakyRNN, OutputRNN, PeepholeLSTM, SkipRNN, TimeDelayNetwork
from hmrnn.nn.baselines.clockwork import ClockworkRNN
from hmrnn.nn.baselines.echo_state import EchoStateNetwork
from hmrnn.nn.baselines.recurrent import GRU, LSTM
from hmrnn.nn.bidirectional import Bidirectional
from hmrnn.nn.checks import layer_sizes
from hmrnn.nn.hmlstm import HMLSTM

RNN: TypeAlias = HMLSTM | Baseline
BASELINES: dict[str, tuple[Callable[..., Baseline], tuple[str, ...]]] = {
    "lstm": (LSTM, ()),
    "ln-lstm": (partial(LSTM, layer_norm=True), ()),
    "gru": (GRU, ()),
    "cw-rnn": (ClockworkRNN, ("num_modules", "layer_norm")),
    "leaky": (LeakyRNN, ("time_constant",)),
    "peephole": (PeepholeLSTM, ()),
    "coupled": (partial(PeepholeLSTM, coupled=True), ()),
    "skip": (SkipRNN, ("delay",)),
    "echo-state": (EchoStateNetwork, ("spectral_radius",)),
    "time-delay": (TimeDelayNetwork, ("kernel",)),
    "output-rnn": (OutputRNN, ()),
}
"""The networks without detectors, and the settings of ``model`` that each takes."""


def make_rnn(
    input_size: int, config: ModelConfig, engine: str = "auto", detectors: DetectorConfig | None = None
) -> RNN:
    """The network that ``config`` describes; "hrnn" is an HM-LSTM whose boundaries the caller forces."""
    sizes, count = layer_sizes(config.hidden_size, config.num_layers), config.num_layers
    detectors = detectors or DetectorConfig()
    if config.rnn in ("hm-lstm", "hrnn"):
        rnn = HMLSTM(
            input_size, sizes, count, layer_norm=config.layer_norm, boundary=detectors.estimator,
            on_copy=detectors.on_copy, flush=config.flush, top_down=config.top_down, copy=config.copy,
            detector_hidden=detectors.hidden, engine=engine,
        )  # fmt: skip
        rnn.settable = config.rnn == "hm-lstm"
        return rnn
    kind, settings = BASELINES[config.rnn]
    given = {name: getattr(config, name.removeprefix("num_")) for name in settings}
    return kind(input_size, sizes, count, engine=engine, **given)


def make_encoder(
    input_size: int, config: ModelConfig, engine: str = "auto", detectors: DetectorConfig | None = None
) -> Any:
    """As :func:`make_rnn`; with ``config.bidirectional`` a network for each direction."""
    if config.bidirectional:
        return Bidirectional(*(make_rnn(input_size, config, engine, detectors) for _ in range(2)))
    return make_rnn(input_size, config, engine, detectors)
