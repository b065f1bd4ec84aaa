"""The recurrent networks by the names of ``model.rnn``."""

from __future__ import annotations

from typing import Any

import pytest

from hmrnn import HMLSTM
from hmrnn.nn.baselines.cells import LeakyRNN, OutputRNN, PeepholeLSTM, SkipRNN, TimeDelayNetwork
from hmrnn.nn.baselines.clockwork import ClockworkRNN
from hmrnn.nn.baselines.echo_state import EchoStateNetwork
from hmrnn.nn.baselines.h_net import HNet
from hmrnn.nn.baselines.recurrent import GRU, LSTM

NETWORKS: dict[str, Any] = {
    "hm-lstm": HMLSTM,
    "lstm": LSTM,
    "gru": GRU,
    "cw-rnn": ClockworkRNN,
    "leaky": LeakyRNN,
    "peephole": PeepholeLSTM,
    "skip": SkipRNN,
    "echo-state": EchoStateNetwork,
    "time-delay": TimeDelayNetwork,
    "output-rnn": OutputRNN,
    "h-net": HNet,
}
every_network = pytest.mark.parametrize("kind", NETWORKS.values(), ids=NETWORKS)
