"""The settings of a run as dataclasses. They are the flags of ``hmrnn train`` and the config.json of a checkpoint.

A setting is named "section.field", such as "train.epochs"; errors use these names. Settings that the chosen network or
data do not have are ignored where they are sizes or schedules, and refused where someone turned something on.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal

from hmrnn.errors import InputError

Format = Literal[
    "novel", "manual", "text", "lines", "ptb", "text8", "enwik8", "strokes", "iamondb", "handwritten", "labels", "tags",
    "pairs",
]  # fmt: skip
BUILT_IN_TEXTS = ("novel", "manual")
"""The formats of texts that need no path."""
STROKE_FORMATS = ("strokes", "iamondb", "handwritten")
"""The formats of pen strokes."""
LABEL_FORMATS = ("labels", "tags", "pairs")
"""The formats of labelled sequences; all others but those of strokes are text."""
SEQUENCE_FORMATS = ("lines", *STROKE_FORMATS)
"""The formats of which every line is a sequence of its own that is predicted step by step."""
Network = Literal[
    "hm-lstm", "lstm", "ln-lstm", "gru", "cw-rnn", "leaky", "hrnn",
    "peephole", "coupled", "skip", "echo-state", "time-delay", "output-rnn",
]  # fmt: skip
PullTo = Literal["rise", "uncertainty", "segments"]
LARGEST = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The data to read."""

    format: Format = "text"
    """novel: The Adventures of Sherlock Holmes, from the package that hmrnn[demo] installs. manual: the Python manual
    inside every CPython. text: UTF-8 files. lines: UTF-8 files of which every line is a sequence, ended by its
    line end; blank lines are left out. ptb: Penn Treebank characters (symbols separated by spaces, _
    for a space, a sentence per line). text8: 27 symbols. enwik8: bytes, split 90M/5M/5M. strokes: pen strokes in .npz,
    .json or .csv files. iamondb: handwriting. handwritten: built-in handwriting. labels: sequences with a label each.
    tags: with a tag per token. pairs: sequences to be turned into others."""
    path: tuple[str, ...] = ()
    """Files, or one directory. Files that end in .xz, .gz or .bz2 are decompressed while they are read."""
    bytes: bool = False
    """Model the bytes of the files instead of their characters (format text, lines, novel or manual)."""
    valid_fraction: float = 0.05
    """Share of the symbols, or lines of strokes, for validation. Not used by formats that come with a split."""
    test_fraction: float = 0.05
    """Share of the symbols, or lines of strokes, for the test, after the validation part."""
    unseen: Literal["replace", "error"] = "replace"
    """What to do with a validation or test symbol that the training part lacks: replace it by the unknown symbol, or
    stop with an error."""
    min_count: int = 1
    """Text: read symbols that occur fewer times in the training part as the unknown symbol, which is learned then."""
    symbols: str = ""
    """Symbols that the vocabulary holds even if the training part lacks them; a byte is the character with its value.
    A run that starts from a model has those of the model here."""
    unknown: bool = False
    """Keep an unknown symbol in the vocabulary even if validation and test part need none."""
    remove_spaces: bool = False
    """Remove the spaces of a text (line ends stay), to see whether the model finds the words."""
    min_points: int | None = None
    """Strokes: leave out lines with fewer points. Default: 300 for iamondb (as in the paper), 2 for others."""
    split: Literal["paper", "official"] = "paper"
    """iamondb: "paper" draws 90 %, 5 % and 5 % of the lines by a seed; "official" takes the lists of forms."""
    split_seed: int = 1
    """Strokes: seed of the split into training, validation and test lines."""
    lines: int = 3000
    """handwritten: number of lines."""
    condition: str | None = None
    """lines, strokes: a file with the condition of each line in a row: a class, or numbers separated by commas or
    spaces. FILE:COLUMN takes the column of that name from a .csv or .tsv file."""
    cache: str | None = None
    """Directory of encoded corpora. Default: HMRNN_CACHE, or ~/.cache/hmrnn."""

    @property
    def is_text(self) -> bool:
        """Whether the next symbol is predicted: not for strokes, nor for labelled sequences."""
        return self.format not in (*STROKE_FORMATS, *LABEL_FORMATS)

    @property
    def is_labelled(self) -> bool:
        """Whether sequences have labels, tags or a sequence to be turned into."""
        return self.format in LABEL_FORMATS

    @property
    def has_sequences(self) -> bool:
        """Whether every line is a sequence of its own."""
        return self.format in SEQUENCE_FORMATS

    def check(self) -> None:
        """Raise InputError if a value cannot work."""
        valid, test = self.valid_fraction, self.test_fraction
        if not 0 < valid < 1 or not 0 < test < 1 or valid + test >= 1:
            raise InputError(
                "data.valid_fraction and data.test_fraction must be positive and leave something for training; "
                f"got {valid} and {test}"
            )
        if self.min_count < 1:
            raise InputError(f"data.min_count must be at least 1; got {self.min_count}")
        if self.min_points is not None and self.min_points < 2:
            raise InputError(f"data.min_points must be at least 2: one to read, one to predict; got {self.min_points}")
        if self.lines < 3:
            raise InputError(f"data.lines must be at least 3, for training, validation and test; got {self.lines}")
        _seed("data", self, "split_seed")
        built_in = self.format in (*BUILT_IN_TEXTS, "handwritten")
        for name, wrong, formats in (
            ("path", self.path and built_in, "files, and these data are built in"),
            (
                "bytes",
                self.bytes and self.format not in (*BUILT_IN_TEXTS, "text", "lines"),
                "data.format text, lines, novel or manual",
            ),
            ("min_count", self.min_count > 1 and not self.is_text, "text"),
            ("symbols", self.symbols and not self.is_text, "text"),
            ("unknown", self.unknown and not self.is_text, "text"),
            ("remove_spaces", self.remove_spaces and not self.is_text, "text"),
            ("min_points", self.min_points is not None and self.format not in STROKE_FORMATS, "strokes"),
            ("split", self.split == "official" and self.format != "iamondb", "data.format iamondb"),
            ("condition", self.condition and not self.has_sequences, "data.format lines and for strokes"),
        ):
            if wrong:
                raise InputError(f"data.{name} is for {formats}; data.format is {self.format}, so leave it out")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The model: embedding, recurrent network, gated output module, softmax or mixture."""

    rnn: Network = "hm-lstm"
    """The recurrent network: hm-lstm, or a baseline. hrnn is an HM-LSTM that is given the ends of words and lines."""
    embedding_size: int = 128
    """Text: size of a symbol's embedding."""
    hidden_size: tuple[int, ...] = (512,)
    """Size of all layers, or one size per layer, the lowest first."""
    num_layers: int = 3
    """Number of layers."""
    output_size: int = 512
    """Size of the output embedding (equation 12)."""
    output_layers: Literal["all", "first"] = "all"
    """Layers that the output module reads: all, as in the paper, or the first alone. first: hm-lstm and hrnn with
    top-down input, through which the layers above reach the first."""
    layer_norm: bool = True
    """hm-lstm, hrnn, cw-rnn: layer normalisation. ln-lstm always has it; lstm, gru and leaky never have it."""
    flush: bool = True
    """hm-lstm, hrnn: a boundary erases the cell (FLUSH), as in the paper; off: the cell is kept."""
    top_down: Literal["boundary", "pending", "always", "none"] = "boundary"
    """hm-lstm, hrnn: when a layer reads the layer above. boundary: at the step after its own boundary, as in the paper.
    pending: from its boundary until it next moves. always: at every step. none: never."""
    copy: bool = True
    """hm-lstm, hrnn: a layer copies its state until the layer below ends a segment, as in the paper; off: it moves at
    every step."""
    modules: int = 4
    """cw-rnn: modules per layer, with periods 1, 2, 4 and so on."""
    time_constant: float = 64.0
    """leaky: time constant of the slowest unit of a layer, in steps; the others lie between 1 and this."""
    delay: int = 8
    """skip: the steps that a skip connection through time goes back."""
    kernel: int = 8
    """time-delay: the steps that a layer reads of the one below."""
    spectral_radius: float = 0.9
    """echo-state: the largest absolute eigenvalue of the recurrent weights."""
    ridge: float = 0.0
    """echo-state on text: penalty of the ridge regression that fits the output in one pass. The output is then a linear
    map of h of all layers to the probabilities, each at least a thousandth. 0: the output module, trained by
    gradient."""
    mixtures: int = 20
    """Strokes: number of Gaussians in the prediction of the next point."""
    bidirectional: bool = False
    """labels, tags, pairs: read in both directions, with a network for each."""
    read_out: Literal["attention", "mean", "max", "last", "tree"] = "attention"
    """labels: how the outputs of all steps become one. tree: by a tree-LSTM over the hierarchy of segments."""
    attend: Literal["steps", "segments"] = "steps"
    """labels, pairs: what attention chooses from: all steps, or the steps at which segments end."""
    level: int = 1
    """labels, pairs: the level of the segments that attention chooses from."""
    crf: bool = False
    """tags: a linear-chain CRF over the tags of a sequence, instead of a softmax per tag."""
    halt: bool = False
    """Strokes: predict with every point whether it is the last, so that generated lines end by themselves."""
    condition: Literal["input", "state", "both"] = "input"
    """With data.condition, where the condition goes: beside the input at every step, to the initial state, or both."""
    condition_size: int = 16
    """Size of the vector that a condition is turned into."""
    classes: tuple[str, ...] = ()
    """The classes of data.condition; those of the data if none are given."""
    condition_numbers: int = 0
    """Numbers in a row of data.condition, 0 if rows are classes; counted in the data if not given."""
    time: Literal["none", "elapsed", "left"] = "none"
    """lines, strokes: the time as a further input: the steps so far, or those that are left, which must be known
    beforehand."""

    @property
    def detectors(self) -> int:
        """Number of boundary detectors."""
        return self.num_layers - 1 if self.rnn in ("hm-lstm", "hrnn") else 0

    @property
    def conditioned(self) -> bool:
        """Whether the model is given a condition with each sequence."""
        return bool(self.classes) or self.condition_numbers > 0

    def check(self) -> None:
        """Raise InputError if a value cannot work."""
        sizes = "hidden_size embedding_size num_layers output_size mixtures modules time_constant level"
        sizes += " condition_size delay kernel"
        _counts("model", self, sizes)
        _limited("model", self, f"{sizes} condition_numbers")
        _not_negative("model", self, "condition_numbers")
        _positive("model", self, "spectral_radius")
        _not_negative("model", self, "ridge")
        if self.classes and self.condition_numbers:
            raise InputError("model.classes and model.condition_numbers exclude each other; leave one of them out")
        if len(self.hidden_size) not in (1, self.num_layers):
            raise InputError(
                f"model.hidden_size must hold 1 or {self.num_layers} sizes (model.num_layers); got {self.hidden_size}"
            )
        if self.output_layers == "first" and self.num_layers > 1 and not (self.detectors and self.top_down != "none"):
            raise InputError(
                "model.output_layers first is for hm-lstm and hrnn with top-down input: here no layer above the first "
                "would have an effect; use model.output_layers all"
            )


