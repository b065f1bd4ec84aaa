"""LanguageModel and HandwritingModel: recurrent network -> the paper's gated output module -> a prediction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.config import DetectorConfig, ModelConfig, SegmentConfig
from hmrnn.errors import InputError
from hmrnn.kinds.text.words.segmental import Scores, SegmentalHead
from hmrnn.nn.checks import check_input, check_lengths, check_values
from hmrnn.nn.context import NOTHING, Context, Told, extra_size, make_context
from hmrnn.nn.distributions import Categorical, Halting, StrokeMixture, head_size
from hmrnn.nn.dropout import drop_units, probability
from hmrnn.nn.output import Output
from hmrnn.nn.registry import make_rnn
from hmrnn.ops import State, Step

POINT_SIZE = 3
"""Δx, Δy, pen_up."""
MANY = 8
"""More layers than these are not shown one by one."""
LEAST = 1e-3
"""Least probability that a ridge regression gives to a symbol, before all are normalised."""


@contextlib.contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """``eval()`` within a block; afterwards every module has the mode that it had before."""
    modes = {module: module.training for module in network.modules()}
    if any(modes.values()):
        network.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            if module.training != training:  # setting an attribute of a module takes long
                module.training = training


def shown_sizes(sizes: Sequence[int]) -> str:
    """The sizes of layers, for people; those of many layers are summed up."""
    if len(sizes) <= MANY:
        return ", ".join(map(str, sizes))
    if len(set(sizes)) == 1:
        return f"{sizes[0]} ({len(sizes):,} of them)"
    return f"{sizes[0]}, {sizes[1]}, ..., {sizes[-1]} ({len(sizes):,} in all)"


def describe(network: LanguageModel | HandwritingModel) -> str:
    """Kind, layer sizes, number of parameters and device of a network, for people."""
    sizes = shown_sizes(network.rnn.hidden_sizes)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    device = next(network.parameters()).device
    return f"{network.config.rnn} with layers of {sizes}, {parameters:,} parameters, on {device}"


class GatedOutput(nn.Module):
    """Equations 11 and 12: the sum of every layer's embedded h, each weighted by a gate that reads all of them; ReLU.

    With the sizes of the first layers only, it reads these and not the layers above them.

    ``dropout`` is the share of the units of h that are dropped in training, the same ones throughout a sequence; h is
    then (T, B, H).
    """

    def __init__(self, hidden_sizes: Sequence[int], output_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.size = output_size
        self.dropout = probability("dropout", dropout)
        self.gates = nn.Linear(sum(hidden_sizes), len(hidden_sizes), bias=False)  # w of (11)
        self.embeddings = nn.ModuleList(nn.Linear(size, output_size, bias=False) for size in hidden_sizes)  # Wᵉ of (12)

    def forward(self, hidden: Sequence[Tensor]) -> Tensor:
        hidden = hidden[: len(self.embeddings)]
        if self.training and self.dropout > 0:
            hidden = [drop_units(h, self.dropout) for h in hidden]
        return self.combine(hidden, [embed(h) for embed, h in zip(self.embeddings, hidden)])

    def combine(self, hidden: Sequence[Tensor], terms: Sequence[Tensor]) -> Tensor:
        """The result from h and the layers' terms Wᵉh; step by step, a term is reused while its layer copies."""
        g = torch.sigmoid(self.gates(torch.cat(list(hidden[: len(terms)]), dim=-1)))  # (..., L), equation 11
        return F.relu(sum((g[..., l, None] * term for l, term in enumerate(terms)), start=torch.zeros_like(terms[0])))


