"""A trained model as people use it: text in; segments, more text or a score out."""

from __future__ import annotations

import codecs
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from hmrnn import checkpoint
from hmrnn.config import Config
from hmrnn.data.vocabulary import Vocabulary
from hmrnn.errors import InputError
from hmrnn.evaluate import Evaluation, evaluate
from hmrnn.generate import stream
from hmrnn.models import LanguageModel
from hmrnn.segment import Segmentation, segment


@dataclasses.dataclass
class TextModel:
    """A language model with its vocabulary and the config it was trained by; see :func:`load`."""

    network: LanguageModel
    vocabulary: Vocabulary
    config: Config

    def segment(self, text: str) -> Segmentation:
        """The segments that the detectors find in ``text``, at every level."""
        indices = self._encode(text, "segment")
        return segment(self.network, indices, self.vocabulary.pieces(indices))

    def generate(
        self,
        prompt: str = "",
        length: int = 200,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> str:
        """``length`` symbols that go on from ``prompt`` (without the prompt)."""
        pieces = self.stream(prompt, length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        return "".join(pieces)

    def stream(
        self,
        prompt: str = "",
        length: int = 200,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> Iterator[str]:
        """As :meth:`generate`, piece by piece as they are made; what is wrong with the request is said at once."""
        start = self.vocabulary.encode(prompt) if prompt else np.zeros(0, dtype=np.int64)
        indices = stream(self.network, start, length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        return self._pieces(indices)

    def _pieces(self, indices: Iterator[int]) -> Iterator[str]:
        if self.vocabulary.kind == "characters":
            for index in indices:
                yield self.vocabulary.decode([index])
            return
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        values = (*self.vocabulary.symbols, 0xFF)  # the unknown symbol, never part of UTF-8
        for index in indices:
            yield decoder.decode(bytes([int(values[index])]))
        yield decoder.decode(b"", final=True)

    def score(self, text: str) -> Evaluation:
        """Bits per symbol of ``text``, each symbol predicted from all before it, with boundary rates and updates."""
        return evaluate(self.network, self._encode(text, "score"))

    def to(self, device: str | torch.device) -> TextModel:
        """Move the network; returns self."""
        self.network.to(device)
        return self

    def _encode(self, text: str, verb: str) -> np.ndarray:
        if not text:
            raise InputError(f"there is nothing to {verb}: the text is empty")
        return self.vocabulary.encode(text)


def load(source: str | Path, *, device: str | torch.device = "cpu", engine: str = "auto") -> TextModel:
    """The model in a run directory (its best checkpoint) or a checkpoint directory.

    Example::

        >>> model = hmrnn.load("runs/demo")  # doctest: +SKIP
        >>> print(model.segment("the quick brown fox"))  # doctest: +SKIP
    """
    directory = checkpoint.find(Path(source))
    saved = checkpoint.read(directory)
    network = LanguageModel(len(saved.vocabulary), saved.config.model, engine=engine)
    try:
        network.load_state_dict(saved.weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the weights in {directory} do not fit its config or vocabulary: {reason}") from error
    return TextModel(network.to(device).eval(), saved.vocabulary, saved.config)
