"""The sections of a run's settings that all kinds of data share; a kind adds settings of its own to data and model."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from msgspec import Meta

from hmrnn.config.checks import (
    BY_GRADIENT,
    HM_LSTM,
    LARGEST,
    MOVING,
    RATED,
    Count,
    Natural,
    Needs,
    NotNegative,
    Number,
    Positive,
    Proportion,
    Seed,
    Share,
    Text,
    network,
)

SPLITS = ("train", "valid", "test")
"""The parts of a corpus."""
Part = Annotated[float, Meta(gt=0, lt=1)]


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The data to read; a kind of data adds settings of its own."""

    format: str
    """What the files hold."""
    path: tuple[str, ...] = ()
    """Files, or one directory. Files that end in .xz, .gz or .bz2 are decompressed while they are read."""
    valid_fraction: Part = 0.05
    """Share of the data for validation. Not used by formats that come with a split."""
    test_fraction: Part = 0.05
    """Share of the data for the test, after the validation part."""


Network = Literal[
    "hm-lstm", "lstm", "ln-lstm", "gru", "cw-rnn", "leaky", "hrnn",
    "peephole", "coupled", "skip", "echo-state", "time-delay", "output-rnn", "h-net",
]  # fmt: skip


RESERVOIR = network("echo-state")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The model: embedding, recurrent network, gated output module; a kind of data adds settings of its own."""

    rnn: Network = "hm-lstm"
    """The recurrent network: hm-lstm, or a baseline. hrnn is an HM-LSTM that is given the ends of words and lines."""
    embedding_size: Count = 128
    """Size of a symbol's embedding."""
    hidden_size: tuple[Count, ...] = (512,)
    """Size of all layers, or one size per layer, the lowest first."""
    num_layers: Annotated[int, Meta(ge=1, le=10_000)] = 3
    """Number of layers."""
    output_size: Count = 512
    """Size of the output embedding (equation 12)."""
    output_layers: Annotated[
        Literal["all", "first"], MOVING, Needs("model.top_down", ("boundary", "pending", "always"))
    ] = "all"
    """Layers that the output module reads: all, as in the paper, or the first alone. first: hm-lstm and hrnn with
    top-down input, through which the layers above reach the first."""
    layer_norm: bool = True
    """hm-lstm, hrnn, cw-rnn, h-net: layer normalisation. ln-lstm always has it; lstm, gru and leaky never have it."""
    flush: Annotated[bool, MOVING] = True
    """A boundary erases the cell (FLUSH), as in the paper; off: the cell is kept."""
    top_down: Annotated[Literal["boundary", "pending", "always", "none"], MOVING] = "boundary"
    """When a layer reads the layer above. boundary: at the step after its own boundary, as in the paper.
    pending: from its boundary until it next moves. always: at every step. none: never."""
    copy: Annotated[bool, MOVING] = True
    """A layer copies its state until the layer below ends a segment, as in the paper; off: it moves at every step."""
    modules: Annotated[Count, network("cw-rnn")] = 4
    """Modules per layer, with periods 1, 2, 4 and so on."""
    time_constant: Annotated[float, Meta(ge=1, le=LARGEST), network("leaky")] = 64.0
    """Time constant of the slowest unit of a layer, in steps; the others lie between 1 and this."""
    delay: Annotated[Count, network("skip")] = 8
    """The steps that a skip connection through time goes back."""
    kernel: Annotated[Count, network("time-delay")] = 8
    """The steps that a layer reads of the one below."""
    spectral_radius: Annotated[Positive, RESERVOIR] = 0.9
    """The largest absolute eigenvalue of the recurrent weights."""
    ridge: Annotated[NotNegative, RESERVOIR] = 0.0
    """On text: penalty of the ridge regression that fits the output in one pass. The output is then a linear
    map of h of all layers to the probabilities, each at least a thousandth. 0: the output module, trained by
    gradient."""
    condition: Literal["input", "state", "both"] = "input"
    """With data.condition, where the condition goes: beside the input at every step, to the initial state, or both."""
    condition_size: Count = 16
    """Size of the vector that a condition is turned into."""
    classes: tuple[Text, ...] = ()
    """The classes of data.condition; those of the data if none are given."""
    condition_numbers: Annotated[Natural, Needs("model.classes", ((),), what="runs without model.classes")] = 0
    """Numbers in a row of data.condition, 0 if rows are classes; counted in the data if not given."""
    time: Literal["none", "elapsed", "left"] = "none"
    """The time as a further input: the steps so far, or those that are left, which must be known
    beforehand."""

    @property
    def detectors(self) -> int:
        """Number of boundary detectors."""
        levels = self.num_layers - 1
        return levels if self.rnn in MOVING.values else min(1, levels) if self.rnn in RATED.values else 0

    @property
    def gated(self) -> bool:
        """Whether there are matrices of gates to train, which a reservoir lacks."""
        return self.rnn not in RESERVOIR.values

    @property
    def by_gradient(self) -> bool:
        """Whether the output is trained by gradient."""
        return not self.ridge

    @property
    def directions(self) -> int:
        """In how many directions sequences are read, by a network for each."""
        return 1

    @property
    def conditioned(self) -> bool:
        """Whether the model is given a condition with each sequence."""
        return bool(self.classes) or self.condition_numbers > 0


