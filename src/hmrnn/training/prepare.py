"""What a run begins with: dropout, initial gains and detectors of its model, and its optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Adam

from hmrnn.config import Config, TrainConfig
from hmrnn.errors import InputError
from hmrnn.optim import Muon, new_state
from hmrnn.training.terms.steering import bound_feedback


def prepare(model: Any, config: Config) -> None:
    """Set up a new model as ``config`` says: dropout, initial gains, and bias and bounds of the detectors."""
    r, d, gain = config.regularise, config.detectors, config.train.recurrent_gain
    for part, attribute, setting in (
        (model.rnn, "weight_drop", "weight_drop"),
        (model.rnn, "dropout", "dropout_between"),
        (model.rnn, "zoneout", "zoneout"),
        (model.output, "dropout", "dropout_output"),
        (model, "dropout_embedding", "dropout_embedding"),
    ):
        value = getattr(r, setting)
        if hasattr(part, attribute):
            setattr(part, attribute, value)
        elif value > 0:
            where = config.model.rnn if part is model.rnn else f"a {type(part).__name__}"
            raise InputError(f"is not for {where}; leave it out", setting=f"regularise.{setting}", value=value)
    if d.bias:
        model.rnn.set_detector_bias(d.bias)
    for name, parameter in model.named_parameters():
        if "gain_U" in name or "gain_V" in name:
            nn.init.constant_(parameter, model.rnn.default_gain if gain is None else gain)
    bound_feedback(model, *d.bounds)


def new_optimizer(model: Any, t: TrainConfig, device: torch.device) -> Any:
    """That of the settings, with its state before the first update.

    On a GPU its step can be captured and does nothing while ``found_inf`` is 1.
    """
    optimizer: Any
    betas, on_gpu = (t.beta1, 0.999), device.type == "cuda"
    rate = torch.tensor(t.learning_rate, device=device) if on_gpu else t.learning_rate
    if t.optimizer == "muon":
        optimizer = Muon(model, rate, adam_rate=t.adam_rate, betas=betas)
        optimizer.state.update(optimizer.new_states())
    else:
        optimizer = Adam(model.parameters(), rate, betas, fused=on_gpu or None, capturable=on_gpu)
        optimizer.state.update((p, new_state(p)) for p in model.parameters() if p.requires_grad)
    if on_gpu:
        optimizer.found_inf = torch.zeros((), device=device)
    return optimizer
