"""Scheduled sampling: a share of what the network reads in training are draws from its own predictions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.nn.context import Told
from hmrnn.nn.distributions import Categorical, Halting, Prediction, StrokeMixture
from hmrnn.nn.models import HandwritingModel, LanguageModel, evaluating
from hmrnn.ops import State


@torch.no_grad()
def with_own_inputs(
    model: LanguageModel | HandwritingModel,
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
    drawn = draw(prediction)
    chosen = torch.rand(inputs.shape[:2], device=inputs.device)[1:] < share  # (T - 1, B)
    own = torch.where(chosen if inputs.dim() == 2 else chosen[..., None], drawn[:-1].to(inputs.dtype), inputs[1:])
    return torch.cat([inputs[:1], own])


def draw(prediction: Prediction) -> Tensor:
    """(T, B) or (T, B, 3): one draw from each prediction, on its device and from torch's generator of it."""
    if isinstance(prediction, Categorical):
        return _gumbel_argmax(prediction.logits.float())
    mixture = prediction.mixture if isinstance(prediction, Halting) else prediction
    assert isinstance(mixture, StrokeMixture)
    k = F.one_hot(_gumbel_argmax(mixture.log_weights), mixture.log_weights.shape[-1]).to(mixture.means.dtype)
    mean, log_deviation = ((part * k[..., None]).sum(-2) for part in (mixture.means, mixture.log_deviations))
    correlation, rest = ((part * k).sum(-1) for part in (mixture.correlation, mixture.rest))
    x, y = torch.randn_like(mean).unbind(-1)
    moved = mean + log_deviation.exp() * torch.stack([x, correlation * x + rest.sqrt() * y], dim=-1)
    lifted = torch.rand_like(mixture.pen) < torch.sigmoid(mixture.pen)
    return torch.cat([moved, lifted[..., None].to(moved.dtype)], dim=-1)


def _gumbel_argmax(logits: Tensor) -> Tensor:
    """(...): an index drawn from each softmax of logits (..., N)."""
    return (logits - torch.empty_like(logits).exponential_().log()).argmax(-1)
