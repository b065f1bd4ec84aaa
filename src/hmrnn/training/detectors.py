"""What a run does against learning its data by heart, and against detectors that collapse."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hmrnn.analysis.scores import uncertainty
from hmrnn.config import Config, DetectorConfig, PullTo
from hmrnn.errors import InputError
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.tasks.base import Loss

SILENT, ALWAYS = 0.002, 0.98
"""Over a whole epoch, a rate below the one is that of a silent detector, above the other of one that fires always."""
WIDEST, BELOW_ZERO = 8.0, -0.05
"""A start at given rates looks for biases between -8 and 8, or up to a little below zero where that is too much."""


def prepare(model: Any, config: Config) -> None:
    """Set up a new model as a config asks: its dropout, its gains, and the bias and the feedback of its detectors."""
    r, d, gain = config.regularise, config.detectors, config.train.recurrent_gain
    for name, value, part, attribute in (
        ("regularise.weight_drop", r.weight_drop, model.rnn, "weight_drop"),
        ("regularise.dropout_between", r.dropout_between, model.rnn, "dropout"),
        ("regularise.zoneout", r.zoneout, model.rnn, "zoneout"),
        ("regularise.dropout_output", r.dropout_output, model.output, "dropout"),
        ("regularise.dropout_embedding", r.dropout_embedding, model, "dropout_embedding"),
    ):
        if value > 0 and not hasattr(part, attribute):
            raise InputError(f"{name} is {value}, but a {type(part).__name__} has nothing to drop there; set it to 0")
        if hasattr(part, attribute):
            setattr(part, attribute, value)
    if d.bias:
        model.rnn.set_detector_bias(d.bias)
    start_gains(model, gain if gain is not None else 1.0 if config.model.rnn == "ln-lstm" else 0.3)
    bound_feedback(model, *d.bounds)


@torch.no_grad()
def start_gains(model: nn.Module, gain: float) -> None:
    """Set what layer norm multiplies the contributions of U and V by, where there is layer norm."""
    for module in model.modules():
        if isinstance(module, HMLSTM) and module.layer_norm:
            for parameter in (*module.gain_U, *module.gain_V):
                parameter.fill_(gain)


@torch.no_grad()
def start_rates(model: Any, measured: Callable[[], Tensor], targets: Sequence[float]) -> None:
    """Set the detectors' biases so that they fire at rates ``targets``; ``measured`` gives those of now, (detectors,).

    A detector fires the more often the larger its bias is, so halving an interval finds it. The lowest comes first, as
    what reaches the others depends on it. With layer norm the biases of the others stay below zero, even if their rates
    then do: above it a detector fires while its layer is still all zeros, where layer norm multiplies gradients by 316
    at every step.
    """
    for l, target in enumerate(targets):
        low, high = -WIDEST, BELOW_ZERO if l > 0 and model.rnn.layer_norm else WIDEST
        for _ in range(12):
            middle = (low + high) / 2
            model.rnn.b[l][-1] = middle
            low, high = (middle, high) if measured()[l] < target else (low, middle)


@torch.no_grad()
def decay(model: nn.Module, share: Tensor | float) -> None:
    """Take ``share`` off every matrix; biases, gains and the detectors' rows are left alone."""
    detecting = {
        id(matrix)
        for module in model.modules()
        if isinstance(module, HMLSTM)
        for w in module.layers()
        if w.has_detector
        for matrix in (w.U, w.V, w.W)
        if matrix is not None
    }
    for p in model.parameters():
        if p.dim() > 1:
            (p[:-1] if id(p) in detecting else p).mul_(1 - share)


@torch.no_grad()
def bound_feedback(model: nn.Module, feedback: float, recurrence: float, good: Tensor | bool = True) -> None:
    """Shrink the detectors' rows of V and U, so that the gradient a boundary hands to the one before it is bounded.

    A boundary adds v·h to the next pre-activation of its own detector, h being that of the layer above: the gradient is
    multiplied by (a/2)·v·h at every step that stays in the linear range. As |h| < 1, that is at most (a/2)·‖v‖₁, which
    ``feedback`` bounds. It also decides whether the cell is kept, which changes h of its own layer by about 1 at most:
    hence (a/2)·‖u‖₁, which ``recurrence`` bounds. The cell remembers the change for a while, so a bound of 1 is no
    promise there. 0: no bound. After an update that is not ``good`` nothing changes.
    """
    for module in model.modules():
        if isinstance(module, HMLSTM):
            for bound, matrices in ((feedback, module.V), (recurrence, module.U)):
                for matrix in list(matrices)[: module.num_boundaries] if bound > 0 else ():
                    factor = (2 * bound / (module.a * matrix[-1].abs().sum())).clamp(max=1)
                    matrix[-1].mul_(1 - good * (1 - factor))


