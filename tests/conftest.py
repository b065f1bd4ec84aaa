"""The same numbers on every run: one thread, one seed, no random examples."""

import fcntl
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

import pairs
import tiny

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; some tests interrupt runs
    signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)
settings.register_profile("hmrnn", derandomize=True, deadline=None, max_examples=20, database=None)
settings.load_profile("hmrnn")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr == "not gpu":  # no test then compiles a kernel in this process
        os.environ["TRITON_INTERPRET"] = "1"  # which Triton reads when a kernel is defined


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not pairs.FULL:
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: runs with HMRNN_FULL_GRIDS=1, as in make stress"))
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    gc.freeze()  # no search for garbage looks through what was imported and collected


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
    torch.backends.mkldnn.set_flags(True)  # a product in bfloat16 that this CPU cannot do turns oneDNN off for good


@pytest.fixture
def ieee() -> Iterator[None]:
    """Products of float32 in full precision."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    yield
    torch.backends.cuda.matmul.fp32_precision = before


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> tiny.Command:
    return tiny.Command(capsys)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text in story.txt and, in runs/story, a run trained on it for one epoch of 5 updates.

    It is made once for all tests and all processes that run them: copy it before you write to it.
    """
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    folder = shared / "trained"
    with open(shared / "trained.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            folder.mkdir()
            with tiny.story(folder):
                config = tiny.config(epochs=1, batch_size=16, length=10)
                assert tiny.hmrnn("train", "story.txt", *tiny.flags(config)) == 0
            (folder / "made").touch()
    return folder
