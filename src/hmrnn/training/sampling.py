"""Scheduled sampling: a share of what the network reads in training are draws from its own predictions."""

from __future__ import annotations

import torch
from torch import Tensor

from hmrnn.nn.context import Told
from hmrnn.nn.predictor import Predictor, evaluating
from hmrnn.ops import State


@torch.no_grad()
def with_own_inputs(
    model: Predictor,
    inputs: Tensor,
    share: Tensor,
    state: State | None,
    told: Told | None = None,
) -> Tensor:
    """``inputs`` (T, B, ...), of which a ``share`` after the first step are drawn from the predictions of the model.

    The predictions are those for the true inputs, so that two passes suffice (Duckworth et al., 2019); in the scheduled
    sampling of Bengio et al. (2015) each draw depends on those before it.
    """
    with evaluating(model):
        prediction, _, _ = model.predict(inputs, state, told=told)
    drawn = prediction.draw()  # (T, B, ...)
    chosen = torch.rand(inputs.shape[:2], device=inputs.device)[1:] < share  # (T - 1, B)
    chosen = chosen.view(*chosen.shape, *[1] * (inputs.dim() - 2))
    own = torch.where(chosen, drawn[:-1].to(inputs.dtype), inputs[1:])
    return torch.cat([inputs[:1], own])
