"""Multiply-adds: how much of a network has to be computed anew at each step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hmrnn.nn.output import Output, changes
from hmrnn.ops import State


def multiply_adds(model: Any, out: Output, before: State | None = None) -> Tensor:
    """(T, B) int64: multiply-adds of each step, counted from what the layers did.

    A matrix counts (rows x columns) where the vector it multiplies is new: U and the output module's matrix of a layer
    where that layer moved, W where the layer below ended a segment, V where the top-down gate was open and the layer
    moved (with ``top_down="always"``: where the layer above moved). The first W of a text model is a table look-up and
    counts nothing, unless the model is told more than the text.

    A detector reads what its layer reads: its row of U and W, or the columns of D1 beside them, count with that matrix.
    Its row of V, or the columns of D1, count where the gate was open and h above is new to it, also on COPY unless
    ``on_copy="hold"``. D2 counts where the layer moved, and once more for the value on COPY, which is made anew when
    the layer has moved or h above is new.

    Baselines multiply every matrix at every step, except that a module of a clockwork RNN multiplies its rows of U and
    W at its period only.

    Args:
        model: a :class:`hmrnn.nn.predictor.Predictor`, or a network with the same parts. Its linear children, such as
            the head, count at every step.
        out: what its network gave for a chunk, (T, B, ...).
        before: the state before the chunk; zeros if None.
    """
    rnn = model.rnn
    looked_up = isinstance(model.embedding, nn.Embedding) and getattr(model, "context", None) is None
    sides = [(rnn, out)] if not hasattr(rnn, "directions") else list(zip(rnn.directions, _directions(out)))
    products = [one.multiply_adds(part, before, looked_up) for one, part in sides]
    if len(sides) == 2:
        products[1] = products[1].flip(0)
    moved = changes(out, rnn)  # (T, B, L), or (T, B, L, 2): h of a layer has changed if either direction moved
    moved = moved.any(-1) if moved.dim() == 4 else moved
    always = sum(module.weight.numel() for module in model.children() if isinstance(module, nn.Linear))
    total = torch.full(moved.shape[:2], always, device=moved.device)
    if hasattr(model.output, "gates"):  # otherwise h goes to the head as it is
        for l, embed in enumerate(model.output.embeddings):
            gates = model.output.gates.out_features * embed.in_features
            total += moved[..., l] * (embed.weight.numel() + gates)
    return total + sum(products)


def _directions(out: Output) -> tuple[Output, Output]:
    """What each direction of a bidirectional network did, in the order in which it read the steps."""
    both = (out.boundaries, out.probabilities, out.operations)
    return Output(out.hidden, *(a[..., 0] for a in both)), Output(out.hidden, *(a[..., 1].flip(0) for a in both))


def of_hmlstm(rnn: Any, out: Output, before: State | None, looked_up: bool) -> Tensor:
    """(T, B): those of an HMLSTM at each step; ``looked_up``: its first W is a table."""
    moved = changes(out, rnn)  # (T, B, L)
    total = torch.zeros(moved.shape[:2], dtype=torch.int64, device=moved.device)
    fed, open_gate, new_above = _inputs(rnn, out, moved, before)
    for l, w in enumerate(rnn.layers()):
        gates, here = 4 * w.hidden_size, moved[..., l]
        detector = {name: w.detector_rows(name).numel() for name in "UW"}  # 0 in the top layer
        total += here * (w.U[:gates].numel() + detector["U"])
        if not (l == 0 and looked_up):
            total += fed[..., l] * (w.W[:gates].numel() + detector["W"])
        if not w.has_detector:
            continue
        evaluates = rnn.on_copy == "evaluate"
        above = torch.zeros_like(here)  # where the detector's product with h above is made anew
        if w.V is not None:
            by_gates = moved[..., l + 1] if rnn.top_down == "always" else open_gate[..., l] & here
            above = new_above[..., l] if evaluates and rnn.top_down != "always" else by_gates
            total += by_gates * w.V[:gates].numel() + above * w.detector_rows("V").numel()
        if w.D2 is not None:
            total += here * w.D2.numel()
            if l > 0 and rnn.copy and rnn.boundary != "soft" and evaluates:
                total += (here | above) * w.D2.numel()
    return total


def _inputs(rnn: Any, out: Output, moved: Tensor, before: State | None) -> tuple[Tensor, Tensor, Tensor]:
    """(T, B, L): where a layer reads the one below; (T, B, L-1): where its top-down gate is open, and where h above has
    changed since the gate was last open, which is after a boundary."""
    dense = rnn.boundary == "soft" or not rnn.copy
    z = out.boundaries > 0.5
    fed = torch.ones_like(moved) if dense else torch.cat([torch.ones_like(moved[..., :1]), z], dim=-1)
    if rnn.boundary == "soft":
        return fed, torch.ones_like(z), torch.ones_like(z)
    start = torch.zeros_like(z[0]) if before is None else before.z > 0.5
    earlier = torch.cat([start[None], z[:-1]])
    if rnn.variant.gate != "pending":
        return fed, earlier, earlier
    opens = earlier.clone()
    if before is not None and before.pending is not None:
        opens[0] |= before.pending > 0.5
    step = torch.arange(1, len(z) + 1, device=z.device)[:, None, None]
    opened = (opens * step).cummax(0).values  # the last step so far that opened a gate
    closed = (moved[..., :-1] * step).cummax(0).values  # the last step so far that closed it for those after it
    return fed, opened > torch.cat([torch.zeros_like(closed[:1]), closed[:-1]]), earlier