@dataclasses.dataclass(frozen=True)
class DetectorConfig:
    """The boundary detectors: how they decide, how often they fire and where. Networks without detectors ignore it."""

    estimator: Literal["step", "sample", "soft", "gumbel", "reinforce"] = "step"
    """How a detector decides: "step" by a threshold, "sample" by a Bernoulli draw; "soft" uses its probability.
    "gumbel" and "reinforce" draw, too: "gumbel" has the gradient of a binary concrete variable, "reinforce" the score
    function with a learned baseline (hm-lstm only)."""
    on_copy: Literal["hold", "evaluate"] = "evaluate"
    """What a detector gives where its layer copies: "hold" gives 0, "evaluate" what is left of equation 4."""
    slope: tuple[float, float] = (0.0, 5.0)
    """Slope annealing, growth per epoch and maximum: a = min(maximum, 1 + growth * epoch). Growth 0 keeps a = 1."""
    rates: tuple[float, ...] = ()
    """Target boundary rates, the share of steps at which each detector fires, the lowest detector first. The settings
    below say how the detectors get there. Empty: no targets. hm-lstm only."""
    start_at_rates: bool = False
    """Set the detectors' biases before the first update so that they fire at these rates on the first batch. With layer
    norm the detectors above the first may start lower: a positive bias there makes the gradient explode."""
    bias: tuple[float, ...] = ()
    """Initial bias of the detectors: one for all, or one per detector. Default: zero. hm-lstm only."""
    rate_weight: float = 1.0
    """Rate prior: weight of the squared distance between rates and target rates, added to the loss in nats."""
    rate_control: float = 0.0
    """Rate control: after each update a detector's bias moves by this share (such as 0.05) of what it lacks to reach
    its target rate on that batch, and the gradient no longer moves it. The share falls with the learning rate. It
    brings back detectors that never fire, which the prior cannot."""
    pull_to: PullTo = "rise"
    """Where pull_weight pulls the boundaries. rise: where the model's surprise rises most from one symbol to the next.
    uncertainty: where the model is least certain of the next symbol (the entropy of its prediction); text only.
    segments: the lowest detector to where the segmental head expects the ends of words (segments.size)."""
    pull_weight: float = 0.0
    """Weight of a loss that pulls each detector to those steps, as many as its target rate says. 0: no pull."""
    pull_delay: Literal[0, 1] = 0
    """0: the boundary belongs before the symbol that surprises. 1: on it, once it has been read."""
    pull_margin: float = 0.0
    """Weight (such as 1) of a pull beyond the threshold, to probabilities of 0.1 and 0.9. Without it pre-activations
    may gather at the threshold, where rounding decides."""
    bounds: tuple[float, float] = (1.0, 0.0)
    """Bounds on the gradient that a boundary passes to the previous one of its detector: through V (above 1 it can grow
    without limit) and through U (needed without layer norm in sequences of hundreds of steps). 0: no bound."""
    hidden: int = 0
    """Units in a hidden layer of each detector. 0: none, as in the paper."""
    temperature: tuple[float, float] = (1.0, 0.5)
    """gumbel: temperature of the relaxation in the first epoch and in the last (train.epochs), linear in between."""
    discount: float = 0.9
    """reinforce: weight of a loss for the boundaries one step earlier. 1: the gradient is unbiased within train.length
    steps and its variance highest."""
    entropy: float = 0.0
    """reinforce: weight of a bonus for the entropy of the draws, in nats per step."""

    @property
    def needs_probabilities(self) -> bool:
        """Whether training needs the detectors' probabilities, not only their boundaries."""
        return self.rate_control > 0 or (self.pull_weight > 0 and self.pull_margin > 0) or self.scores

    @property
    def scores(self) -> bool:
        """Whether training adds the terms of REINFORCE to the loss."""
        return self.estimator == "reinforce"

    def check(self) -> None:
        """Raise InputError if a value cannot work."""
        _not_negative("detectors", self, "hidden slope rate_weight pull_weight pull_margin bounds entropy")
        _limited("detectors", self, "hidden")
        _shares("detectors", self, "rate_control")
        if not all(value > 0 for value in self.temperature):
            raise InputError(f"detectors.temperature must be positive; got {self.temperature}")
        if not 0 <= self.discount <= 1:
            raise InputError(f"detectors.discount must lie between 0 and 1; got {self.discount}")
        if not self.slope[1] > 0:
            raise InputError(f"detectors.slope must have a positive maximum; got {self.slope}")
        if not all(0 <= rate <= 1 for rate in self.rates):
            raise InputError(f"detectors.rates must lie between 0 and 1; got {self.rates}")
        for name in ("start_at_rates", "rate_control", "pull_weight"):
            if getattr(self, name) and not self.rates:
                raise InputError(f"detectors.{name} needs detectors.rates; give the rates")
        if self.start_at_rates and self.bias:
            raise InputError(
                "detectors.start_at_rates sets the biases that detectors.bias gives; leave one of them out"
            )