def rate_prior(rates: Tensor, targets: Sequence[float], weight: float) -> Tensor:
    """A loss that pulls boundary rates (detectors,) to their targets; its gradient reaches the detectors through z."""
    return weight * sum(((rates[l] - target) ** 2 for l, target in enumerate(targets)), start=rates.new_zeros(()))


def surprise_pull(
    reading: Loss, targets: Sequence[float], lag: int, kind: PullTo = "rise", margin: float = 0.0
) -> Tensor:
    """A loss that pulls each detector to the steps where surprise rises most, as many as its target says.

    The model as it is now is the teacher: a word, or a stroke, begins where the next symbol is hard to tell and goes on
    where it is not. With ``kind`` "uncertainty" these are the steps at which the model is least certain of what
    follows. With ``lag`` 0 a boundary belongs before the symbol that surprises, and the detector must foresee it; with
    1 on that symbol, which it has then read. The gradient reaches the detectors through z at every step.

    A detector on the right side of its threshold is left there, and all pre-activations may shrink onto it, where a
    rounding decides (results/english-tries). ``margin`` is the weight of a pull that goes on, to chances of 0.1 and
    0.9: still in the linear range of the hard sigmoid, from which there is a way back.
    """
    surprise, z, active = reading.surprise, reading.boundaries, reading.active
    assert surprise is not None
    height = surprise.diff(dim=0, prepend=surprise[:1]) if kind == "rise" else uncertainty(surprise, reading.expected)
    if lag:
        height = torch.cat([torch.zeros_like(height[:1]), height[:-1]])
    if active is None:
        active = torch.ones_like(height, dtype=torch.bool)
    height = torch.where(active, height, -torch.inf)  # (T, B)
    highest = height.flatten().sort(descending=True).values
    count = active.sum().clamp(min=1)
    pull = z.new_zeros(())
    for l, target in enumerate(targets):
        least = highest.take((target * count).long().clamp(max=height.numel() - 1))
        wanted = ((height > least) & (height > 0)).to(z.dtype)  # (T, B)
        errors = (z[..., l] - wanted) ** 2
        if margin > 0:
            assert reading.chances is not None
            error = reading.chances[..., l].detach() - (0.1 + 0.8 * wanted)
            passed_on = z[..., l] - z[..., l].detach()  # zero, with the gradient of z, which is that of the chances
            errors = errors + margin * (error**2 + 2 * error * passed_on)
        pull = pull + (errors * active).sum() / count
    return pull


def detector_pull(reading: Loss, rates: Tensor, d: DetectorConfig) -> Tensor:
    """What is added to the loss for the detectors' sake."""
    pull = rate_prior(rates, d.rates, d.rate_weight)
    if d.pull_weight > 0:
        pull = pull + d.pull_weight * surprise_pull(reading, d.rates, d.pull_delay, d.pull_to, d.pull_margin)
    return pull


@torch.no_grad()
def lacking_bias(reading: Loss, targets: Sequence[float], rnn: HMLSTM) -> Tensor:
    """(detectors,): what has to be added to each detector's bias for its target on this batch, as far as can be seen.

    A threshold at zero lets so many steps fire as have a pre-activation above it, so what is lacking is the
    pre-activation that only ``target`` of the steps surpass, with the other sign. Beyond the linear range of the hard
    sigmoid, a pre-activation is taken for the end of that range. Draws and real values have their mean to be moved.
    """
    assert reading.chances is not None
    values = reading.chances.float()  # (T, B, detectors)
    active = torch.ones_like(values[..., 0], dtype=torch.bool) if reading.active is None else reading.active
    count = active.sum().clamp(min=1)
    lacking = []
    for l, target in enumerate(targets):
        if rnn.boundary == "step":
            highest = torch.where(active, values[..., l], -1.0).flatten().sort(descending=True).values
            place = highest.take(torch.minimum((target * count).long(), count - 1))
            lacking.append((1 - 2 * place) / rnn.a)
        else:
            lacking.append((target - (values[..., l] * active).sum() / count) * 2 / rnn.a)
    return torch.stack(lacking)


