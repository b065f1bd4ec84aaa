"""Every setting of a run, in dataclasses: they are the command-line flags and the config.json of a checkpoint."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from hmrnn.config_use import STROKE_FORMATS, unused
from hmrnn.errors import InputError

T = TypeVar("T")
Format = Literal["manual", "text", "ptb", "text8", "enwik8", "strokes", "iamondb", "handwritten"]
SurpriseKind = Literal["rise", "expected"]


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What is read."""

    format: Format = "text"
    """manual: the Python manual inside every CPython. text: UTF-8 files. ptb: Penn Treebank characters (symbols
    separated by spaces, _ for a space, a sentence per line). text8: 27 symbols. enwik8: bytes, split 90M/5M/5M.
    strokes: pen strokes in .npz, .json or .csv files. iamondb: handwriting. handwritten: built-in handwriting."""
    path: tuple[str, ...] = ()
    """Files, or one directory; .xz, .gz and .bz2 are unpacked on the fly. Not used by "manual" and "handwritten"."""
    bytes: bool = False
    """Model the bytes of the files instead of their characters."""
    valid_fraction: float = 0.05
    """Share of the symbols, or lines of strokes, kept for validation, for formats without a split of their own."""
    test_fraction: float = 0.05
    """Share of the symbols, or lines of strokes, kept for the test, after the validation part."""
    unseen: Literal["replace", "error"] = "replace"
    """A symbol of the validation or test part that training never showed: replace it by the unknown symbol, or stop."""
    remove_spaces: bool = False
    """Take the spaces out of the text (line ends stay), for finding words: evaluate --boundaries scores them."""
    min_points: int | None = None
    """Lines of strokes with fewer points are left out; if not given, 300 of iamondb (as in the paper), 2 of others."""
    split: Literal["paper", "official"] = "paper"
    """Of iamondb. paper: 90 % of the lines, 5 % and 5 %, drawn by a seed. official: by its lists of forms."""
    split_seed: int = 1
    """Draws the lines of strokes that are kept for validation and test."""
    lines: int = 3000
    """Lines of built-in handwriting."""
    cache: str | None = None
    """Where encoded corpora are kept; HMRNN_CACHE or ~/.cache/hmrnn if not given."""

    def check(self) -> None:
        """Raise InputError on values that cannot work."""
        valid, test = self.valid_fraction, self.test_fraction
        if not 0 < valid < 1 or not 0 < test < 1 or valid + test >= 1:
            raise InputError(
                "data.valid_fraction and data.test_fraction must be positive and leave something for training; "
                f"got {valid} and {test}"
            )
        if self.min_points is not None and self.min_points < 2:
            raise InputError(
                f"data.min_points must be at least 2, one to read and one to predict; got {self.min_points}"
            )
        if self.lines < 3:
            raise InputError(f"data.lines must be at least 3, for training, validation and test; got {self.lines}")
        _check_seed("data.split_seed", self.split_seed)


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """What is built: embedding -> HM-LSTM -> gated output module -> softmax."""

    rnn: Literal["hm-lstm", "lstm", "ln-lstm", "gru", "cw-rnn", "leaky", "hrnn"] = "hm-lstm"
    """The recurrent network: the HM-LSTM or a baseline. hrnn is an HM-LSTM that is told where words and lines end."""
    embedding_size: int = 128
    """Size of the vector a symbol is read as. Not used by strokes, whose points are read as they are."""
    hidden_size: tuple[int, ...] = (512,)
    """Size of every layer, or one size per layer, the lowest first."""
    num_layers: int = 3
    """Number of layers."""
    output_size: int = 512
    """Size of the output embedding (equation 12)."""
    layer_norm: bool = True
    """Layer normalisation inside the recurrence, of hm-lstm, hrnn and cw-rnn; ln-lstm always has it, the rest never."""
    boundary: Literal["step", "sample", "soft"] = "step"
    """How a detector decides: a threshold, a Bernoulli draw, or not at all (its real value is used)."""
    on_copy: Literal["hold", "evaluate"] = "evaluate"
    """What a detector says when its layer copies: nothing, or what equation 4 has left."""
    flush: bool = True
    """A boundary erases the cell (FLUSH), as in the paper; off, it keeps it."""
    top_down: Literal["boundary", "pending", "always", "none"] = "boundary"
    """When a layer reads the layer above: at the step after its own boundary (as in the paper), from its boundary until
    it next moves, at every step, or never."""
    copy: bool = True
    """A layer stands still (COPY) until the layer below ends a segment, as in the paper; off, it moves every step."""
    modules: int = 4
    """Clockwork modules of a layer, with periods 1, 2, 4 and so on; only cw-rnn has them."""
    time_constant: float = 64.0
    """Steps that the slowest unit of a layer of leaky remembers; those of the others lie between 1 and this."""
    mixtures: int = 20
    """Gaussians that predict the next point of strokes. Not used by text."""

    def check(self) -> None:
        """Raise InputError on values that cannot work."""
        counts = ("embedding_size", "num_layers", "output_size", "mixtures", "modules", "time_constant")
        _check_counts({f"model.{name}": getattr(self, name) for name in counts})
        _check_counts({f"model.hidden_size[{i}]": size for i, size in enumerate(self.hidden_size)})
        if len(self.hidden_size) not in (1, self.num_layers):
            raise InputError(
                f"model.hidden_size must hold 1 or {self.num_layers} sizes (model.num_layers); got {self.hidden_size}"
            )


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How it is trained."""

    epochs: int = 50
    """Passes over the training part, at most."""
    batch_size: int = 64
    """Streams read in parallel; across all processes under torchrun."""
    length: int = 100
    """Steps of truncated backpropagation; the state is carried over."""
    learning_rate: float = 0.002
    """Adam's rate at the start."""
    divide_rate_by: float = 50.0
    """Divides the rate when validation has stopped improving; after divisions are used up, training stops."""
    divisions: int = 1
    """How often the rate is divided before the next plateau ends the run."""
    cool_down: float = 0.0
    """Share of all updates, at the end, over which the rate falls to zero in a straight line."""
    patience: int = 1
    """Validations without improvement that make a plateau."""
    min_improvement: float = 0.0
    """Bits per character, or nats per sequence of strokes, by which a validation must beat the best one to count."""
    clip_norm: float = 1.0
    """The norm of the gradient is clipped at this; 0 leaves it alone."""
    slope_rate: float = 0.0
    """Slope annealing: a = min(slope_max, 1 + slope_rate * epoch). 0 keeps a = 1."""
    slope_max: float = 5.0
    """Where slope annealing ends."""
    validate_every: int = 0
    """Updates between validations; 0: once at the end of each epoch."""
    validation_symbols: int = 0
    """Symbols of the validation part that are read each time; 0: all of them."""
    accumulate: int = 1
    """Parts in which a batch is computed, to save memory; the update is that of the whole batch, but each has
    draws and pulls at detectors of its own."""
    precision: Literal["float32", "bf16"] = "float32"
    """Arithmetic of the matrix products: float32, or bfloat16 by autocast."""
    engine: str = "auto"
    """Which implementation of the recurrence runs; auto takes the fastest that can."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ...; auto takes a GPU if there is one."""
    threads: int = 0
    """CPU threads; 0 leaves PyTorch's choice."""
    seed: int = 1
    """Fixes the weights, the draws and so the whole run."""
    log_every: int = 50
    """Updates between lines of metrics.jsonl."""
    checkpoint_every: float = 60.0
    """Seconds between checkpoints, beside the one at every validation."""
    detector_bias: tuple[float, ...] = ()
    """Bias that the detectors start with: one for all, or one per detector, the lowest first; empty: zero."""
    detector_rates: tuple[float, ...] = ()
    """Boundary rates that the detectors start with, one per detector, the lowest first: before the first update their
    biases are set so that they fire so often on the first batch, or less with layer norm above the first layer, where
    a positive bias makes the gradient explode. Empty: as their weights have it."""
    recurrent_gain: float = 0.3
    """What layer norm multiplies the contributions of U and V by when training begins; that of W begins at 1. A preset
    whose network is ln-lstm takes 1, unless another is asked for."""
    detector_feedback: float = 1.0
    """Bound on how much of its gradient a boundary hands to the one before it through V: above 1 it can grow without
    end; 0: no bound. Networks without detectors have nothing to bound."""
    detector_recurrence: float = 0.0
    """The same for what it hands on through the cell that it resets, by U: needed without layer norm, where sequences
    are hundreds of steps long; 0: no bound."""
    skip_nonfinite: bool = False
    """Leave out updates whose loss or gradient is not finite, and count them; otherwise they end the run."""

    def check(self) -> None:
        """Raise InputError on values that cannot work."""
        counts = ("epochs", "batch_size", "length", "patience", "accumulate", "log_every")
        _check_counts({f"train.{name}": getattr(self, name) for name in counts})
        for name in ("learning_rate", "slope_max", "divide_rate_by"):
            if not getattr(self, name) > 0:
                raise InputError(f"train.{name} must be positive; got {getattr(self, name)}")
        _check_not_negative(
            "train", self, "clip_norm", "slope_rate", "min_improvement", "cool_down", "divisions", "validate_every",
            "validation_symbols", "threads", "checkpoint_every", "detector_feedback", "recurrent_gain",
            "detector_recurrence",
        )  # fmt: skip
        if self.detector_rates and self.detector_bias:
            raise InputError("train.detector_rates finds the biases that train.detector_bias gives; leave one empty")
        if self.validation_symbols == 1:
            raise InputError("train.validation_symbols must be 0, for all, or at least 2; got 1")
        if not self.cool_down <= 1:
            raise InputError(f"train.cool_down is a share of all updates, at most 1; got {self.cool_down}")
        _check_seed("train.seed", self.seed)
        if self.batch_size % self.accumulate:
            raise InputError(
                f"train.batch_size {self.batch_size} must be a multiple of train.accumulate {self.accumulate}"
            )


