"""What a trainer works with: a Task, the data, model, loss and measure of a run, and Terms, techniques of training."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from hmrnn.config import Config
from hmrnn.kind import InputSpec
from hmrnn.nn.context import Condition
from hmrnn.nn.output import Operation, Output
from hmrnn.nn.predictor import Predictor, evaluating
from hmrnn.ops import State
from hmrnn.ops.estimators import straight_through
from hmrnn.training.finite import Watch
from hmrnn.training.progress import Progress


@dataclasses.dataclass(frozen=True)
class Validation:
    """The result of a model on the validation part."""

    measure: float
    """In the unit of the task; lower is better."""
    rates: tuple[float, ...]
    """How often each detector fired, per step."""
    updates: tuple[float, ...]
    """Share of the steps at which each layer did not COPY."""
    multiply_adds: float
    """Per step, with the output module."""
    count: int
    """Symbols or sequences that were measured."""
    error: float | None = None
    """Share of the answers that are wrong, or as the kind's measure says; None if the task has no right answers."""


class Loss(NamedTuple):
    """The loss of a batch, or of a part of one, with what the pulls on the detectors need."""

    value: Tensor
    """The scalar that an update minimises, in nats. The loss of a whole batch is the mean over its parts."""
    boundaries: Tensor
    """(T, B, detectors), with the gradient by which pulls reach the detectors; see :func:`detected`."""
    state: State
    active: Tensor | None = None
    """(T, B): False in the padding; None if there is no padding."""
    surprise: Tensor | None = None
    """(T, B): nats for what follows each step, without a gradient. This and what follows: None if no term needs it."""
    entropy: Tensor | None = None
    """(T, B): the entropy of the prediction of what follows each step."""
    chances: Tensor | None = None
    """(T, B, detectors): the probability that each detector fires."""
    hidden: Tensor | None = None
    """(T, B, units): h of all layers before each step, without a gradient."""
    divisor: float = 1.0
    """``value`` is the sum of ``surprise`` over this number."""
    more: Tensor | None = None
    """A scalar that an update minimises beside ``value``, in nats; None if there is none."""
    segments: Tensor | None = None
    """(T, B): the segmental head's probability that a segment ends after each step; None without such a head."""

    def weight(self) -> Tensor:
        """The weight of this part's rates among those of other parts: its number of steps, or 1 without padding."""
        return torch.ones_like(self.value) if self.active is None else self.active.sum()

    def rates(self) -> Tensor:
        """(detectors,): how often each detector fired, with its gradient."""
        if self.active is None:
            return self.boundaries.mean((0, 1))
        return (self.boundaries * self.active[..., None]).sum((0, 1)) / self.active.sum().clamp(min=1)


def chances(out: Output, rnn: Any) -> Tensor:
    """(T, B, detectors): the hard sigmoid of each detector; 0 where ``on_copy="hold"`` keeps it from firing."""
    if rnn.num_boundaries == 0 or rnn.on_copy != "hold":
        return out.probabilities
    layers = out.operations.unflatten(-1, (-1, rnn.num_boundaries + 1))  # (T, B, directions, layers)
    return torch.where(layers[..., :-1].flatten(-2) == Operation.COPY, 0.0, out.probabilities)


def detected(out: Output, rnn: Any, needs: Collection[str], before: State | None = None) -> dict[str, Any]:
    """The fields of a :class:`Loss` that say what detectors did; ``before`` is the state at the start, or zeros.

    Detectors of the reverse direction come after those of the forward one.
    z has its gradient or, with "reinforce", whose z has none, that of the probabilities.
    """
    out = flat_directions(out)
    likely, z = chances(out, rnn) if "chances" in needs else None, out.boundaries
    if likely is not None and rnn.boundary == "reinforce":
        z = straight_through(likely, z)
    return {
        "boundaries": z, "chances": likely, "hidden": hidden_before(out, before) if "hidden" in needs else None,
    }  # fmt: skip


def flat_directions(out: Output) -> Output:
    """``out`` with detectors and directions in one axis, those of the forward direction first."""
    if out.boundaries.dim() < 4:
        return out
    return out.apply(lambda a: a.movedim(-1, -2).flatten(-2), hidden=out.hidden)


def hidden_before(out: Output, state: State | None) -> Tensor:
    """(T, B, units): h of all layers before each step, without a gradient; ``state`` is that at the start, or zeros."""
    hidden = torch.cat([cast(Tensor, h).detach() for h in out.hidden], dim=-1)
    first = torch.zeros_like(hidden[:1]) if state is None else torch.cat(state.h, dim=-1)[None].to(hidden).detach()
    return torch.cat([first, hidden[:-1]])


@torch.no_grad()
def with_own_inputs(
    model: Predictor, inputs: Tensor, share: Tensor | None, state: State | None, condition: Condition | None = None
) -> Tensor:
    """``inputs`` (T, B, ...), of which a ``share`` after the first step are drawn from the predictions of the model.

    The predictions are those for the true inputs, so that two passes suffice (Duckworth et al., 2019); in the scheduled
    sampling of Bengio et al. (2015) each draw depends on those before it. Without a share the inputs stay as they are.
    """
    if share is None:
        return inputs
    with evaluating(model):
        prediction, _, _ = model.predict(inputs, state, condition=condition)
    drawn = prediction.draw()  # (T, B, ...)
    chosen = torch.rand(inputs.shape[:2], device=inputs.device)[1:] < share  # (T - 1, B)
    chosen = chosen.view(*chosen.shape, *[1] * (inputs.dim() - 2))
    own = torch.where(chosen, drawn[:-1].to(inputs.dtype), inputs[1:])
    return torch.cat([inputs[:1], own])