CONTEXT = ("model.condition", "model.condition_size", "model.classes", "model.condition_numbers", "model.time")
"""What a model is told beside the sequence."""
OF_PREDICTION = (
    "train.scheduled_sampling", "detectors.estimator reinforce", "detectors.discount", "detectors.entropy",
    "detectors.pull_to", "detectors.pull_weight", "detectors.pull_delay", "detectors.pull_margin",
)  # fmt: skip
"""What is lacked where no next step is predicted."""
KEEPING: dict[str, Any] = {"flush": False, "top_down": "pending"}
"""The cell that keeps what it remembers where a segment ends."""


MOST_THREADS = 1024


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Training."""

    epochs: Annotated[Natural, Needs("segments.size", of=(0,))] = 50
    """Largest number of passes over the training part. 0, with a segmental head: as many as suit the text's size."""
    batch_size: Count = 64
    """Sequences read in parallel, in all processes of torchrun together."""
    length: Count = 100
    """Text: steps of truncated backpropagation; the state is carried over."""
    learning_rate: Positive = 0.002
    """Initial learning rate of the optimizer."""
    optimizer: Literal["adam", "muon"] = "adam"
    """Adam, or Muon: orthogonalised momentum for the gate matrices and Adam for all else."""
    adam_rate: Annotated[Positive, Needs("train.optimizer", ("muon",))] = 1.0
    """Muon: Adam's learning rate, as a share of train.learning_rate."""
    beta1: Share = 0.9
    """Decay of Adam's mean of the gradients; 0: the gradient itself."""
    divide_rate_by: Positive = 50.0
    """Divisor of the learning rate when validation stops improving."""
    divisions: Natural = 1
    """How often the learning rate is divided before the next plateau ends the run."""
    cool_down: Proportion = 0.0
    """Share of all updates, at the end, over which the learning rate falls linearly to zero."""
    patience: Count = 1
    """Validations without improvement that make a plateau."""
    min_improvement: NotNegative = 0.0
    """Smallest improvement of a validation that counts, in the bits or nats that it measures."""
    clip_norm: NotNegative = 1.0
    """Largest norm of the gradient; 0: no clipping."""
    clip_value: NotNegative = 0.0
    """Largest absolute value of a number of the gradient, clipped before its norm; 0: no clipping."""
    scheduled_sampling: Annotated[tuple[Proportion, Proportion], BY_GRADIENT] = (0.0, 0.0)
    """Share of the inputs that are drawn from the model's own predictions, in the first epoch and in the last, linear
    in between. Not for labels, tags, pairs, numbers and series."""
    validate_every: Annotated[Natural, BY_GRADIENT] = 0
    """Updates between validations; 0: at the end of each epoch."""
    validation_symbols: Natural = 0
    """Text: symbols of the validation part to read each time; 0: all."""
    accumulate: Count = 1
    """Parts in which a batch is computed, to save memory. Random draws and rates of detectors are those of a part."""
    precision: Literal["float32", "bf16"] = "float32"
    """Arithmetic of the matrix products: float32, or bfloat16 by autocast."""
    engine: Text = "auto"
    """Implementation of the recurrence; auto: the fastest that can run."""
    device: Text = "auto"
    """cpu, cuda, cuda:1 ...; auto: a GPU if there is one."""
    threads: Annotated[int, Meta(ge=0, le=MOST_THREADS)] = 0
    """CPU threads; 0: PyTorch's default."""
    seed: Seed = 1
    """Seed of the weights and of all random draws."""
    log_every: Count = 50
    """Updates between lines of metrics.jsonl."""
    checkpoint_every: NotNegative = 60.0
    """Seconds between checkpoints, in addition to one after each validation."""
    start_from: str | None = None
    """Fine-tune this model: a run directory, a checkpoint directory or the name of a bundled model. The run has its
    network, its symbols and its detectors. Default: new weights."""
    recurrent_gain: NotNegative | None = None
    """Initial gain of layer norm on the contributions of U and V. Default: 0.3 for hm-lstm and hrnn, 1 for ln-lstm."""
    skip_nonfinite: bool = False
    """Skip and count updates whose loss or gradient is not finite; otherwise they end the run."""


