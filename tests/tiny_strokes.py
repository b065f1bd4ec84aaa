"""Handwriting small enough for a test: zigzags of a dozen points, and a config whose update takes milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

import tiny
from hmrnn import checkpoint
from hmrnn.checkpoint import Checkpoint
from hmrnn.config import Config, TrainConfig
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.strokes.network import HandwritingModel
from hmrnn.kinds.strokes.settings import StrokeData, StrokeModelConfig, TranscriptData, TranscriptModelConfig
from hmrnn.kinds.strokes.strokes import Scale, StrokeCorpus, Strokes
from hmrnn.kinds.strokes.transcriber import Transcriber
from hmrnn.kinds.strokes.transcripts import TranscriptModel


def strokes(count: int, seed: int = 0) -> Strokes:
    """Lines of 8 to 15 points: the pen goes up and down and is lifted after every fourth point or so."""
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        n = int(random.integers(8, 16))
        steps = np.stack([random.normal(3, 1, n), 4 * (-1.0) ** np.arange(n) + random.normal(0, 1, n)], axis=1)
        lines.append(np.column_stack([steps, np.arange(n) % 4 == 3]))
    return Strokes.of(lines, names=[f"line-{k}" for k in range(count)])


def corpus(train: int = 18, valid: int = 5, seed: int = 0) -> StrokeCorpus:
    parts = [strokes(count, seed + k) for k, count in enumerate((train, valid, valid))]
    return StrokeCorpus("tiny", Scale.of(parts[0]), *parts)


def config(**changes: Any) -> Config:
    """A tiny config; ``changes`` are fields of any of its sections but the data."""
    model = StrokeModelConfig(hidden_size=(6, 5, 4), output_size=5, layer_norm=False, mixtures=2)
    train = TrainConfig(epochs=2, batch_size=4, learning_rate=0.02, log_every=2, checkpoint_every=1e9, device="cpu")
    return tiny.changed(Config(StrokeData(format="strokes"), model, train), **changes)


def model(seed: int = 0, **changes: Any) -> StrokeModel:
    """An untrained model."""
    torch.manual_seed(seed)
    chosen = config(**changes)
    return StrokeModel(HandwritingModel(chosen.model, detectors=chosen.detectors).eval(), corpus().spec, chosen)


def save(directory: Path, model: StrokeModel) -> Path:
    """Write ``model`` as a checkpoint; the directory."""
    checkpoint.write(directory, Checkpoint(model.config, model.scale, dict(model.network.state_dict())))
    return directory


def reader(letters: str = "abc ") -> TranscriptModel:
    """An untrained model that reads handwriting."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": (6,), "num_layers": 2, "embedding_size": 5, "output_size": 5}
    chosen = Config(TranscriptData(), TranscriptModelConfig(**sizes, alphabet=tuple(letters)))
    return TranscriptModel(Transcriber(chosen.model, detectors=chosen.detectors).eval(), corpus().spec, chosen)
