"""Jobs small enough for a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

import tiny
from hmrnn.config import DataConfig, ModelConfig
from hmrnn.kinds.text.large_files import Job
from hmrnn.kinds.text.network import LanguageModel


def network() -> LanguageModel:
    torch.manual_seed(3)
    return LanguageModel(9, ModelConfig(embedding_size=3, hidden_size=(6, 5, 4), output_size=5, layer_norm=False))


def job(files: list[Path], out: Path, **options: Any) -> Job:
    """With ``round``, in rounds of so many symbols."""
    options = {"streams": 3, "warmup": 20, "chunk": 16, **options}
    size = options.pop("round", None)
    made = Job(network(), tiny.VOCABULARY, DataConfig(), files, out, **options)
    made.round = size or made.round
    return made


def write(path: Path, length: int, seed: int = 0) -> Path:
    path.write_text(tiny.text(length, seed))
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