@dataclasses.dataclass(frozen=True)
class RegulariseConfig:
    """Regularisation; off by default."""

    weight_drop: Share = 0.0
    """DropConnect: share of the recurrent weights (U, V) set to zero in an update, except the detectors' rows."""
    dropout_embedding: Share = 0.0
    """Share of the embedding set to zero, per sequence of an update. Strokes have no embedding."""
    dropout_between: Share = 0.0
    """Share of a layer's units that the gates of the layer above do not see, per sequence of an update."""
    dropout_output: Share = 0.0
    """Share of all layers' units that the output module does not see, per sequence of an update."""
    shift: bool = False
    """Text: start every epoch at a random position, so that the text is cut at other places each time."""
    zoneout: Annotated[Share, network("hm-lstm", "hrnn", "ln-lstm")] = 0.0
    """Share of the cells that keep their value at an update, drawn at every step."""
    weight_decay: NotNegative = 0.0
    """Decoupled weight decay: each update takes this share, times the learning rate, off every matrix except the
    detectors' rows."""
    average: Share = 0.0
    """Decay (such as 0.999) of a moving average of the weights, which is validated and saved as the best model; 0: no
    average."""


RATES = (HM_LSTM, Needs("detectors.rates"))
PullTo = Literal["rise", "uncertainty", "entropy", "segments"]


