"""Multiply-adds: how much of a network has to be computed anew at each step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.nn.output import Output, changes
from hmrnn.ops import State

_FIRST = ("layers.0.weight_ih_l0", "layers.0.W.0", "W.0")
"""Names that baselines give to the matrix that multiplies the input."""


def multiply_adds(model: Any, out: Output, before: State | None = None) -> Tensor:
    """(T, B): multiply-adds of each step, counted from what the layers did.

    A matrix counts (rows x columns) where the vector it multiplies is new: U and the output module's matrix of a layer
    where that layer moved, W where the layer below ended a segment, V where the top-down gate was open and the layer
    moved (with ``top_down="always"``: where the layer above moved). The first W of a text model is a table look-up and
    counts nothing. A detector's hidden layer counts where its layer moved. Baselines multiply every matrix at
    every step.

    Args:
        model: a LanguageModel or a HandwritingModel.
        out: what its network gave for a chunk, (T, B, ...).
        before: the state before the chunk; zeros if None.
    """
    rnn = model.rnn
    moved = changes(out, rnn)  # (T, B, L)
    looked_up = hasattr(model, "embedding")
    heads = [module for name, module in model.named_children() if name in ("softmax", "density")]
    total = sum(head.weight.numel() for head in heads) * torch.ones(moved.shape[:2], device=moved.device)
    for l, embed in enumerate(model.output.embeddings):
        gates = model.output.gates.out_features * embed.in_features
        total = total + moved[..., l] * float(embed.weight.numel() + gates)
    if not isinstance(rnn, HMLSTM):
        read = [p for name, p in rnn.named_parameters() if p.dim() == 2 and not (looked_up and name in _FIRST)]
        return total + sum(p.numel() for p in read)
    fed, open_gate = _inputs(rnn, out, moved, before)
    for l, w in enumerate(rnn.layers()):
        total = total + moved[..., l] * float(w.U.numel())
        if w.D1 is not None and w.D2 is not None:
            total = total + moved[..., l] * float(w.D1.numel() + w.D2.numel())
        if not (l == 0 and looked_up):
            total = total + fed[..., l] * float(w.W.numel())
        if w.V is not None:
            always = getattr(rnn, "top_down", "boundary") == "always"
            used = moved[..., l + 1] if always else open_gate[..., l] & moved[..., l]
            total = total + used * float(w.V.numel())
    return total


def _inputs(rnn: HMLSTM, out: Output, moved: Tensor, before: State | None) -> tuple[Tensor, Tensor]:
    """(T, B, L): where a layer reads the one below; (T, B, L-1): where its top-down gate is open."""
    dense = rnn.boundary == "soft" or not getattr(rnn, "copy", True)
    z = out.boundaries > 0.5
    fed = torch.ones_like(moved) if dense else torch.cat([torch.ones_like(moved[..., :1]), z], dim=-1)
    if rnn.boundary == "soft":
        return fed, torch.ones_like(z)
    start = torch.zeros_like(z[0]) if before is None else before.z > 0.5
    earlier = torch.cat([start[None], z[:-1]])
    if getattr(rnn, "top_down", "boundary") != "pending" or rnn.flush:
        return fed, earlier
    waiting, gates = start, []
    pending = getattr(before, "pending", None)
    if pending is not None:
        waiting = waiting | (pending > 0.5)
    for t in range(len(z)):
        waiting = waiting | earlier[t]
        gates.append(waiting)
        waiting = waiting & ~moved[t, :, :-1]
    return fed, torch.stack(gates)