class JoinedOutput(nn.Module):
    """h of all layers side by side, for a linear output that ridge regression fits."""

    def __init__(self, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.size = sum(hidden_sizes)
        self.embeddings = nn.ModuleList(nn.Identity() for _ in hidden_sizes)

    def forward(self, hidden: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(hidden), dim=-1)

    def combine(self, hidden: Sequence[Tensor], terms: Sequence[Tensor]) -> Tensor:
        """As of :class:`GatedOutput`."""
        return self(terms)


def make_output(hidden_sizes: Sequence[int], config: ModelConfig) -> GatedOutput | JoinedOutput:
    """The output module over the layers that ``config.output_layers`` names."""
    if config.ridge:
        return JoinedOutput(hidden_sizes)
    return GatedOutput(hidden_sizes[:1] if config.output_layers == "first" else hidden_sizes, config.output_size)


@contextlib.contextmanager
def telling(network: LanguageModel | HandwritingModel, told: Told) -> Iterator[None]:
    """Within a block the network is told this of every sequence that it is told nothing of by an argument."""
    before, network.told = network.told, told
    try:
        yield
    finally:
        network.told = before


class ToldModel(nn.Module):
    """A model that may be told a condition and the time of its sequences."""

    context: Context | None
    rnn: Any
    told: Told = NOTHING
    """What it is told unless an argument says otherwise; :func:`telling` sets it."""

    def _told(self, told: Told | None, shape: Sequence[int]) -> Told:
        """What is told of the sequences; the last number of ``shape`` is how many there are."""
        told = self.told if told is None else told
        if self.context is None and any(a is not None for a in told):
            raise InputError("this model takes neither a condition nor the time; leave them out")
        return told if self.context is None else told.expanded(shape[-1])

    def initial_state(self, batch_size: int, told: Told | None = None) -> State:
        """The state at the start of sequences: zeros, or what a condition says."""
        told = self._told(told, (batch_size,))
        if self.context is None:
            return self.rnn.initial_state(batch_size)
        return self.context.initial_state(self.rnn, told, batch_size)


class LanguageModel(ToldModel):
    """A recurrent network that predicts the next symbol from those so far.

    Args:
        num_symbols: size of the vocabulary.
        config: sizes and options.
        engine: the implementation of the recurrence.
        given: (num_symbols, num_layers - 1) the boundaries that each symbol brings with it, NaN where the detector
            decides (``Vocabulary.boundaries``); needed by "hrnn".
        detectors: how the detectors of "hm-lstm" and "hrnn" decide.
        segments: the segmental head; none by default.
        rules: (num_symbols, num_symbols): where the head must cut and must not (``data.text.joints.rules``).

    Example::

        >>> model = LanguageModel(27, ModelConfig(hidden_size=(64,), embedding_size=16, output_size=64))
        >>> logits, out, state = model(torch.randint(27, (100, 8)))
        >>> logits.shape
        torch.Size([100, 8, 27])
    """

    step_shape: ClassVar[tuple[int, ...]] = ()
    """The shape of one step of one sequence."""
    given: Tensor | None
    """(symbols, L-1): the boundaries given with each symbol, NaN where the detector decides; None if all decide."""

    def __init__(
        self,
        num_symbols: int,
        config: ModelConfig,
        *,
        engine: str = "auto",
        given: np.ndarray | None = None,
        detectors: DetectorConfig | None = None,
        segments: SegmentConfig | None = None,
        rules: np.ndarray | None = None,
    ) -> None:
        super().__init__()
        self.num_symbols = num_symbols
        self.config = config
        self.embedding = nn.Embedding(num_symbols, config.embedding_size)
        self.dropout_embedding = 0.0  # share of the embedding that is dropped in training, per sequence
        self.rnn = make_rnn(config.embedding_size + extra_size(config), config, engine, detectors)
        self.context = make_context(config, self.rnn.hidden_sizes)
        expected = (num_symbols, self.rnn.num_boundaries)
        if config.rnn == "hrnn" if given is None else given.shape != expected:
            got = "none" if given is None else f"shape {given.shape}"
            raise InputError(f"the boundaries given with each symbol must have shape {expected}; got {got}")
        self.register_buffer("given", None if given is None else torch.from_numpy(given), persistent=False)
        self.output = make_output(self.rnn.hidden_sizes, config)
        self.softmax = nn.Linear(self.output.size, num_symbols)
        if config.ridge:  # until it is fitted, all symbols are equally likely
            nn.init.zeros_(self.softmax.weight)
            nn.init.zeros_(self.softmax.bias)
        self.segments: SegmentalHead | None = None
        if segments is not None and segments.size:
            self.segments = SegmentalHead(
                num_symbols,
                segments.reader or sum(self.rnn.hidden_sizes),
                longest=segments.longest,
                size=segments.size,
                rules=rules,
                lexicon=segments.lexicon,
                dropout=segments.dropout,
                reader=segments.reader > 0,
            )

    def forward(
        self,
        symbols: Tensor,  # (T, B)
        state: State | None = None,
        lengths: Tensor | None = None,
        boundaries: Tensor | None = None,
        told: Told | None = None,
    ) -> tuple[Tensor, Output, State]:
        """Logits (T, B, number of symbols) of the symbol that follows each one, the network's output and its state."""
        if isinstance(symbols, Tensor) and symbols.dim() != 2:
            raise InputError(f"x must have shape (T, B); got {tuple(symbols.shape)}")
        boundaries = self.boundaries(symbols) if boundaries is None else boundaries
        told = self._told(told, symbols.shape)
        dropped = self.training and self.dropout_embedding > 0
        if self.context is None and not dropped:
            out, state = self.rnn(symbols, state, lengths, boundaries, embedding=self.embedding.weight)
        else:
            x = self._embedded(symbols, lengths)
            x = drop_units(x, self.dropout_embedding) if dropped else x
            if self.context is not None:
                state = self.context.initial_state(self.rnn, told, symbols.shape[1]) if state is None else state
                x = self.context(x, told)
            out, state = self.rnn(x, state, lengths, boundaries)
        return self._logits(self.output(out.hidden)), out, state

    def _logits(self, embedding: Tensor) -> Tensor:
        """The logits of the symbols; a ridge regression gives probabilities, some of them negative."""
        scores = self.softmax(embedding)
        return scores.float().clamp(min=LEAST).log() if self.config.ridge else scores

    def _embedded(self, symbols: Tensor, lengths: Tensor | None) -> Tensor:
        """(T, B, embedding_size), after the checks of the recurrent network."""
        if self.context is None:
            check_input(self.rnn, symbols, self.embedding.weight, sequence=True)
        elif symbols.dtype not in (torch.int64, torch.int32):
            raise InputError(f"x must hold symbol indices (int64 or int32); got {symbols.dtype}")
        T, B = symbols.shape
        lengths = check_lengths(lengths, T, B, symbols.device)
        check_values(self.rnn, symbols, None, lengths=lengths, embedding=self.embedding.weight)
        known = symbols
        if lengths is not None:  # padding may hold any number, and is not read
            known = symbols.masked_fill(torch.arange(T, device=symbols.device)[:, None] >= lengths, 0)
        return self.embedding(known)

    def predict(
        self, symbols: Tensor, state: State | None = None, lengths: Tensor | None = None, told: Told | None = None
    ) -> tuple[Categorical, Output, State]:
        """As :meth:`forward`, with the prediction (T, B) in place of its logits."""
        logits, out, state = self(symbols, state, lengths, told=told)
        return Categorical(logits), out, state

    def expect(self, embedding: Tensor) -> Categorical:
        """The prediction from an output embedding (..., output_size)."""
        return Categorical(self._logits(embedding))

    def score_segments(self, symbols: Tensor, hidden: Sequence[Tensor], following: Tensor) -> Scores:
        """The segmental head's scores (T, K, B) of segments that begin after each step.

        Args:
            symbols: (T, B): the symbol that is read at each step; needed by a head with a reader of its own.
            hidden: h of all layers, L tensors (T, B, H_l); needed by other heads.
            following: (T, K + 1, B): the symbols after each step, from ``segmental.windows``.
        """
        if self.segments is None:
            raise InputError("this model has no segmental head; train one with segments.size, as the preset words does")
        context = torch.cat(list(hidden), dim=-1) if self.segments.reader is None else self.segments.read(symbols)
        return cast(Scores, self.segments(context, following))

    def step(self, symbols: Tensor, state: State, told: Told | None = None) -> Step:
        """Read one symbol per sequence (B,), without a gradient, as in ``eval()``."""
        x = self.embedding.weight[symbols]
        told = self._told(told, x.shape[:1])
        x = x if self.context is None else self.context(x[None], told)[0]
        return self.rnn.step(x, state, self.boundaries(symbols))

    def as_input(self, symbols: np.ndarray) -> Tensor:
        """Symbol indices, checked, as the model reads them: int64, on its device."""
        if symbols.size and symbols.dtype.kind not in "iu":
            raise InputError(f"symbols must be whole numbers; got {symbols.dtype}")
        if symbols.size and not 0 <= symbols.min() <= symbols.max() < self.num_symbols:
            raise InputError(
                f"symbols must lie between 0 and {self.num_symbols - 1}; got {symbols.min()} to {symbols.max()}"
            )
        return torch.from_numpy(symbols.astype(np.int64)).to(self.softmax.weight.device)

    def boundaries(self, symbols: Tensor) -> Tensor | None:
        """(..., L-1): the boundaries given with the symbols; None if there are none."""
        return None if self.given is None else self.given[symbols.long().clamp(0, self.num_symbols - 1)]


class HandwritingModel(ToldModel):
    """A recurrent network that predicts the next pen movement from those so far, by a mixture density.

    A point is (Δx, Δy, pen_up) in normalised coordinates. There is no embedding: ``config.embedding_size`` is unused.

    Args:
        config: sizes and options; ``mixtures`` is the number of Gaussians.
        engine: the implementation of the recurrence.
        detectors: how the detectors of "hm-lstm" decide.

    Example::

        >>> model = HandwritingModel(ModelConfig(hidden_size=(64,), output_size=64, mixtures=5))
        >>> mixture, out, state = model(torch.randn(100, 8, 3))
        >>> mixture.means.shape
        torch.Size([100, 8, 5, 2])
    """

    step_shape: ClassVar[tuple[int, ...]] = (POINT_SIZE,)

    def __init__(self, config: ModelConfig, *, engine: str = "auto", detectors: DetectorConfig | None = None) -> None:
        super().__init__()
        self.config = config
        if config.rnn == "hrnn":
            raise InputError("model.rnn hrnn is told where words and lines of a text end; strokes have neither")
        self.rnn = make_rnn(POINT_SIZE + extra_size(config), config, engine, detectors)
        self.context = make_context(config, self.rnn.hidden_sizes)
        self.output = make_output(self.rnn.hidden_sizes, config)
        self.density = nn.Linear(config.output_size, head_size(config.mixtures) + config.halt)

    def forward(
        self,
        points: Tensor,  # (T, B, 3)
        state: State | None = None,
        lengths: Tensor | None = None,
        boundaries: Tensor | None = None,
        told: Told | None = None,
    ) -> tuple[StrokeMixture | Halting, Output, State]:
        """The prediction (T, B) of the point that follows each one, the network's output and its state."""
        told = self._told(told, points.shape[:2])
        if self.context is not None:
            state = self.context.initial_state(self.rnn, told, points.shape[1]) if state is None else state
            points = self.context(points, told)
        out, state = self.rnn(points, state, lengths, boundaries)
        return self.expect(self.output(out.hidden)), out, state

    def predict(
        self, points: Tensor, state: State | None = None, lengths: Tensor | None = None, told: Told | None = None
    ) -> tuple[StrokeMixture | Halting, Output, State]:
        """The same as :meth:`forward`."""
        return self(points, state, lengths, told=told)

    def expect(self, embedding: Tensor) -> StrokeMixture | Halting:
        """The prediction from an output embedding (..., output_size); in float32 under autocast, too."""
        with torch.autocast(embedding.device.type, enabled=False):
            vector = self.density(embedding.to(self.density.weight.dtype))
            if self.config.halt:
                return Halting(StrokeMixture.from_vector(vector[..., :-1]), vector[..., -1])
            return StrokeMixture.from_vector(vector)

    def step(self, points: Tensor, state: State, told: Told | None = None) -> Step:
        """Read one point per sequence (B, 3), without a gradient, as in ``eval()``."""
        told = self._told(told, points.shape[:1])
        return self.rnn.step(points if self.context is None else self.context(points[None], told)[0], state)

    def as_input(self, points: np.ndarray) -> Tensor:
        """Normalised points as the model reads them, in its dtype and on its device."""
        return torch.from_numpy(points).to(self.density.weight)

    def log_likelihood(self, points: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Output]:
        """(T-1, B): the log-density in nats of each point (T, B, 3) but the first, given those before it; 0 in padding.

        ``lengths`` (B,) counts points. Padding comes last and is read, too; nothing before it depends on it.
        """
        if lengths is not None and lengths.device.type == "cpu":  # on a GPU the check would wait for it
            check_lengths(lengths, len(points), points.shape[1], lengths.device)
        mixture, out, _ = self(points[:-1])
        result = mixture.log_prob(points[1:])
        if lengths is None:
            return result, out
        counted = torch.arange(1, len(points), device=points.device)[:, None] < lengths  # (T-1, B)
        return torch.where(counted, result, 0.0), out