@dataclasses.dataclass(frozen=True)
class DetectorConfig:
    """The boundary detectors: how they decide, how often they fire and where. Networks without detectors ignore it."""

    estimator: Annotated[
        Literal["step", "sample", "soft", "gumbel", "reinforce"], MOVING, HM_LSTM._replace(of=("reinforce",))
    ] = "step"
    """How a detector decides: "step" by a threshold, "sample" by a Bernoulli draw; "soft" uses its probability.
    "gumbel" and "reinforce" draw, too: "gumbel" has the gradient of a binary concrete variable, "reinforce" the score
    function with a learned baseline (hm-lstm only)."""
    on_copy: Annotated[Literal["hold", "evaluate"], MOVING] = "evaluate"
    """What a detector gives where its layer copies: "hold" gives 0, "evaluate" what is left of equation 4."""
    slope: Annotated[tuple[NotNegative, Positive], MOVING] = (0.0, 5.0)
    """Slope annealing, growth per epoch and maximum: a = min(maximum, 1 + growth * epoch). Growth 0 keeps a = 1."""
    rates: Annotated[tuple[Proportion, ...], RATED] = ()
    """Target boundary rates, the share of steps at which each detector fires, the lowest detector first. Other settings
    of the detectors say how they get there. Empty: no targets."""
    start_at_rates: Annotated[bool, *RATES, Needs("detectors.bias", ((),), what="runs without detectors.bias")] = False
    """Set the detectors' biases before the first update so that they fire at these rates on the first batch. With layer
    norm the detectors above the first may start lower: a positive bias there makes the gradient explode."""
    bias: Annotated[tuple[Number, ...], HM_LSTM] = ()
    """Initial bias of the detectors: one for all, or one per detector. Default: zero."""
    rate_weight: NotNegative = 1.0
    """Rate prior: weight of the squared distance between rates and target rates, added to the loss in nats."""
    rate_control: Annotated[Share, *RATES] = 0.0
    """Rate control: after each update a detector's bias moves by this share (such as 0.05) of what it lacks to reach
    its target rate on that batch, and the gradient no longer moves it. The share falls with the learning rate. It
    brings back detectors that never fire, which the prior cannot. Where the loss pushes against the rate, a small share
    leaves it off its target; 0.5 holds it closer."""
    pull_to: Annotated[PullTo, Needs("segments.size", of=("segments",))] = "rise"
    """Where pull_weight pulls the boundaries. rise: where the model's surprise rises most from one symbol to the next.
    uncertainty: where the model is least certain of the next symbol (the entropy of its prediction); text only.
    With entropy, a third of the entropy and of the surprise one symbol before is taken off that; text only. segments:
    the lowest detector to where the segmental head expects the ends of words (segments.size)."""
    pull_weight: Annotated[NotNegative, *RATES] = 0.0
    """Weight of a loss that pulls each detector to those steps, as many as its target rate says. 0: no pull."""
    pull_delay: Literal[0, 1] = 0
    """0: the boundary belongs before the symbol that surprises. 1: on it, once it has been read."""
    pull_margin: NotNegative = 0.0
    """Weight (such as 1) of a pull beyond the threshold, to probabilities of 0.1 and 0.9. Without it pre-activations
    may gather at the threshold, where rounding decides."""
    bounds: Annotated[tuple[NotNegative, NotNegative], MOVING] = (1.0, 0.0)
    """Bounds on the gradient that a boundary passes to the previous one of its detector: through V (above 1 it can grow
    without limit) and through U (needed without layer norm in sequences of hundreds of steps). 0: no bound."""
    hidden: Annotated[Natural, MOVING] = 0
    """Units in a hidden layer of each detector. 0: none, as in the paper."""
    temperature: Annotated[tuple[Positive, Positive], MOVING] = (1.0, 0.5)
    """gumbel: temperature of the relaxation in the first epoch and in the last (train.epochs), linear in between."""
    discount: Proportion = 0.9
    """reinforce: weight of a loss for the boundaries one step earlier. 1: the gradient is unbiased within train.length
    steps and its variance highest."""
    entropy: NotNegative = 0.0
    """reinforce: weight of a bonus for the entropy of the draws, in nats per step."""


@dataclasses.dataclass(frozen=True)
class SegmentConfig:
    """The segmental head: the text as words, summed over all ways to cut it."""

    size: Annotated[Natural, BY_GRADIENT] = 0
    """Units of the decoder that spells a word. 0: no segmental head."""
    longest: Annotated[Natural, Needs("segments.size")] = 0
    """Most symbols of a word. 0: learned from the text before the first update, as are detectors.rates if
    detectors.pull_to is segments."""
    lexicon: Annotated[Natural, Needs("segments.size")] = 0
    """Most words of the lexicon that is learned from the text and mixed with the decoder. 0: no lexicon."""
    known: Annotated[str | None, Needs("segments.lexicon")] = None
    """A file with a list of known words, one per line, which need not be in the text."""
    examples: Annotated[str | None, Needs("segments.lexicon")] = None
    """A file with lines that are cut into words by spaces; some fifty show how words are meant."""
    reader: Annotated[Natural, Needs("segments.size")] = 0
    """Units of a recurrent network of the head's own, which reads the text for it; at least 1. The states of the
    model know within a word how it goes on, so that segments by them are single symbols after many updates."""
    weight: NotNegative = 1.0
    """Weight of the head's loss, in nats per symbol, beside that of the next symbol."""
    dropout: Share = 0.25
    """Share of the context and of the decoder's units that are dropped in training."""
