"""Output: the hidden states, boundaries and operations of a pass over a sequence."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from hmrnn.errors import InputError
from hmrnn.ops.interface import Operation as Operation
from hmrnn.ops.interface import shapes


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

    def time_first(self, lengths: Lengths = None) -> tuple[Output, Lengths]:
        """This output padded, with T before B, and its lengths: those of a packed one, else those given."""
        hidden: list[Tensor] = []
        for h in self.hidden:
            if isinstance(h, PackedSequence):
                h, lengths = pad_packed_sequence(h)
                hidden.append(h)
            else:
                hidden.append(h.transpose(0, 1) if self.batch_first else h)
        others = (self.boundaries, self.probabilities, self.operations)
        return Output(tuple(hidden), *(a.transpose(0, 1) if self.batch_first else a for a in others)), lengths

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


def unpack(x: Tensor | PackedSequence, lengths: Lengths, batch_first: bool) -> tuple[Tensor, Lengths]:
    """x padded, and its lengths: those of a PackedSequence, else those given."""
    if not isinstance(x, PackedSequence):
        return x, lengths
    if lengths is not None:
        raise InputError("lengths must be None when x is a PackedSequence, which has its own")
    return pad_packed_sequence(x, batch_first=batch_first)


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

    hidden: Any = tuple(formed(h) if packed is None else pack_like(h, packed) for h in out.hidden)  # type: ignore[arg-type]
    kind = BatchFirst if batch_first and not alone else Output
    return kind(hidden, *map(formed, (out.boundaries, out.probabilities, out.operations)))
