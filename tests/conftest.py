"""The same numbers on every run: one thread, one seed, no random examples."""

import os
import signal

import pytest
import torch
from hypothesis import settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; some tests interrupt runs
    signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)
os.fsync = lambda descriptor: None  # which waits for a disk; those tests that are about it have one of their own
settings.register_profile("hmrnn", derandomize=True, deadline=None, max_examples=20, database=None)
settings.load_profile("hmrnn")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
    torch.backends.mkldnn.set_flags(True)  # a product in bfloat16 that this CPU cannot do turns oneDNN off for good
