"""Torch modules: HMLSTM and its cell, the networks it is compared with, models and predictions.

They know neither files nor command-line flags.
"""

from hmrnn.nn.heads import ReadOut as ReadOut
