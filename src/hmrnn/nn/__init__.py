"""Torch modules: HMLSTM and its cell, the networks it is compared with, models and predictions.

They know neither files nor command-line flags.
"""

from hmrnn.nn.attention import Attention as Attention
from hmrnn.nn.baselines.echo_state import EchoStateNetwork as EchoStateNetwork
from hmrnn.nn.baselines.echo_state import ridge_regression as ridge_regression
from hmrnn.nn.bidirectional import Bidirectional as Bidirectional
from hmrnn.nn.bidirectional import States as States
from hmrnn.nn.lstm import LSTM as LSTM
from hmrnn.nn.rates import rate_loss as rate_loss
from hmrnn.nn.rates import start_at_rates as start_at_rates
from hmrnn.nn.readouts import ReadOut as ReadOut
from hmrnn.nn.readouts import SegmentStates as SegmentStates
from hmrnn.nn.readouts import SequenceReadOut as SequenceReadOut
from hmrnn.nn.readouts import TreeReadOut as TreeReadOut
from hmrnn.nn.readouts import segment_states as segment_states
