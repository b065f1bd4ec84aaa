"""Predictor: embedding -> recurrent network -> output module -> a prediction of what follows each step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.config import DetectorConfig, ModelConfig
from hmrnn.errors import InputError
from hmrnn.nn.context import Condition, Context, extra_size
from hmrnn.nn.distributions import Categorical, Prediction
from hmrnn.nn.dropout import drop_units
from hmrnn.nn.output import Output, changes
from hmrnn.nn.recurrent import check_lengths, check_some, check_symbols, check_tensor
from hmrnn.nn.recurrent import evaluating as evaluating
from hmrnn.nn.registry import make_rnn
from hmrnn.ops import State, Step
from hmrnn.ops.interface import within

LEAST = 1e-3
"""Least probability that a ridge regression gives to a symbol, before all are normalised."""
MANY = 8
"""More layers than these are not shown one by one."""


def shown_sizes(sizes: Sequence[int]) -> str:
    """The sizes of layers, for people; those of many layers are summed up."""
    if len(sizes) <= MANY:
        return ", ".join(map(str, sizes))
    if len(set(sizes)) == 1:
        return f"{sizes[0]} ({len(sizes):,} of them)"
    return f"{sizes[0]}, {sizes[1]}, ..., {sizes[-1]} ({len(sizes):,} in all)"


def describe(network: Any) -> str:
    """Kind, layer sizes, number of parameters and device of a network, for people."""
    sizes = shown_sizes(network.rnn.hidden_sizes)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    device = next(network.parameters()).device
    return f"{network.config.rnn} with layers of {sizes}, {parameters:,} parameters, on {device}"


@contextlib.contextmanager
def conditioned(network: Predictor, condition: Condition) -> Iterator[None]:
    """Within a block this is the condition of every sequence for which no argument gives one."""
    before, network.condition = network.condition, condition
    try:
        yield
    finally:
        network.condition = before


class GatedOutput(nn.Module):
    """Equations 11 and 12: the sum of every layer's embedded h, each weighted by a gate that reads all of them; ReLU.

    With the sizes of the first layers only, it reads these and not the layers above them.

    ``dropout`` is the share of the units of h that are dropped in training, the same ones throughout a sequence; h is
    then (T, B, H).
    """

    def __init__(self, hidden_sizes: Sequence[int], output_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.size = output_size
        self.dropout = dropout
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


def multiply_adds(model: Any, out: Output, before: State | None = None) -> Tensor:
    """(T, B) int64: multiply-adds of each step, counted from what the layers did.

    A matrix counts (rows x columns) where the vector it multiplies is new: U and the output module's matrix of a layer
    where that layer moved, W where the layer below ended a segment, V where the top-down gate was open and the layer
    moved (with ``top_down="always"``: where the layer above moved). The first W of a text model is a table look-up and
    counts nothing, unless the model is told more than the text.

    A detector reads what its layer reads: its row of U and W, or the columns of D1 beside them, count with that matrix.
    Its row of V, or the columns of D1, count where the gate was open and h above is new to it, also on COPY unless
    ``on_copy="hold"``. D2 counts where the layer moved, and once more for the value on COPY, which is made anew when
    the layer has moved or h above is new.

    Baselines multiply every matrix at every step, except that a module of a clockwork RNN multiplies its rows of U and
    W at its period only.

    Args:
        model: a :class:`Predictor`, or a network with the same parts. Its linear children, such as the head, count at
            every step.
        out: what its network gave for a chunk, (T, B, ...).
        before: the state before the chunk; zeros if None.
    """
    looked_up = isinstance(model.embedding, nn.Embedding) and not (hasattr(model, "context") and model.context.used)
    total = model.rnn.multiply_adds(out, before, looked_up)
    moved = changes(out, model.rnn)  # (T, B, L), or (T, B, L, 2): h of a layer has changed if either direction moved
    moved = moved.any(-1) if moved.dim() == 4 else moved
    total = total + sum(module.weight.numel() for module in model.children() if isinstance(module, nn.Linear))
    if hasattr(model.output, "gates"):  # otherwise h goes to the head as it is
        for l, embed in enumerate(model.output.embeddings):
            gates = model.output.gates.out_features * embed.in_features
            new = moved[..., l] if l < moved.shape[-1] else 1  # what stands beside the layers is always new
            total = total + new * (embed.weight.numel() + gates)
    return total.expand(moved.shape[:2])


class Draws(NamedTuple):
    """How the native engine draws what follows, from a linear layer over the output module."""

    head: nn.Linear
    numbers: int
    """Random numbers of which a draw is made."""
    width: int
    """Numbers that a draw gives."""
    choices: tuple[int, ...]
    """``top_k``; components of a stroke mixture, 0 for a softmax; whether halts are drawn."""
    reals: tuple[float, ...]
    """The temperature, the bias of strokes, ``top_p``; the least deviation and the largest correlation of strokes."""


class Predictor(nn.Module):
    """A network that predicts what follows each step of a sequence; the base of the networks of all kinds of data.

    A subclass makes its head after ``super().__init__``, and :meth:`expect` says what the head predicts.

    Args:
        config: sizes and options.
        input_size: the size of the vectors that ``embedding`` gives, or of the steps themselves.
        embedding: a module from steps (..., *step_shape) to vectors (..., input_size), such as an ``nn.Embedding`` of
            symbols, or one with several embeddings. None: the steps are vectors already.
        engine: the implementation of the recurrence.
        detectors: how the detectors of "hm-lstm" and "hrnn" decide.
        beside: sizes of what else the output module reads, beside h of all layers.

    Example: symbols, each with the time since the one before::

        class EventEmbedding(nn.Module):
            def __init__(self, kinds, size):
                super().__init__()
                self.kinds = nn.Embedding(kinds, size)

            def forward(self, x):  # (..., 2)
                return torch.cat([self.kinds(x[..., 0].long()), x[..., 1:].log1p()], dim=-1)

        class EventModel(Predictor):
            step_shape = (2,)

            def __init__(self, kinds, config, **how):
                super().__init__(config, 17, embedding=EventEmbedding(kinds, 16), **how)
                self.head = nn.Linear(self.output.size, kinds + 1)

            def expect(self, embedding):
                scores = self.head(embedding)
                return EventPrediction(scores[..., :-1], scores[..., -1])  # a NamedTuple that is a Prediction
    """

    step_shape: ClassVar[tuple[int, ...]] = ()
    """The shape of one step of one sequence."""
    dropout_embedding: float
    """With an embedding: the share of its units that is dropped in training, per sequence."""
    condition: Condition = Condition()
    """The condition of sequences for which no argument gives one; :func:`conditioned` sets it."""

    def __init__(
        self,
        config: ModelConfig,
        input_size: int,
        *,
        embedding: nn.Module | None = None,
        engine: str = "auto",
        detectors: DetectorConfig | None = None,
        beside: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding: Any = embedding
        if embedding is not None:
            self.dropout_embedding = 0.0
        self.rnn: Any = make_rnn(input_size + extra_size(config), config, engine, detectors)
        self.context = Context(config, self.rnn.hidden_sizes)
        self.output = make_output((*self.rnn.hidden_sizes, *beside), config)

    def expect(self, embedding: Tensor) -> Prediction:
        """The prediction from an output embedding (..., output_size)."""
        raise NotImplementedError

    def draws(self, *args: Any, **how: Any) -> Draws | None:
        """What :meth:`expect` and its prediction's ``sample`` do, if the native engine can do it; else None."""
        return None

    def prepared(self, x: Tensor, state: State, condition: Condition) -> tuple[Tensor, Any, list[Any]]:
        """Of steps x (T, B, ...) that the native engine is to draw: what it reads, and a window that goes along; then
        two h and two c that the window adds to the state, before each step and after the last."""
        if not self._symbols:
            x = self.context(x, self._conditioned(condition, x.shape[:2])).contiguous()
        return x, None, []

    def boundaries(self, x: Tensor) -> Tensor | None:
        """(..., L-1): the boundaries given with the steps, NaN where the detector decides; None if there are none."""
        return None

    def predict(
        self,
        x: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        boundaries: Tensor | None = None,
        condition: Condition | None = None,
    ) -> tuple[Any, Output, State]:
        """The prediction (T, B) of what follows each step of x (T, B, ...), the network's output and its state."""
        if self.embedding is not None:
            check_tensor("x", x, ("T", "B", *self.step_shape))
        boundaries = self.boundaries(x) if boundaries is None else boundaries
        condition = self._conditioned(condition, x.shape[:2])
        dropped = self.training and self.embedding is not None and self.dropout_embedding > 0
        table = None
        if self._symbols and not self.context.used and not dropped:  # an engine looks up the products of a symbol
            table = self.embedding.weight
        else:
            x = self._embedded(x, lengths)
            x = self.context(drop_units(x, self.dropout_embedding) if dropped else x, condition)
            state = self.context.initial_state(self.rnn, condition, x.shape[1]) if state is None else state
        out, state = self.rnn(x, state, lengths, boundaries, embedding=table)
        return self.expect(self.output(out.hidden)), out, state

    def forward(self, *args: Any, **how: Any) -> tuple[Any, Output, State]:
        """As :meth:`predict`."""
        return self.predict(*args, **how)

    def step(self, x: Tensor, state: State, condition: Condition | None = None) -> Step:
        """Read one step per sequence (B, ...), without a gradient, as in ``eval()``."""
        condition = self._conditioned(condition, x.shape[:1])
        vectors = x if self.embedding is None else self.embedding(x)
        return self.rnn.step(self.context(vectors[None], condition)[0], state, self.boundaries(x))

    def initial_state(self, batch_size: int, condition: Condition | None = None) -> State:
        """The state at the start of sequences: zeros, or what a condition says."""
        condition = self._conditioned(condition, (batch_size,))
        return self.context.initial_state(self.rnn, condition, batch_size)

    def example(self, B: int) -> tuple[Tensor, Condition]:
        """A step of B sequences and their condition, to trace the network with."""
        m, like = self.config, self.rnn.parameter
        value = torch.zeros(B, dtype=torch.int64) if m.classes else like.new_zeros(B, m.condition_numbers)
        clock = None if m.time == "none" else like.new_zeros(B)
        x = self.as_input(np.zeros((B, *self.step_shape), np.int64))
        return x, Condition(value if m.conditioned else None, clock)

    def beside(self, state: State, condition: Condition) -> dict[str, Tensor]:
        """By name, what a traced step gives beside the prediction, (B, ...)."""
        return {}

    def as_input(self, steps: np.ndarray) -> Tensor:
        """Steps as the model reads them, on its device: indices of symbols, checked, or numbers in its dtype."""
        if not self._symbols:
            return torch.from_numpy(steps).to(self.rnn.parameter)
        count = self.embedding.num_embeddings
        if steps.size and not (steps.dtype.kind in "iu" and 0 <= steps.min() <= steps.max() < count):
            got = f"{steps.min()} to {steps.max()}, of {steps.dtype}"
            raise InputError(f"symbols must be whole numbers between 0 and {count - 1}; got {got}")
        return torch.from_numpy(steps.astype(np.int64)).to(self.embedding.weight.device)

    @property
    def _symbols(self) -> bool:
        """Whether the steps are symbols, of which each has a row of the embedding."""
        return isinstance(self.embedding, nn.Embedding)

    def _embedded(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """(T, B, input_size); symbols after the checks of the recurrent network."""
        if not self._symbols:
            return x if self.embedding is None else self.embedding(x)
        table = self.embedding.weight
        check_some(x)
        check_symbols(x, table)
        T, B = x.shape
        lengths = check_lengths(lengths, T, B, x.device)
        self.rnn.check_numbers(x, table, lengths)
        if lengths is not None:  # padding may hold any number, and is not read
            x = x.masked_fill(~within(lengths, T), 0)
        return self.embedding(x)

    def _conditioned(self, condition: Condition | None, shape: Sequence[int]) -> Condition:
        """The condition of the sequences; the last number of ``shape`` is how many there are."""
        condition = self.condition if condition is None else condition
        if not self.context.used and any(a is not None for a in condition):
            raise InputError("this model takes neither a condition nor the time; leave them out")
        return condition.expanded(shape[-1]) if self.context.used else condition


class SymbolPredictor(Predictor):
    """Predicts the next of ``num_symbols`` symbols: an embedding at the one end, a softmax at the other.

    ``given`` (num_symbols, num_layers - 1) are the boundaries that each symbol brings with it, NaN where the detector
    decides, as in ``Vocabulary.boundaries``; the network "hrnn" needs them. ``how`` are arguments of
    :class:`Predictor`.
    """

    given: Tensor | None

    def __init__(self, num_symbols: int, config: ModelConfig, *, given: np.ndarray | None = None, **how: Any) -> None:
        embedding = nn.Embedding(num_symbols, config.embedding_size)
        super().__init__(config, config.embedding_size, embedding=embedding, **how)
        self.num_symbols = num_symbols
        self.softmax = nn.Linear(self.output.size, num_symbols)
        expected = (num_symbols, self.rnn.num_boundaries)
        given_ones = self.rnn.num_boundaries > 0 and not self.rnn.settable
        if given_ones if given is None else given.shape != expected:
            got = "none" if given is None else f"shape {given.shape}"
            raise InputError(f"the boundaries given with each symbol must have shape {expected}; got {got}")
        self.register_buffer("given", None if given is None else torch.from_numpy(given), persistent=False)
        if config.ridge:  # until it is fitted, all symbols are equally likely
            nn.init.zeros_(self.softmax.weight)
            nn.init.zeros_(self.softmax.bias)

    def expect(self, embedding: Tensor) -> Categorical:
        """From the softmax; a ridge regression gives probabilities, some of them negative."""
        scores = self.softmax(embedding)
        return Categorical(scores.float().clamp(min=LEAST).log() if self.config.ridge else scores)

    def draws(self, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> Draws | None:
        if type(self).expect is not SymbolPredictor.expect or self.config.ridge or self.given is not None:
            return None
        top_k = 1 if temperature == 0 else self.num_symbols if top_k is None else min(top_k, self.num_symbols)
        reals = (temperature or 1.0, 0.0, 1.0 if top_p is None else top_p, 0.0, 0.0)
        return Draws(self.softmax, 1, 1, (top_k, 0, 0), reals)

    def boundaries(self, x: Tensor) -> Tensor | None:
        return None if self.given is None else self.given[x.long().clamp(0, self.num_symbols - 1)]