@dataclasses.dataclass(frozen=True)
class RegulariseConfig:
    """What keeps a model from learning its training part by heart; nothing, unless it is asked for."""

    weight_drop: float = 0.0
    """Share of the recurrent weights (U, V) that are zero in an update, but for the detectors' rows (DropConnect)."""
    dropout_embedding: float = 0.0
    """Share of the embedding that is zero, for each sequence of an update."""
    dropout_between: float = 0.0
    """Share of a layer's units that the gates of the layer above do not see, for each sequence of an update."""
    dropout_output: float = 0.0
    """Share of the units of all layers that the output module does not see, for each sequence of an update."""
    shift: bool = False
    """Begin every epoch at another place of the text, so that it is not always cut in the same places. Text only."""
    zoneout: float = 0.0
    """Share of the cells that stay as they were when their layer moves, drawn at every step."""
    weight_decay: float = 0.0
    """Times the rate, this share of every matrix is taken off in an update; the detectors' rows are left alone."""
    average: float = 0.0
    """Validation and the best model take the mean of the weights over all updates, each of which counts this many times
    as much as the next one (such as 0.999); 0: the weights as they are."""
    rate_targets: tuple[float, ...] = ()
    """Rate prior: the boundary rates to pull the detectors to, one per detector, the lowest first; empty: none."""
    rate_weight: float = 1.0
    """Weight of the rate prior, which is the squared distance between rates and targets, beside the loss in nats."""
    rate_control: float = 0.0
    """After each update, this share (such as 0.05) of what a detector's bias lacks for its target rate on that batch is
    added to it, and nothing else moves it; brings back a detector that the prior's gradient no longer reaches. It falls
    as the learning rate does: no batch pulls at detectors that have settled."""
    surprise_weight: float = 0.0
    """Weight of a loss that pulls the detectors to where the model's own surprise rises most, as often as rate_targets
    say; no boundary is shown."""
    surprise_kind: SurpriseKind = "rise"
    """Of that pull. rise: where a symbol surprises more than the one before it. expected: where the model is most
    uncertain of what follows, mostly by the surprise that it expects (the entropy of its prediction); text only."""
    surprise_lag: Literal[0, 1] = 0
    """Of that pull. 0: boundaries come before the symbol that surprises. 1: on it, when it has been read."""
    surprise_margin: float = 0.0
    """Of that pull. Weight (such as 1) of a pull beyond the threshold, without which pre-activations may gather there
    and cut elsewhere in another precision; 0: none."""

    @property
    def pulls(self) -> bool:
        """Whether anything draws detectors to ``rate_targets``."""
        return self.rate_weight > 0 or self.rate_control > 0 or self.surprise_weight > 0

    def check(self) -> None:
        """Raise InputError on values that cannot work."""
        _check_not_negative("regularise", self, "weight_decay", "rate_weight", "surprise_weight", "surprise_margin")
        dropped = ("weight_drop", "dropout_embedding", "dropout_between", "dropout_output", "zoneout")
        for name in (*dropped, "average", "rate_control"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"regularise.{name} must be at least 0 and less than 1; got {getattr(self, name)}")


