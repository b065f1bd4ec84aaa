"""Muon: orthogonalised momentum for the gate matrices of a network, Adam for all else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from hmrnn.errors import InputError

Part = tuple[Tensor, Tensor, dict[str, Tensor]]
"""Blocks of a parameter, or the rest of it; their gradient; the state of the parameter."""


class Muon(torch.optim.Optimizer):
    r"""Muon (Jordan et al., 2024) for the recurrent networks of this package, with Adam for what is no gate matrix.

    Each gate's block of each matrix is updated by itself: with its momentum M, averaged by ``momentum`` and with
    Nesterov's look ahead, by

    .. math::
        -\text{lr} \cdot 0.2 \sqrt{\max(\text{rows}, \text{columns})} \; U V^T \qquad M = U S V^T

    so that the update is about as large as one of Adam. Embedding, output, biases, gains and the detectors' rows are
    updated by Adam.

    Args:
        model: a module with an :class:`hmrnn.HMLSTM` or one of :mod:`hmrnn.nn.baselines` somewhere in it. Any module
            counts that has a method ``gate_blocks()``: pairs of a matrix and the number of equal blocks that its rows
            begin with; rows that remain are updated by Adam.
        lr: the learning rate; a tensor on the GPU if the step is captured in a CUDA graph.
        adam_rate: Adam's learning rate, as a share of ``lr``.
        momentum: of the blocks.
        row_beta: if positive, each row of a block is divided by the root of the mean of its squares, averaged by this
            factor, so that all rows change alike (NorMuon, Li et al., 2025).
        betas, eps: of Adam.

    The step never waits for a GPU. If the attribute ``found_inf`` is set, a scalar tensor, a step changes nothing where
    it is 1. Products are computed in bfloat16 on a GPU and on a CPU with AMX. Processes that have the same gradients
    make the same step.

    Example::

        >>> rnn = hmrnn.HMLSTM(10, 20)
        >>> optimizer = hmrnn.optim.Muon(rnn, lr=0.004)
        >>> out, state = rnn(torch.randn(50, 4, 10))
        >>> out.hidden[-1].square().mean().backward()
        >>> optimizer.step()
    """

    found_inf: Tensor | None = None

    def __init__(
        self,
        model: nn.Module,
        lr: float | Tensor = 0.004,
        *,
        adam_rate: float = 1.0,
        momentum: float = 0.95,
        row_beta: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        counts: dict[Tensor, int] = {}
        for module in model.modules():
            name_blocks: Callable[[], list[tuple[Tensor, int]]] | None = getattr(module, "gate_blocks", None)
            if name_blocks is not None:
                counts |= dict(name_blocks())
        params = [p for p in model.parameters() if p.requires_grad]
        blocks = [counts.get(p, 0) for p in params]
        if not any(blocks):
            raise InputError(f"Muon is for networks with gate matrices to train, and {type(model).__name__} has none")
        settings = {"lr": lr, "adam_rate": adam_rate, "momentum": momentum, "row_beta": row_beta, "betas": betas}
        super().__init__([{"params": params, "blocks": blocks}], {**settings, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make an update; ``closure`` computes the loss anew, if given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            shapes: dict[tuple[int, ...], list[Part]] = {}
            rest: list[Part] = []
            for p, count in zip(group["params"], group["blocks"]):
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state |= new_state(p, count, group["row_beta"] > 0)
                (blocks, row), (gradients, slope) = _parts(p, count), _parts(p.grad.contiguous(), count)
                if blocks is not None:
                    shapes.setdefault(tuple(sorted(blocks.shape[1:])), []).append((blocks, gradients, state))
                if row is not None:
                    rest.append((row, slope, state))
            for found in shapes.values():
                self._update_blocks(found, group)
            if rest:
                self._update_rest(rest, group)
        return loss

    def new_states(self) -> dict[Tensor, dict[str, Tensor]]:
        """The state of each parameter before its first update: zeros."""
        pairs = [(group, *pair) for group in self.param_groups for pair in zip(group["params"], group["blocks"])]
        return {p: new_state(p, count, group["row_beta"] > 0) for group, p, count in pairs}

    def _update_blocks(self, found: list[Part], group: dict[str, Any]) -> None:
        """Update all blocks of one shape; weights and gradients of a parameter are (gates, rows, columns)."""
        beta, row_beta, rate = group["momentum"], group["row_beta"], group["lr"]
        good: float | Tensor = 1.0 if self.found_inf is None else (self.found_inf == 0).to(found[0][0].dtype)
        ahead = []
        for _, gradient, state in found:
            if self.found_inf is not None:
                gradient = torch.where(self.found_inf == 0, gradient, 0.0)
            state["momentum"].lerp_(gradient, good * (1 - beta))
            ahead.append(_wide(gradient.lerp(state["momentum"], beta)))
        changes = orthogonalised(torch.cat(ahead))
        for (weight, _, state), change in zip(found, changes.split([len(weight) for weight, _, _ in found])):
            _, rows, columns = weight.shape
            change = change.mT if rows > columns else change
            if row_beta > 0:
                state["square"].lerp_(change.square().mean(2, keepdim=True), good * (1 - row_beta))
                change = change / (state["square"].sqrt() + 1e-8)
                norm = torch.linalg.matrix_norm(change, keepdim=True).clamp(min=1e-12)
                change = change * (min(rows, columns) ** 0.5 / norm)
            weight.sub_(change * (rate * good * (0.2 * max(rows, columns) ** 0.5)))

    def _update_rest(self, rest: list[Part], group: dict[str, Any]) -> None:
        weights, gradients, states = map(list, zip(*rest))
        lr = group["lr"] * group["adam_rate"]
        on_gpu = weights[0].is_cuda
        kept: Any = {name: [state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step")}
        beta1, beta2 = group["betas"]
        adam(
            weights, gradients, kept["exp_avg"], kept["exp_avg_sq"], [], kept["step"], amsgrad=False, beta1=beta1,
            beta2=beta2, lr=lr, weight_decay=0.0, eps=group["eps"], maximize=False, found_inf=self.found_inf,
            fused=True, capturable=on_gpu,
        )  # fmt: skip


def new_state(p: Tensor, count: int = 0, of_rows: bool = False) -> dict[str, Tensor]:
    """The state of a parameter that begins with ``count`` blocks, before its first update; without blocks Adam's."""
    state: dict[str, Tensor] = {}
    blocks, rest = _parts(p, count)
    if blocks is not None:
        state["momentum"] = torch.zeros_like(blocks)
        if of_rows:
            state["square"] = torch.zeros_like(blocks[..., :1])
    if rest is not None:
        state["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(rest), torch.zeros_like(rest)
    return state


def _parts(a: Tensor, count: int) -> tuple[Any, Any]:
    """The blocks (count, rows, columns) that a parameter or its gradient begins with, and the rest; None for none."""
    if not count:
        return None, a
    first = len(a) // count * count
    return a[:first].view(count, first // count, -1), a[first:] if len(a) > first else None


def _wide(blocks: Tensor) -> Tensor:
    """(N, rows, columns) with rows <= columns: the same matrices, transposed where they are tall."""
    return blocks.mT if blocks.shape[1] > blocks.shape[2] else blocks


# Coefficients a, b, c of the steps x -> a x + b x^3 + c x^5 on singular values: the odd polynomials of fifth degree
# that deviate least from 1 where the step before them left the singular values, beginning with 0.02 to 1: these come
# into 0.91 to 1.09. The five steps of Jordan et al. (2024) take longer and learn no better.
_STEPS = ((7.7110, -22.1138, 16.2487), (3.2153, -2.4112, 0.5013), (2.2183, -1.5940, 0.4107))


def orthogonalised(matrices: Tensor) -> Tensor:
    """(N, rows, columns), rows <= columns: each matrix with its larger singular values near 1, in a new tensor.

    By the Newton-Schulz iteration, in bfloat16 on a GPU and on a CPU with AMX.
    """
    x = matrices / torch.linalg.matrix_norm(matrices, keepdim=True).clamp(min=1e-12)
    if x.is_cuda or (x.dtype == torch.float32 and torch.cpu._is_amx_tile_supported()):
        x = x.to(torch.bfloat16)
    for a, b, c in _STEPS:
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.to(matrices.dtype)
