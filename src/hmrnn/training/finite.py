"""Updates whose loss or gradient is not finite: counted on the device when they happen, reported later."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hmrnn.errors import InputError

IN_A_ROW = 100
"""Number of updates in a row that are not finite after which a run that skips them ends."""


class Diverged(InputError):
    """A run that ends because something is not finite; ``trouble`` says what, the message also what to do."""

    def __init__(self, trouble: str, advice: str) -> None:
        super().__init__(f"{trouble}; {advice}")
        self.trouble = trouble


class Watch:
    """Counts of updates since the last report, and loss and gradient norms of the first that was not finite.

    They are tensors on the device that keep their memory, so counting never waits for the device and can be captured.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.parameters = dict(model.named_parameters())
        self.counts = torch.zeros(4, dtype=torch.int64, device=device)
        """Counts of updates: all, skipped as not finite, number of the first skipped (from 1), skipped in a row now."""
        self.loss = torch.zeros((), device=device)
        self.norms = torch.zeros(len(self.parameters), device=device)

    @torch.no_grad()
    def note(self, loss: Tensor, world: int) -> tuple[Tensor, Tensor]:
        """Count an update after its backward pass; returns whether it is finite and the norm of the gradient, scalars.

        A norm that overflows is not finite even if every number of the gradient is: clipping would make it zero.
        """
        none = torch.zeros_like(self.loss)
        gradients = [none if p.grad is None else p.grad for p in self.parameters.values()]
        norms = torch.stack(torch._foreach_norm(gradients))
        norm = torch.linalg.vector_norm(norms)
        good = loss.isfinite() & norm.isfinite()
        if world > 1:  # the loss is that of this process alone
            agreed = good.to(torch.int32)
            dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
            good = agreed.bool()
        updates, bad, first, row = self.counts
        updates += 1
        begins = ~good & (bad == 0)
        first.copy_(torch.where(begins, updates, first))
        bad += ~good
        row.copy_((row + 1) * ~good)
        self.loss.copy_(torch.where(begins, loss, self.loss))
        self.norms.copy_(torch.where(begins, norms, self.norms))
        return good, norm

    def report(self) -> int:
        """The number of updates since the last report that were not finite; this waits for the device."""
        skipped = int(self.counts[1])
        self.counts[:3] = 0
        return skipped

    def from_the_start(self, step: int) -> bool:
        """Whether the run's first update, or every one so far, was not finite; ``step`` counts all updates."""
        updates, bad, first, row = self.counts.tolist()
        return row >= step or (bad > 0 and step - updates + first == 1)

    def trouble(self, step: int, skip: bool) -> str | None:
        """What was not finite and at which update, if that ends the run; ``step`` is the number of the last update."""
        updates, skipped, first, row = self.counts.tolist()
        if skipped == 0 or (skip and row < IN_A_ROW):
            return None
        names, norms = list(self.parameters), self.norms.tolist()
        bad = [name for name, norm in zip(names, norms) if not math.isfinite(norm)]
        what = (
            f"the gradient of {bad[0]}"
            if bad
            else f"the norm of the gradient, largest in {names[norms.index(max(norms))]},"
        )
        what = what if self.loss.isfinite() else "the loss"
        when = f"in any of {row} updates up to step {step}" if skip else f"at step {step - updates + first}"
        return f"{what} is not finite {when}"
