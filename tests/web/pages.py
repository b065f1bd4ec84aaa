"""Checkpoints for the page; the page on a port of its own, in a thread, and ways to look at it from outside."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import uvicorn
from starlette.testclient import TestClient

from hmrnn import checkpoint
from hmrnn.config import Config, DetectorConfig, SegmentConfig, TrainConfig
from hmrnn.kinds.strokes.network import HandwritingModel
from hmrnn.kinds.strokes.settings import StrokeData, StrokeModelConfig
from hmrnn.kinds.strokes.strokes import Scale
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.settings import TextData, TextModelConfig
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.web.app import application
from hmrnn.web.limits import Limits
from hmrnn.web.server import listen, settings
from hmrnn.web.shelf import Shelf

WAIT = 60.0
"""Seconds for what happens at once unless the machine is busy."""
SIZES: dict[str, Any] = {"hidden_size": (8,), "output_size": 8}
CHARACTERS = Vocabulary("characters", tuple(sorted("\n <>&/=abcdefghijklmnopqrstuvwxyz")))
BYTES = Vocabulary("bytes", tuple(range(256)))


def save(
    directory: Path,
    reads: Vocabulary | Scale,
    seed: int,
    form: Any = "text",
    detectors: DetectorConfig | None = None,
    segments: SegmentConfig | None = None,
    **options: Any,
) -> None:
    """A checkpoint of an untrained model with ``options`` of its network, for data in the format ``form``."""
    segments = segments or SegmentConfig()
    torch.manual_seed(seed)
    data: TextData | StrokeData
    network: LanguageModel | HandwritingModel
    if isinstance(reads, Scale):
        data, network = StrokeData(format=form), HandwritingModel(StrokeModelConfig(**SIZES, mixtures=2, **options))
    else:
        model = TextModelConfig(**SIZES, embedding_size=4, **options)
        data, network = TextData(format=form), LanguageModel(len(reads), model, segments=segments)
    with torch.no_grad():
        for l in range(2):  # detectors that fire now and then
            network.rnn.b[l][-1] = -0.2
    config = Config(data, network.config, TrainConfig(), detectors=detectors or DetectorConfig(), segments=segments)
    checkpoint.write(directory, checkpoint.Checkpoint(config, reads, network.state_dict()))


class Server:
    """uvicorn with the settings of ``hmrnn explore``."""

    def __init__(self, shelf: Shelf, limits: Limits) -> None:
        self.app: Any = application(shelf, limits)
        self.worker = self.app.app.state.worker
        self.server = uvicorn.Server(settings(self.app, limits))

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        with contextlib.closing(listen("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]
            thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]})
            thread.start()
            try:
                until(lambda: self.server.started)
                yield self
            finally:
                self.server.should_exit = True
                thread.join(WAIT)
                assert not thread.is_alive()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT)

    def post(self, path: str, request: dict[str, Any]) -> socket.socket:
        """A connection on which a request has been sent, and nothing read."""
        body = json.dumps(request).encode()
        connection = self.connect()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return connection


def until(condition: Callable[[], bool], seconds: float = WAIT) -> None:
    """Wait for something that happens elsewhere."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def everything(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            received += piece
    return received


@contextlib.contextmanager
def explored(models: Sequence[Path], environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``hmrnn explore`` in a process of its own, and its address; it is killed if it still runs in the end."""
    command = [sys.executable, "-m", "hmrnn", "explore", "-m", *map(str, models), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        address = ""
        while not address:
            line = process.stdout.readline()
            assert line, process.communicate()
            address = "".join(re.findall(r"http://\S+(?=/ )", line))
        try:
            yield process, address
        finally:
            process.kill()


@contextlib.contextmanager
def opened(shelf: Shelf, limits: Limits | None = None, **options: Any) -> Iterator[TestClient]:
    """The page without a server."""
    app = application(shelf, limits or Limits(), **options)
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        yield client
