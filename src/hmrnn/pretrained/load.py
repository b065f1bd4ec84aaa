"""A trained model as people use it: load(...), and TextModel: text in; segments, more text or a score out."""

from __future__ import annotations

import codecs
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from hmrnn import checkpoint
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.checkpoint import Checkpoint
from hmrnn.config import Config
from hmrnn.data.strokes.strokes import Scale
from hmrnn.data.text.sources import as_read
from hmrnn.data.text.spaces import is_space
from hmrnn.data.text.vocabulary import Vocabulary, code_points
from hmrnn.errors import InputError
from hmrnn.inference.evaluate import Evaluation, evaluate
from hmrnn.inference.read import segment, segment_many
from hmrnn.inference.sample import stream
from hmrnn.nn.baselines.layer_norm_lstm import LayerNormLSTM
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.nn.models import HandwritingModel, LanguageModel, describe
from hmrnn.pretrained import bundled
from hmrnn.pretrained.strokes import StrokeModel
from hmrnn.tasks.registry import make_model
from hmrnn.utils.devices import find_device


@dataclasses.dataclass(repr=False)
class TextModel:
    """A language model with its vocabulary and the config it was trained by; see :func:`load`."""

    network: LanguageModel
    vocabulary: Vocabulary
    config: Config
    source: str | None = None
    """What it was loaded from."""

    def __repr__(self) -> str:
        vocabulary = self.vocabulary
        return (
            f"<TextModel {self.source or 'in memory'}: {describe(self.network)}; {len(vocabulary)} {vocabulary.kind}>"
        )

    def segment(self, text: str, *, progress: Callable[[int, int], None] | None = None) -> Segmentation:
        """The segments that the detectors find in ``text``, at every level.

        ``progress`` is told how many steps of how many are done.
        """
        indices = self._encode(text, "segment")
        return segment(self.network, indices, self.vocabulary.pieces(indices), progress=progress)

    def segment_many(
        self, texts: Iterable[str], *, batch: int = 32, progress: Callable[[int, int], None] | None = None
    ) -> list[Segmentation]:
        """As :meth:`segment`, each text by itself, ``batch`` of similar length side by side."""
        if isinstance(texts, str):
            raise InputError("texts must be a list of texts; got one, for which there is segment")
        indices = [self._encode(text, "segment") for text in texts]
        shown = [self.vocabulary.pieces(sequence) for sequence in indices]
        return segment_many(self.network, indices, shown, batch=batch, progress=progress)

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
        _check_text("the prompt", prompt)
        start = self.vocabulary.encode(self._as_trained(prompt)) if prompt else np.zeros(0, dtype=np.int64)
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

    def score(self, text: str, *, progress: Callable[[int, int], None] | None = None) -> Evaluation:
        """Bits per symbol of ``text``, each symbol predicted from all before it, with boundary rates and updates.

        ``progress`` is told how many steps of how many are done.
        """
        return evaluate(self.network, self._encode(text, "score"), progress=progress)

    def score_lines(self, lines: Iterable[str]) -> Iterator[Evaluation | None]:
        """As :meth:`score`, each line by itself; None for one of fewer than two symbols, which has none to predict."""
        if isinstance(lines, str) or not isinstance(lines, Iterable):
            raise InputError(f"the lines must be strings in a list or the like; got {type(lines).__name__}")
        for number, line in enumerate(lines, start=1):
            _check_text(f"line {number}", line)
            try:
                symbols = self.vocabulary.encode(self._as_trained(line))
            except InputError as error:
                raise InputError(f"line {number}: {error}") from error
            yield evaluate(self.network, symbols) if len(symbols) > 1 else None

    def to(self, device: str | torch.device) -> TextModel:
        """Move the network; returns self."""
        self.network.to(find_device(device))
        return self

    def _encode(self, text: str, verb: str) -> np.ndarray:
        _check_text("the text", text)
        text = self._as_trained(text)
        if not text:
            raise InputError(f"there is nothing to {verb}: the text is empty")
        return self.vocabulary.encode(text)

    def _as_trained(self, text: str) -> str:
        """As files are read where symbols are characters; without its spaces, if the model was trained so."""
        text = as_read(text) if self.vocabulary.kind == "characters" else text
        if not self.config.data.remove_spaces:
            return text
        space = is_space(code_points(text), self.vocabulary.kind).tolist()
        return "".join(symbol for symbol, removed in zip(text, space) if not removed)


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        hint = "; decode it first, as in text.decode()" if isinstance(text, bytes) else ""
        raise InputError(f"{what} must be a str; got {type(text).__name__}{hint}")