@dataclasses.dataclass(frozen=True)
class Config:
    """A run: what is read, what is built, how it is trained."""

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    regularise: RegulariseConfig = dataclasses.field(default_factory=RegulariseConfig)

    def setting(self, name: str) -> Any:
        """The value of a setting by its full name, such as "train.epochs"."""
        part, _, field = name.partition(".")
        return getattr(getattr(self, part), field)

    def check(self) -> None:
        """Raise InputError on values that cannot work, alone or beside each other."""
        m, t, d, r = self.model, self.train, self.data, self.regularise
        for name, part in (("data", d), ("model", m), ("train", t), ("regularise", r)):
            part.check()
            _check_finite(name, part)
        if r.surprise_kind == "expected" and d.format in STROKE_FORMATS:
            raise InputError("regularise.surprise_kind expected is for text; the mixtures of strokes have no entropy")
        if r.shift and d.format in STROKE_FORMATS:
            raise InputError("regularise.shift is for text; lines of strokes are read whole, so leave it off")
        for name, rates in (("regularise.rate_targets", r.rate_targets), ("train.detector_rates", t.detector_rates)):
            if len(rates) not in (0, m.num_layers - 1) or not all(0 <= rate <= 1 for rate in rates):
                raise InputError(
                    f"{name} must hold {m.num_layers - 1} rates between 0 and 1, one per detector, or none; got {rates}"
                )
        if len(t.detector_bias) not in (0, 1, m.num_layers - 1) or not all(map(math.isfinite, t.detector_bias)):
            raise InputError(
                f"train.detector_bias must hold one number for all detectors, {m.num_layers - 1}, one each, or none; "
                f"got {t.detector_bias}"
            )
        lacking = unused(m)
        wants = ("rate_targets", "rate_control", "surprise_weight")
        for name in (*(f"regularise.{want}" for want in wants), "train.detector_bias", "train.detector_rates"):
            if name in lacking and (value := self.setting(name)):
                raise InputError(f"{name} is {value}, which is for {lacking[name]}, not for this {m.rnn}; leave it out")
        if (r.surprise_weight > 0 or r.rate_control > 0) and not r.rate_targets:
            raise InputError(
                "regularise.rate_control and regularise.surprise_weight need regularise.rate_targets; give the rates"
            )