@dataclasses.dataclass(frozen=True)
class SegmentConfig:
    """The segmental head: the text as words, summed over all ways to cut it. Text only."""

    size: int = 0
    """Units of the decoder that spells a word. 0: no segmental head."""
    longest: int = 0
    """Most symbols of a word. 0: learned from the text before the first update, as are detectors.rates if
    detectors.pull_to is segments."""
    lexicon: int = 0
    """Most words of the lexicon that is learned from the text and mixed with the decoder. 0: no lexicon."""
    weight: float = 1.0
    """Weight of the head's loss, in nats per symbol, beside that of the next symbol."""
    dropout: float = 0.25
    """Share of the context and of the decoder's units that are dropped in training."""

    def check(self) -> None:
        """Raise InputError if a value cannot work."""
        _not_negative("segments", self, "size longest lexicon weight")
        _limited("segments", self, "size longest lexicon")
        _shares("segments", self, "dropout")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Training."""

    epochs: int = 50
    """Largest number of passes over the training part."""
    batch_size: int = 64
    """Sequences read in parallel, in all processes of torchrun together."""
    length: int = 100
    """Text: steps of truncated backpropagation; the state is carried over."""
    learning_rate: float = 0.002
    """Initial learning rate of Adam."""
    divide_rate_by: float = 50.0
    """Divisor of the learning rate when validation stops improving."""
    divisions: int = 1
    """How often the learning rate is divided before the next plateau ends the run."""
    cool_down: float = 0.0
    """Share of all updates, at the end, over which the learning rate falls linearly to zero."""
    patience: int = 1
    """Validations without improvement that make a plateau."""
    min_improvement: float = 0.0
    """Smallest improvement of a validation that counts, in bits per symbol or nats per sequence of strokes."""
    clip_norm: float = 1.0
    """Largest norm of the gradient; 0: no clipping."""
    clip_value: float = 0.0
    """Largest absolute value of a number of the gradient, clipped before its norm; 0: no clipping."""
    scheduled_sampling: tuple[float, float] = (0.0, 0.0)
    """Share of the inputs that are drawn from the model's own predictions, in the first epoch and in the last, linear
    in between. Not for labels, tags and pairs."""
    validate_every: int = 0
    """Updates between validations; 0: at the end of each epoch."""
    validation_symbols: int = 0
    """Text: symbols of the validation part to read each time; 0: all."""
    accumulate: int = 1
    """Parts in which a batch is computed, to save memory. Random draws and rates of detectors are those of a part."""
    precision: Literal["float32", "bf16"] = "float32"
    """Arithmetic of the matrix products: float32, or bfloat16 by autocast."""
    engine: str = "auto"
    """Implementation of the recurrence; auto: the fastest that can run."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ...; auto: a GPU if there is one."""
    threads: int = 0
    """CPU threads; 0: PyTorch's default."""
    seed: int = 1
    """Seed of the weights and of all random draws."""
    log_every: int = 50
    """Updates between lines of metrics.jsonl."""
    checkpoint_every: float = 60.0
    """Seconds between checkpoints, in addition to one after each validation."""
    start_from: str | None = None
    """Fine-tune this model: a run directory, a checkpoint directory or the name of a bundled model. The run has its
    network, its symbols and its detectors. Default: new weights."""
    recurrent_gain: float | None = None
    """Initial gain of layer norm on the contributions of U and V. Default: 0.3 for hm-lstm and hrnn, 1 for ln-lstm."""
    skip_nonfinite: bool = False
    """Skip and count updates whose loss or gradient is not finite; otherwise they end the run."""

    def check(self) -> None:
        """Raise InputError if a value cannot work."""
        counts = "epochs batch_size length patience accumulate log_every"
        _counts("train", self, counts)
        _limited("train", self, f"{counts} threads")
        _positive("train", self, "learning_rate divide_rate_by")
        _not_negative(
            "train", self, "clip_norm clip_value min_improvement cool_down divisions validate_every validation_symbols"
        )
        _not_negative("train", self, "threads checkpoint_every recurrent_gain")
        if not all(0 <= share <= 1 for share in self.scheduled_sampling):
            raise InputError(f"train.scheduled_sampling must lie between 0 and 1; got {self.scheduled_sampling}")
        if self.validation_symbols == 1:
            raise InputError("train.validation_symbols must be 0, for all, or at least 2; got 1")
        if not self.cool_down <= 1:
            raise InputError(f"train.cool_down is a share of all updates, at most 1; got {self.cool_down}")
        _seed("train", self, "seed")
        if self.batch_size % self.accumulate:
            raise InputError(
                f"train.batch_size {self.batch_size} must be a multiple of train.accumulate {self.accumulate}"
            )