class Task:
    """Data, model, loss and measure of a run, on one device; each process of a group has its own share of the data."""

    model: Any
    """An ``nn.Module`` on the device, whose ``rnn`` is a recurrent network of this package."""
    corpus: Any
    """The data; its ``spec`` becomes ``reads``."""
    share: tuple[int, int]
    """The number of this process, and how many there are."""
    rows: slice
    """The rows of a batch that this process reads."""
    reads: InputSpec
    """What a checkpoint stores beside the weights so that the model can be used: the vocabulary or the scale."""
    chunks: int
    """Updates of an epoch."""
    symbols: float
    """Symbols read in an update, by all processes together; the mean if updates differ."""
    capturable: bool
    """Whether an update can be captured in a CUDA graph: the host never waits for a value from the GPU."""
    carries_state: bool
    """True: the state is carried from chunk to chunk within an epoch. False: every sequence starts at zero."""
    checksum: int
    """CRC-32 of the training and validation data: a run is resumed only with the same data."""

    offers: frozenset[str] = frozenset()
    """The fields of a Loss that the task can fill: what terms may need of surprise, entropy, chances, hidden and
    segments."""
    needs: Collection[str] = ()
    """Those that it has to fill; the trainer sets them."""
    own_share: Tensor | None = None
    """The share of the inputs that are drawn from the model's predictions, which the trainer sets; None: none are."""

    def __init__(
        self, config: Config, corpus: Any, model: Any, device: torch.device, rank: int = 0, world: int = 1
    ) -> None:
        self.config, self.corpus, self.device, self.share = config, corpus, device, (rank, world)
        self.model, self.reads = model.to(device), corpus.spec
        rows = config.train.batch_size // world
        self.rows = slice(rank * rows, (rank + 1) * rows)
        self.start()

    def start(self) -> None:
        """Make the batches of the corpus."""
        raise NotImplementedError

    def batch(self, epoch: int, chunk: int) -> tuple[Tensor, ...]:
        """This process's part of an update, on its device; it depends on epoch, chunk and seed alone.

        Tensors are (T, B, ...), or (B,) for one value per sequence; all with the same B, a multiple of
        ``train.accumulate``. Shapes may differ between batches; a GPU captures one graph per shape.
        """
        raise NotImplementedError

    def loss(self, network: Callable[..., Any], batch: tuple[Tensor, ...], state: State | None) -> Loss:
        """Predict a batch, or a share of the sequences of one.

        ``network`` is the model or its DistributedDataParallel wrapper, and is called once. ``state`` is None if it is
        not carried.
        """
        raise NotImplementedError

    def measure(self, loss: float) -> float:
        """A loss in the unit of the task."""
        raise NotImplementedError

    def validate(self, progress: Callable[[int, int], None] | None = None) -> Validation:
        """Read the validation part with the current weights; a collective call under torchrun."""
        raise NotImplementedError

    def describe(self) -> str:
        """The data, in a line for the user."""
        raise NotImplementedError

    def adopt(self, weights: dict[str, Tensor], reads: InputSpec) -> None:
        """Give the model the weights of another one, which reads ``reads``; RuntimeError if they do not fit."""
        self.model.load_state_dict(weights)


class Training(Protocol):
    """What terms and checkpoints see of a :class:`hmrnn.training.trainer.Trainer`."""

    config: Config
    device: torch.device
    rank: int
    world: int
    task: Task
    terms: list[Term]
    model: Any
    network: Any
    optimizer: Any
    watch: Watch
    progress: Progress
    state: State | None
    window: Tensor
    epoch: Tensor

    def mean(self, part: Tensor) -> Tensor: ...
    def autocast(self) -> contextlib.AbstractContextManager[Any]: ...
    def validating(self) -> contextlib.AbstractContextManager[Any]: ...
    def set_schedules(self) -> None: ...
    def set_rate(self) -> None: ...
    def count_skipped(self) -> None: ...


class Term:
    """A technique that takes part in every update; a subclass states only what it does.

    Updates are captured in CUDA graphs, so what a term keeps from one to the next are tensors that keep their memory.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.needs: dict[str, str] = {}
        """The fields of a Loss that the task must fill, with the setting that asks for each."""

    def start(self, run: Training) -> None:
        """Make the tensors that the term keeps. The model has its first weights; a resumed run is restored later."""

    def epoch(self, run: Training, done: int) -> None:
        """So many epochs are done: 0 before the first update, which a resumed run does not repeat."""

    def update(self, run: Training, batch: tuple[Tensor, ...]) -> bool:
        """Learn from a batch in place of an update by gradient, and return True."""
        return False

    def loss(self, reading: Loss) -> Tensor | None:
        """A scalar to minimise beside the loss of the task, for a batch or each part of one."""

    def before_step(self) -> None:
        """The gradient is complete, and not yet clipped."""

    def after_update(self, good: Tensor, rate: Tensor | float) -> None:
        """The optimizer has made its step, at this learning rate; if ``good`` is False, nothing may change."""

    def validating(self) -> contextlib.AbstractContextManager[None]:
        """Within it the model has the weights to measure and to save as the best."""
        return contextlib.nullcontext()

    def tensors(self) -> dict[str, Tensor]:
        """What the term keeps, for a checkpoint; a restore copies into these tensors."""
        return {}