def _check_counts(values: Mapping[str, float]) -> None:
    for name, value in values.items():
        if value < 1:
            raise InputError(f"{name} must be at least 1; got {value}")
        if value > 2**31:
            raise InputError(f"{name} must be at most {2**31}; got {value}")


def _check_finite(part: str, config: Any) -> None:
    """JSON has no infinity: a run with one could not be read again."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{part}.{field.name} must be finite; got {value}")


def _check_not_negative(part: str, config: Any, *names: str) -> None:
    for name in names:
        if not getattr(config, name) >= 0:
            raise InputError(f"{part}.{name} must not be negative; got {getattr(config, name)}")


def _check_seed(name: str, seed: int) -> None:
    if not 0 <= seed <= 2**62:
        raise InputError(f"{name} must lie between 0 and 2**62; got {seed}")


def to_json(value: Any) -> bytes:
    """``value`` (a dataclass or plain data) as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def from_json(data: bytes, kind: type[T], source: str) -> T:
    """The ``kind`` that ``data`` holds; InputError names ``source`` and the field where it does not fit."""
    try:
        plain = msgspec.json.decode(data)
        found: T = msgspec.convert(plain, kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{source} is damaged, or of another version of hmrnn: {error}") from error
    if unknown := _unknown(plain, found):
        raise InputError(f"{source} is damaged, or of a newer version of hmrnn: there is no setting {unknown[0]}")
    return found


def _unknown(plain: Any, found: Any, prefix: str = "") -> list[str]:
    """Names in ``plain`` that the dataclasses of ``found`` do not have, which msgspec would pass over."""
    if not dataclasses.is_dataclass(found):
        return []
    fields = {field.name for field in dataclasses.fields(found)}
    inside = (_unknown(plain[name], getattr(found, name), f"{prefix}{name}.") for name in plain if name in fields)
    return [prefix + name for name in plain if name not in fields] + list(itertools.chain.from_iterable(inside))
