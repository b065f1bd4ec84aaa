"""The boundary detectors of a run."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from hmrnn.config.checks import HM_LSTM, MOVING, RATED, Natural, Needs, NotNegative, Number, Positive, Proportion, Share

RATES = (HM_LSTM, Needs("detectors.rates"))
UNBIASED = Needs("detectors.bias", ((),), what="runs without detectors.bias")
DRAWN = HM_LSTM._replace(of=("reinforce",))
PullTo = Literal["rise", "uncertainty", "entropy", "segments"]


@dataclasses.dataclass(frozen=True)
class DetectorConfig:
    """The boundary detectors: how they decide, how often they fire and where. Networks without detectors ignore it."""

    estimator: Annotated[Literal["step", "sample", "soft", "gumbel", "reinforce"], MOVING, DRAWN] = "step"
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
    start_at_rates: Annotated[bool, *RATES, UNBIASED] = False
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