def load(source: str | Path, *, device: str | torch.device = "cpu", engine: str = "auto") -> TextModel | StrokeModel:
    """The model in a run directory (its best checkpoint) or a checkpoint directory, or one that comes with hmrnn.

    The name of one that comes with hmrnn, such as "english-small", always means that one. A directory of the same name
    is meant by ``./english-small``, or by a Path. ``device`` is cpu, cuda, cuda:N, or auto: a GPU if there is one.

    Example::

        >>> model = hmrnn.load("english-small")
        >>> model.segment("the quick brown fox").text
        'the quick brown fox'
        >>> model = hmrnn.load("runs/demo")  # doctest: +SKIP
    """
    place = find_device(device)
    directory = locate(source)
    saved = checkpoint.read(directory)
    reads, config = saved.reads, saved.config
    try:
        _check_sizes(saved)
        network = _network(saved, engine)
        network.load_state_dict(saved.weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the weights in {directory} do not fit its config or vocabulary: {reason}") from error
    wrong = [name for name, weight in saved.weights.items() if not weight.isfinite().all()]
    if wrong:
        raise InputError(f"{wrong[0]} in {directory} is not finite: this model has diverged; use an earlier checkpoint")
    if isinstance(network.rnn, HMLSTM):
        network.rnn.slope = network.rnn.slope  # which refuses what no slope can be
    network.to(place).eval()
    if isinstance(network, HandwritingModel):
        assert isinstance(reads, Scale)
        return StrokeModel(network, reads, config, str(source))
    assert isinstance(reads, Vocabulary)
    return TextModel(network, reads, config, str(source))


def locate(source: str | Path) -> Path:
    """The checkpoint directory that :func:`load` reads."""
    return checkpoint.find(bundled.find(source))


def _network(saved: Checkpoint, engine: str = "auto") -> LanguageModel | HandwritingModel:
    """The network that a checkpoint describes, without its weights."""
    network = make_model(saved.config.model, saved.reads, engine)
    if isinstance(network.rnn, HMLSTM | LayerNormLSTM):
        network.rnn.zoneout = saved.config.regularise.zoneout  # of all that regularises, it alone counts in eval()
    return network


def _check_sizes(saved: Checkpoint) -> None:
    """Raise RuntimeError unless the weights have the sizes of the config; no memory is taken on its word."""
    saved.config.check()
    for name, weight in saved.weights.items():
        if weight.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            raise RuntimeError(
                f"{name} must hold floating-point numbers of 16, 32 or 64 bits, and holds {weight.dtype}"
            )
    model, found = saved.config.model, {name: weight.shape for name, weight in saved.weights.items()}
    if max(model.num_layers, model.modules if model.rnn == "cw-rnn" else 0) > len(found):
        raise RuntimeError(f"there are {len(found)} tensors for {model.num_layers} layers")
    with torch.device("meta"), _WithoutDraws():
        expected = {name: weight.shape for name, weight in _network(saved).state_dict().items()}
    wrong = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    if wrong:
        name = wrong[0]
        shapes = (tuple(shapes[name]) if name in shapes else "nothing" for shapes in (expected, found))
        raise RuntimeError("{} must have shape {}, and has {}".format(name, *shapes))


class _WithoutDraws(TorchFunctionMode):
    """Tensors stay without values as on "meta" there are none, and torch would import its compiler to say so.

    It is asked for what drawing and making a matrix orthogonal take: of these only the shape matters here.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.__name__ in ("normal_", "uniform_", "sign"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def load_text(source: str | Path, *, device: str | torch.device = "cpu", engine: str = "auto") -> TextModel:
    """As :func:`load`, where only a model of text will do."""
    model = load(source, device=device, engine=engine)
    if not isinstance(model, TextModel):
        raise InputError(f"{source} holds a model of handwriting, and this needs one of text; choose another --model")
    return model