def leave_to_control(rnn: HMLSTM) -> None:
    """Take the gradient off the detectors' biases: control alone moves them, or the two would meet off the target."""
    for b in list(rnn.b)[: rnn.num_boundaries]:
        assert b.grad is not None
        b.grad[-1].zero_()  # not "= 0", which copies from the host and cannot be captured


@torch.no_grad()
def control_rates(rnn: HMLSTM, lacking: Tensor, strength: float | Tensor, good: Tensor) -> None:
    """Move the detectors' biases by ``strength`` of what they lack; after an update that is not ``good`` by nothing.

    A prior has no gradient where a detector has left the linear range of its hard sigmoid; this brings it back.
    """
    for b, lack in zip(rnn.b, torch.where(good, strength * lacking, 0.0)):
        b[-1] += lack


class Average:
    """The mean of the weights after each update so far, an update counting ``decay`` times as much as the next one.

    Reads and writes tensors that stay where they are, so that an update can be captured.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.parameters = dict(model.named_parameters())
        self.weights = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.updates = torch.zeros((), dtype=torch.float64, device=next(model.parameters()).device)

    @torch.no_grad()
    def update(self, good: Tensor | bool = True) -> None:
        """Take the weights of now into the mean; an update that is not ``good`` is none."""
        self.updates += good
        share = (1 - self.decay) / (1 - self.decay**self.updates)  # 1 for the first
        for name, p in self.parameters.items():
            mean = self.weights[name].lerp(p, share.to(p.dtype))
            if isinstance(good, Tensor):
                mean = torch.where(good, mean, self.weights[name])
            self.weights[name].copy_(mean)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the mean as its weights for a while."""
        raw = {name: p.detach().clone() for name, p in self.parameters.items()}
        self._give_model(self.weights)
        try:
            yield
        finally:
            self._give_model(raw)

    def tensors(self) -> dict[str, Tensor]:
        return {"updates": self.updates, **{f"weights.{name}": weight for name, weight in self.weights.items()}}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name, mine in self.tensors().items():
            mine.copy_(tensors[name])

    @torch.no_grad()
    def _give_model(self, weights: dict[str, Tensor]) -> None:
        for name, p in self.parameters.items():
            p.copy_(weights[name])


def condition(rate: float) -> str:
    """What a detector's rate over an epoch says about it: "silent", "always" or "alive"."""
    return "silent" if rate < SILENT else "always" if rate > ALWAYS else "alive"


def advice(layer: int, rate: float, detectors: int, held: bool = False, biased: bool = False) -> str:
    """What a detector's condition means and what to try; ``layer`` is counted from 1.

    ``detectors`` is how many can be given rates: 0 where a text gives the boundaries of the levels below. ``held`` says
    that they have been given some, ``biased`` that a bias was, which cannot stand beside rates to start at.
    """
    what = {
        "silent": f"has fallen silent: at rate {rate:.4f} its segments hardly ever end, and layer {layer + 1} sleeps",
        "always": f"fires always: at rate {rate:.4f} every step is a segment, and layer {layer + 1} reads each of them",
        "alive": f"finds segments again, at rate {rate:.4f}",
    }[condition(rate)]
    if condition(rate) == "alive":
        return f"the detector of layer {layer} {what}"
    rates = " ".join(f"{0.9 * (2 / 3) ** l:.2g}" for l in range(detectors))
    means = f"rates that are held: detectors.rates {rates} detectors.rate_weight 0.2 detectors.start_at_rates"
    means += ", without detectors.bias" * biased
    if held:
        means = "a stronger hold, such as detectors.rate_control 0.1, or with other detectors.rates"
    elif not detectors:
        means = f"model.num_layers {layer}"
    return f"the detector of layer {layer} {what}; if it stays so, start again with {means}"
