"""make_rnn: the recurrent network that ``model.rnn`` names."""

from __future__ import annotations

import dataclasses
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
from hmrnn.ops import Variant

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
    input_size: int, config: ModelConfig, engine: Any = "auto", detectors: DetectorConfig | None = None
) -> RNN:
    """The network that ``config`` describes; "hrnn" is an HM-LSTM whose boundaries the caller forces."""
    sizes, count = layer_sizes(config.hidden_size, config.num_layers), config.num_layers
    detectors = detectors or DetectorConfig()
    if config.rnn in ("hm-lstm", "hrnn"):
        rnn = HMLSTM(
            input_size, sizes, count, layer_norm=config.layer_norm, engine=engine, **_variant(config, detectors)
        )  # fmt: skip
        rnn.settable = config.rnn == "hm-lstm"
        return rnn
    kind, settings = BASELINES[config.rnn]
    given = {name: getattr(config, name.removeprefix("num_")) for name in settings}
    return kind(input_size, sizes, count, engine=engine, **given)


def _variant(config: ModelConfig, detectors: DetectorConfig) -> dict[str, Any]:
    """The arguments of an HM-LSTM that say which cell it is: settings of its model and of its detectors."""
    settings = dataclasses.asdict(config) | dataclasses.asdict(detectors)  # vars() lacks what JSON left to the default
    settings |= {"boundary": detectors.estimator, "detector_hidden": detectors.hidden}
    return {field.name: settings[field.name] for field in dataclasses.fields(Variant) if field.init}


def make_encoder(
    input_size: int, config: ModelConfig, engine: str = "auto", detectors: DetectorConfig | None = None
) -> Any:
    """As :func:`make_rnn`; with two ``config.directions`` a network for each direction."""
    if config.directions > 1:
        return Bidirectional(*(make_rnn(input_size, config, engine, detectors) for _ in range(2)))
    return make_rnn(input_size, config, engine, detectors)
