"""How a run trains."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from hmrnn.config.checks import BY_GRADIENT, Count, Natural, Needs, NotNegative, Positive, Proportion, Seed, Share, Text

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
