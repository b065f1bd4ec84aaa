"""Output: the hidden states, boundaries and operations of a pass over a sequence."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from hmrnn.errors import InputError
from hmrnn.ops.interface import Operation as Operation
from hmrnn.ops.interface import readable, shapes


@dataclasses.dataclass(repr=False)
class Output:
    """The output of HMLSTM for a sequence; with ``batch_first`` T and B are swapped. ``repr`` shows its shapes."""

    batch_first: ClassVar[bool] = False
    """Whether T and B are swapped, which read-outs and ``Segmentation.of`` look at."""
    hidden: tuple[Tensor, ...] | tuple[PackedSequence, ...]
    """L tensors (T, B, H_l), the lowest layer first; zeros in the padding. Packed if the input was.

    Use all of them for an output, as :class:`hmrnn.nn.ReadOut` does: the top layer changes rarely, or never."""
    boundaries: Tensor
    """(T, B, L-1): z, zeros and ones (reals when "soft"); 1 if a segment of that level ends here."""
    probabilities: Tensor
    """(T, B, L-1): z̃, the outputs of the detectors before binarisation."""
    operations: Tensor
    """(T, B, L): the :class:`Operation` of each layer; COPY in the padding."""

    def __getitem__(self, index: object) -> NoReturn:
        raise InputError(
            "an Output is no tensor: out.hidden holds one per layer, the top layer's is out.hidden[-1]; "
            "hmrnn.nn.ReadOut makes one output of all of them"
        )

    def apply(self, function: Callable[..., Tensor], *others: Output, hidden: Any = None) -> Output:
        """The output of what ``function`` gives for each tensor and, after it, those of ``others`` in the same place.

        ``hidden``: what takes the place of h, if given.
        """
        outs = (self, *others)
        hidden = tuple(map(function, *(out.hidden for out in outs))) if hidden is None else tuple(hidden)
        return Output(hidden, *map(function, *((out.boundaries, out.probabilities, out.operations) for out in outs)))

    def time_first(self, lengths: Lengths = None) -> tuple[Output, Lengths]:
        """This output padded, with T before B, and its lengths: those of a packed one, else those given."""

        def turned(a: Any) -> Any:
            if isinstance(a, PackedSequence):
                return pad_packed_sequence(a)[0]
            return a.transpose(0, 1) if self.batch_first else a

        first = self.hidden[0]
        lengths = pad_packed_sequence(first)[1] if isinstance(first, PackedSequence) else lengths
        return self.apply(turned), lengths

    def __repr__(self) -> str:
        fields = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return f"Output({', '.join(f'{name}={shapes(value)}' for name, value in fields)})"


class BatchFirst(Output):
    """The output of a network with ``batch_first``: B before T in everything that it holds."""

    batch_first: ClassVar[bool] = True


for kind in (Output, BatchFirst):
    torch.export.register_dataclass(kind)  # so that it may be what an exported module returns


def possible(rnn: Any) -> tuple[Operation, ...]:
    """The operations that the layers of a network can do, padding aside; a network without detectors only updates."""
    if not rnn.num_boundaries:
        return (Operation.UPDATE,)
    return tuple(operation for operation in Operation if getattr(rnn.variant, operation.name.lower(), True))


def changes(out: Output, rnn: Any) -> Tensor:
    """(T, B, L): whether each layer was computed; with "soft" boundaries every layer is, at every step."""
    changed = out.operations != Operation.COPY
    return torch.ones_like(changed) if getattr(rnn, "boundary", "step") == "soft" else changed


Lengths = Tensor | Sequence[int] | None


def at_steps(a: Tensor, steps: Tensor) -> Tensor:
    """(S, B, ...): what ``a`` (T, B, ...) holds at ``steps`` (S, B) of each sequence."""
    return a.gather(0, steps.view(*steps.shape, *[1] * (a.dim() - 2)).expand(-1, -1, *a.shape[2:]))


def marked(marks: Tensor) -> tuple[Tensor, Tensor]:
    """(S, B): the steps of each sequence where ``marks`` (T, B) is True, zeros after the last one; (B,): their number.

    Where values cannot be read, as in a CUDA graph, S is T.
    """
    (T, B), counts = marks.shape, marks.sum(0)
    S = max(1, int(counts.max())) if readable(counts) else T
    steps = torch.arange(T, device=marks.device)[:, None].expand(T, B)
    place = torch.where(marks, marks.cumsum(0) - 1, T)  # those without a mark go to a row that is dropped
    return steps.new_zeros(T + 1, B).scatter(0, place, steps)[:S], counts


def pack_like(padded: Tensor, packed: PackedSequence) -> PackedSequence:
    """``padded`` (T, B, ...) as a PackedSequence with the lengths and the order of ``packed``."""
    _, lengths = pad_packed_sequence(packed)
    order = packed.sorted_indices
    if order is not None:
        padded, lengths = padded.index_select(1, order), lengths[order.cpu()]
    return packed._replace(data=pack_padded_sequence(padded, lengths).data)


def as_given(out: Output, batch_first: bool, packed: PackedSequence | None, alone: bool) -> Output:
    """The output (T, B, ...) of a pass in the form of its input: packed, (B, T, ...), or ``alone`` without B."""

    def formed(a: Any) -> Tensor:
        return a.squeeze(1) if alone else a.transpose(0, 1) if batch_first else a

    made = out.apply(formed, hidden=None if packed is None else [pack_like(h, packed) for h in out.hidden])  # type: ignore[arg-type]
    return BatchFirst(**vars(made)) if batch_first and not alone else made
