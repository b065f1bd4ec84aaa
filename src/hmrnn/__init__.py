"""hmrnn: the Hierarchical Multiscale LSTM, which learns the hierarchy in a sequence without being shown a boundary."""

from hmrnn.errors import InputError
from hmrnn.ops import State
from hmrnn.rnn import HMLSTM, HMLSTMCell, Operation, Output

__version__ = "0.1.0"
__all__ = ["HMLSTM", "HMLSTMCell", "InputError", "Operation", "Output", "State", "__version__"]
