"""make_rnn: the recurrent network that ``model.rnn`` names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

from hmrnn.config import DetectorConfig, ModelConfig
from hmrnn.nn.baselines.cells import LeakyRNN, OutputRNN, PeepholeLSTM, SkipRNN, TimeDelayNetwork
from hmrnn.nn.baselines.clockwork import ClockworkRNN
from hmrnn.nn.baselines.echo_state import EchoStateNetwork
from hmrnn.nn.baselines.h_net import HNet
from hmrnn.nn.baselines.recurrent import GRU, LSTM
from hmrnn.nn.bidirectional import Bidirectional
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.ops import Variant

CELL = ("layer_norm", *(field.name for field in dataclasses.fields(Variant) if field.init))


def given_boundaries(*sizes: Any, **options: Any) -> HMLSTM:
    """An HM-LSTM whose boundaries the caller forces."""
    rnn = HMLSTM(*sizes, **options)
    rnn.settable = False
    return rnn


NETWORKS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "hm-lstm": (HMLSTM, CELL),
    "hrnn": (given_boundaries, CELL),
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
    "h-net": (HNet, ("layer_norm",)),
}
"""What makes each network, and the arguments that it takes from the settings beside its sizes."""


def make_rnn(
    input_size: int, config: ModelConfig, engine: str = "auto", detectors: DetectorConfig | None = None
) -> Any:
    """The network that ``config`` describes; with two ``config.directions`` one for each direction."""
    detectors = detectors or DetectorConfig()
    settings = dataclasses.asdict(config) | dataclasses.asdict(detectors)  # vars() lacks what JSON left to the default
    settings |= {
        "num_modules": config.modules, "boundary": detectors.estimator, "detector_hidden": detectors.hidden
    }  # fmt: skip
    make, names = NETWORKS[config.rnn]
    options = {name: settings[name] for name in names}
    sizes = input_size, config.hidden_size, config.num_layers
    made = [make(*sizes, engine=engine, **options) for _ in range(config.directions)]
    return Bidirectional(*made) if len(made) > 1 else made[0]
