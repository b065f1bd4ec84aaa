"""make_rnn: the recurrent network that ``model.rnn`` names."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

from hmrnn.config import DetectorConfig, ModelConfig
from hmrnn.nn.baselines.base import Baseline
from hmrnn.nn.baselines.clockwork import ClockworkRNN
from hmrnn.nn.baselines.echo_state import EchoStateNetwork
from hmrnn.nn.baselines.layer_norm_lstm import LayerNormLSTM
from hmrnn.nn.baselines.leaky import LeakyRNN
from hmrnn.nn.baselines.output_rnn import OutputRNN
from hmrnn.nn.baselines.peephole import PeepholeLSTM
from hmrnn.nn.baselines.recurrent import GRU, LSTM
from hmrnn.nn.baselines.skip import SkipRNN
from hmrnn.nn.baselines.time_delay import TimeDelayNetwork
from hmrnn.nn.baselines.two_way import TwoWay
from hmrnn.nn.checks import layer_sizes
from hmrnn.nn.hmlstm import HMLSTM

RNN: TypeAlias = HMLSTM | Baseline


def make_rnn(
    input_size: int, config: ModelConfig, engine: str = "auto", detectors: DetectorConfig | None = None
) -> RNN:
    """The network that ``config`` describes; "hrnn" is an HM-LSTM whose boundaries the caller forces."""
    sizes, count = layer_sizes(config.hidden_size, config.num_layers), config.num_layers
    detectors = detectors or DetectorConfig()
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
        case "peephole" | "coupled":
            return PeepholeLSTM(input_size, sizes, count, coupled=config.rnn == "coupled", engine=engine)
        case "skip":
            return SkipRNN(input_size, sizes, count, delay=config.delay, engine=engine)
        case "echo-state":
            return EchoStateNetwork(input_size, sizes, count, spectral_radius=config.spectral_radius, engine=engine)
        case "time-delay":
            return TimeDelayNetwork(input_size, sizes, count, kernel=config.kernel, engine=engine)
        case "output-rnn":
            return OutputRNN(input_size, sizes, count, engine=engine)
        case "hm-lstm" | "hrnn":
            return HMLSTM(
                input_size,
                sizes,
                count,
                layer_norm=config.layer_norm,
                boundary=detectors.estimator,
                on_copy=detectors.on_copy,
                flush=config.flush,
                top_down=config.top_down,
                copy=config.copy,
                detector_hidden=detectors.hidden,
                bidirectional=config.bidirectional,
                engine=engine,
            )


def make_encoder(
    input_size: int, config: ModelConfig, engine: str = "auto", detectors: DetectorConfig | None = None
) -> Any:
    """As :func:`make_rnn`; with ``config.bidirectional`` a network for each direction."""
    if config.bidirectional and config.rnn != "hm-lstm":
        return TwoWay(lambda: cast(Baseline, make_rnn(input_size, config, engine)))
    return make_rnn(input_size, config, engine, detectors)