@dataclasses.dataclass(frozen=True)
class RegulariseConfig:
    """Regularisation; off by default."""

    weight_drop: float = 0.0
    """DropConnect: share of the recurrent weights (U, V) set to zero in an update, except the detectors' rows."""
    dropout_embedding: float = 0.0
    """Text: share of the embedding set to zero, per sequence of an update."""
    dropout_between: float = 0.0
    """Share of a layer's units that the gates of the layer above do not see, per sequence of an update."""
    dropout_output: float = 0.0
    """Share of all layers' units that the output module does not see, per sequence of an update."""
    shift: bool = False
    """Text: start every epoch at a random position, so that the text is cut at other places each time."""
    zoneout: float = 0.0
    """hm-lstm, hrnn, ln-lstm: share of the cells that keep their value at an update, drawn at every step."""
    weight_decay: float = 0.0
    """Decoupled weight decay: each update takes this share, times the learning rate, off every matrix except the
    detectors' rows."""
    average: float = 0.0
    """Decay (such as 0.999) of a moving average of the weights, which is validated and saved as the best model; 0: no
    average."""

    def check(self) -> None:
        """Raise InputError if a value cannot work."""
        _not_negative("regularise", self, "weight_decay")
        _shares("regularise", self, "weight_drop dropout_embedding dropout_between dropout_output zoneout average")


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a run."""

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    regularise: RegulariseConfig = dataclasses.field(default_factory=RegulariseConfig)
    detectors: DetectorConfig = dataclasses.field(default_factory=DetectorConfig)
    segments: SegmentConfig = dataclasses.field(default_factory=SegmentConfig)

    def check(self) -> None:
        """Raise InputError if a value cannot work, alone or together with the others."""
        m, d, r = self.model, self.detectors, self.regularise
        if m.rnn != "hm-lstm" or m.num_layers == 1:
            for name in ("rates", "bias", "start_at_rates", "rate_control", "pull_weight"):
                if getattr(d, name):
                    raise InputError(
                        f"detectors.{name} is for hm-lstm with two or more layers, not for {m.rnn} with "
                        f"{m.num_layers}; leave it out"
                    )
        if m.rnn == "hrnn" and d.scores:
            raise InputError(
                "detectors.estimator reinforce is for hm-lstm; model.rnn is hrnn, whose boundaries are given"
            )
        for name in SECTIONS:
            section = getattr(self, name)
            section.check()
            _check_finite(name, section)
        if m.time != "none" and not self.data.has_sequences:
            raise InputError(f"model.time is for lines and strokes; data.format is {self.data.format}, leave it out")
        if any(self.train.scheduled_sampling) and self.data.is_labelled:
            raise InputError("train.scheduled_sampling is for text and strokes, which predict their own inputs")
        if m.halt and self.data.format not in STROKE_FORMATS:
            raise InputError("model.halt is for strokes; lines of text end by their line end (data.format lines)")
        if d.pull_to == "segments" and d.pull_weight > 0 and not self.segments.size:
            raise InputError("detectors.pull_to segments needs a segmental head; set segments.size, such as 64")
        if self.segments.size and (not self.data.is_text or self.data.format == "lines"):
            raise InputError(f"segments.size is for running text; data.format is {self.data.format}, leave it out")
        if not self.data.is_text:
            if d.pull_to == "uncertainty" and d.pull_weight > 0:
                raise InputError("detectors.pull_to uncertainty is for text; mixtures of strokes have no entropy")
            for name in ("shift", *([] if self.data.is_labelled else ["dropout_embedding"])):
                if getattr(r, name):
                    raise InputError(f"regularise.{name} is for text; data.format is {self.data.format}, leave it out")
        self._check_labelled()
        if m.ridge:
            self._check_ridge()
        if r.zoneout and m.rnn not in ("hm-lstm", "hrnn", "ln-lstm"):
            raise InputError(f"regularise.zoneout is for hm-lstm, hrnn and ln-lstm; model.rnn is {m.rnn}, leave it out")
        for name, allowed in (("rates", (0, m.detectors)), ("bias", (0, 1, m.detectors))):
            if len(values := getattr(d, name)) not in allowed:
                raise InputError(
                    f"detectors.{name} must hold {' or '.join(map(str, allowed[1:]))} numbers, the lowest detector "
                    f"first, or none; got {values}"
                )

    def _check_ridge(self) -> None:
        """Raise InputError about settings that ridge regression does not have."""
        if self.model.rnn != "echo-state" or not self.data.is_text or self.segments.size:
            raise InputError("model.ridge is for model.rnn echo-state on text without segments.size; leave it out")
        if self.train.epochs != 1:
            raise InputError(f"model.ridge fits in one pass; train.epochs must be 1, and is {self.train.epochs}")
        for field in dataclasses.fields(self.regularise):
            if getattr(self.regularise, field.name):
                raise InputError(f"regularise.{field.name} is for training by gradient; with model.ridge leave it out")

    def _check_labelled(self) -> None:
        """Raise InputError about settings that labelled sequences do not have, or that only they have."""
        m, d = self.model, self.detectors
        if self.data.is_labelled:
            if d.pull_weight > 0 or d.scores:
                name = "pull_weight" if d.pull_weight > 0 else "estimator reinforce"
                raise InputError(f"detectors.{name} needs predictions of the next step, which {self.data.format} lack")
            if m.rnn == "hrnn":
                raise InputError(f"model.rnn hrnn is for text; data.format is {self.data.format}, use hm-lstm")
            if self.data.format == "labels" and m.attend == "segments" and m.read_out != "attention":
                raise InputError(
                    f"model.attend segments is for model.read_out attention; it is {m.read_out}, so leave model.attend "
                    "out"
                )
            if self.data.format == "labels" and m.read_out == "tree" and (m.bidirectional or not m.detectors):
                raise InputError(
                    "model.read_out tree needs segments: hm-lstm with two or more layers, in one direction"
                )
            if m.attend == "segments" and not m.level <= m.detectors:
                raise InputError(
                    f"model.attend segments needs a detector at model.level {m.level}; {m.rnn} with {m.num_layers} "
                    f"layers has {m.detectors}"
                )
        elif m.bidirectional or m.crf:
            name = "bidirectional" if m.bidirectional else "crf"
            raise InputError(f"model.{name} is for {', '.join(LABEL_FORMATS)}; data.format is {self.data.format}")


SECTIONS = tuple(field.name for field in dataclasses.fields(Config))


def _values(section: Any, name: str) -> tuple[Any, ...]:
    """The values that a setting holds; none if it is None."""
    value = getattr(section, name)
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _require(ok: Callable[[float], bool], what: str, part: str, section: Any, names: str) -> None:
    """Raise InputError unless ``ok`` is true of all values of the settings ``names``, which are separated by spaces."""
    for name in names.split():
        for value in _values(section, name):
            if not ok(value):
                raise InputError(f"{part}.{name} must {what}; got {value}")


_counts = functools.partial(_require, lambda value: value >= 1, "be at least 1")
_limited = functools.partial(_require, lambda value: value <= LARGEST, f"be at most {LARGEST}")
_positive = functools.partial(_require, lambda value: value > 0, "be positive")
_not_negative = functools.partial(_require, lambda value: value >= 0, "not be negative")
_shares = functools.partial(_require, lambda value: 0 <= value < 1, "be at least 0 and less than 1")
_seed = functools.partial(_require, lambda value: 0 <= value <= 2**62, "lie between 0 and 2**62")


def _check_finite(part: str, section: Any) -> None:
    """JSON has no infinity, so a run with one could not be read again."""
    for field in dataclasses.fields(section):
        for value in _values(section, field.name):
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{part}.{field.name} must be finite; got {value}")
