"""The same numbers on every run: one thread, one seed, no random examples."""

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("hmrnn", derandomize=True, deadline=None, max_examples=20, database=None)
settings.load_profile("hmrnn")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
