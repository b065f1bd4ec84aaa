"""Every setting of a run, in dataclasses: they are the command-line flags and the config.json of a checkpoint."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypeVar

import msgspec

from hmrnn.errors import InputError

T = TypeVar("T")
Format = Literal["manual", "text", "ptb", "text8", "enwik8"]


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What is read."""

    format: Format = "text"
    """manual: the Python manual inside every CPython. text: UTF-8 files. ptb: Penn Treebank characters (symbols
    separated by spaces, _ for a space, a sentence per line). text8: 27 symbols. enwik8: bytes, split 90M/5M/5M."""
    path: tuple[str, ...] = ()
    """Files, or one directory; .xz, .gz and .bz2 are unpacked on the fly. Not used by "manual"."""
    bytes: bool = False
    """Model the bytes of the files instead of their characters."""
    valid_fraction: float = 0.05
    """Share of the symbols kept for validation, for formats without a split of their own."""
    test_fraction: float = 0.05
    """Share of the symbols kept for the test, after the validation part."""
    unseen: Literal["replace", "error"] = "replace"
    """A symbol of the validation or test part that training never showed: replace it by the unknown symbol, or stop."""
    cache: str | None = None
    """Where encoded corpora are kept; HMRNN_CACHE or ~/.cache/hmrnn if not given."""


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """What is built: embedding -> HM-LSTM -> gated output module -> softmax."""

    rnn: Literal["hm-lstm"] = "hm-lstm"
    """The recurrent network."""
    embedding_size: int = 128
    """Size of the vector a symbol is read as."""
    hidden_size: tuple[int, ...] = (512,)
    """Size of every layer, or one size per layer, the lowest first."""
    num_layers: int = 3
    """Number of layers."""
    output_size: int = 512
    """Size of the output embedding (equation 12)."""
    layer_norm: bool = True
    """Layer normalisation inside the recurrence."""
    boundary: Literal["step", "sample", "soft"] = "step"
    """How a detector decides: a threshold, a Bernoulli draw, or not at all (its real value is used)."""
    on_copy: Literal["hold", "evaluate"] = "evaluate"
    """What a detector says when its layer copies: nothing, or what equation 4 has left."""


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
    """Bits per character by which a validation must beat the best one to count as an improvement."""
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
    """Parts in which a batch is computed, to save memory; the update is that of the whole batch."""
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


@dataclasses.dataclass(frozen=True)
class Config:
    """A run: what is read, what is built, how it is trained."""

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    def check(self) -> None:
        """Raise InputError on values that cannot work."""
        m, t, d = self.model, self.train, self.data
        for name, value in (
            ("model.embedding_size", m.embedding_size),
            ("model.num_layers", m.num_layers),
            ("model.output_size", m.output_size),
            *((f"model.hidden_size[{i}]", size) for i, size in enumerate(m.hidden_size)),
            ("train.epochs", t.epochs),
            ("train.batch_size", t.batch_size),
            ("train.length", t.length),
            ("train.patience", t.patience),
            ("train.accumulate", t.accumulate),
            ("train.log_every", t.log_every),
        ):
            if value < 1:
                raise InputError(f"{name} must be at least 1; got {value}")
        if len(m.hidden_size) not in (1, m.num_layers):
            raise InputError(
                f"model.hidden_size must hold 1 or {m.num_layers} sizes (model.num_layers); got {m.hidden_size}"
            )
        for name, number in (
            ("train.learning_rate", t.learning_rate),
            ("train.slope_max", t.slope_max),
            ("train.divide_rate_by", t.divide_rate_by),
        ):
            if not number > 0:
                raise InputError(f"{name} must be positive; got {number}")
        for name, number in (
            ("train.clip_norm", t.clip_norm),
            ("train.slope_rate", t.slope_rate),
            ("train.min_improvement", t.min_improvement),
            ("train.cool_down", t.cool_down),
            ("train.divisions", t.divisions),
            ("train.validate_every", t.validate_every),
            ("train.validation_symbols", t.validation_symbols),
            ("train.threads", t.threads),
            ("train.checkpoint_every", t.checkpoint_every),
        ):
            if not number >= 0:
                raise InputError(f"{name} must not be negative; got {number}")
        if not 0 < d.valid_fraction < 1 or not 0 < d.test_fraction < 1 or d.valid_fraction + d.test_fraction >= 1:
            raise InputError(
                "data.valid_fraction and data.test_fraction must be positive and leave something for training; "
                f"got {d.valid_fraction} and {d.test_fraction}"
            )
        if not t.cool_down <= 1:
            raise InputError(f"train.cool_down is a share of all updates, at most 1; got {t.cool_down}")
        if not 0 <= t.seed <= 2**62:
            raise InputError(f"train.seed must lie between 0 and 2**62; got {t.seed}")
        if t.batch_size % t.accumulate:
            raise InputError(f"train.batch_size {t.batch_size} must be a multiple of train.accumulate {t.accumulate}")


def to_json(value: Any) -> bytes:
    """``value`` (a dataclass or plain data) as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def from_json(data: bytes, kind: type[T], source: str) -> T:
    """The ``kind`` that ``data`` holds; InputError names ``source`` and the field where it does not fit."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{source} is damaged, or of another version of hmrnn: {error}") from error
