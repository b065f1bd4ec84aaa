"""A soft window over the letters of a text, which moves on as they are written (Graves, 2013, section 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hmrnn import ops
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.mixture import POINT_SIZE
from hmrnn.ops.estimators import straight_through
from hmrnn.ops.native import engine
from hmrnn.ops.native import window as native


class Place(NamedTuple):
    """Where in their texts B lines are."""

    h: Tensor
    """(B, size): the LSTM that moves the window."""
    read: Tensor
    """(B, width): what the window shows."""
    c: Tensor
    """(B, size)"""
    at: Tensor
    """(B, components): the letter at which each component stands, counted from 0."""


class Window(nn.Module):
    r"""An LSTM that reads the pen and the window, and moves the window on.

    .. math::
        \phi(t, u) = \sum_k \alpha_k \exp(-\beta_k (\kappa_k - u)^2) \qquad
        \kappa_k(t) = \kappa_k(t-1) + z_t \exp \hat\kappa_k \qquad w_t = \sum_u \phi(t, u) \, e_u

    e is the embedding of a letter, and z is 1 or, with ``detects``, the binary state of a detector: the window then
    stands still until the detector fires. Before training, a letter takes ``points``.
    """

    def __init__(self, letters: int, size: int, width: int, components: int, points: float, detects: bool) -> None:
        super().__init__()
        self.components, self.detects = components, detects
        self.letters = nn.Embedding(letters + 1, width, padding_idx=0)
        self.cell = nn.LSTMCell(POINT_SIZE + width, size)
        self.moves = nn.Linear(size, 3 * components + detects)
        with torch.no_grad():
            self.moves.weight.mul_(0.1)
            alpha, beta, step = self.moves.bias[: 3 * components].chunk(3)
            alpha.fill_(-math.log(components))
            beta.zero_()
            step.fill_(-math.log(points) + math.log(2) * detects)  # a detector fires about half of the time at first

    @property
    def sizes(self) -> tuple[int, int]:
        """Of h, and of what the window shows."""
        return self.cell.hidden_size, self.letters.embedding_dim

    def gate_blocks(self) -> list[tuple[Tensor, int]]:
        """The matrices of the LSTM, and the blocks of rows in each, one per gate."""
        return [(self.cell.weight_hh, 4), (self.cell.weight_ih, 4)]

    def start(self, B: int) -> Place:
        """Before the first point: at the first letter."""
        like = self.moves.weight
        size, width = self.sizes
        return Place(*(like.new_zeros(B, n) for n in (size, width, size, self.components)))

    def past(self, place: Place, text: Tensor) -> Tensor:
        """(B,): by how many letters the strongest component has left the last letter of ``text`` (B, U) behind."""
        strongest = self.moves(place.h)[:, : self.components].argmax(1, keepdim=True)
        return place.at.gather(1, strongest)[:, 0] - (text > 0).sum(1) + 1

    def forward(self, x: Tensor, text: Tensor, place: Place) -> tuple[Tensor, Tensor, Tensor, Place]:
        """Points (T, B, 3) of lines that say ``text`` (B, U), indices of letters from 1, with zeros after the last.

        Returns h (T, B, size), what the window shows (T, B, width), its weights (T, B, U) and the place after.
        """
        x = x.to(self.moves.weight.dtype)
        if torch.compiler.is_compiling() or ops.why_plain_torch() is not None or not engine.takes(x):
            with torch.autocast(x.device.type, enabled=False):
                h, read, shown, c, at = self._read(x, self.letters(text), place)
        else:
            h, read, shown, c, at = native.follow(*self.given(x, text), *place)
        return h, read, shown, Place(h[-1], read[-1], c[-1], at[-1])

    def given(self, x: Tensor, text: Tensor) -> tuple[Tensor, ...]:
        """What the native library needs beside the place."""
        cell, moves = self.cell, self.moves
        weight, bias = torch.cat([cell.weight_ih, cell.weight_hh], dim=1), cell.bias_ih + cell.bias_hh
        return x, self.letters(text), weight, bias, moves.weight, moves.bias

    def _read(self, x: Tensor, letters: Tensor, place: Place) -> tuple[Tensor, ...]:
        """As :func:`hmrnn.ops.native.window.follow`, in plain PyTorch."""
        K, u = self.components, torch.arange(letters.shape[1], device=x.device, dtype=x.dtype)
        h, read, c, at = place
        found = []
        for point in x:
            h, c = self.cell(torch.cat([point, read], dim=1), (h, c))
            said = self.moves(h)
            alpha, beta, step = said[:, : 3 * K].clamp(max=10).exp().chunk(3, dim=1)
            if self.detects:
                likely = said[:, -1:].sigmoid()
                step = step * straight_through(likely, (likely > 0.5).to(likely))
            at = at + step
            shown = (alpha[..., None] * torch.exp(-beta[..., None] * (at[..., None] - u).square())).sum(1)  # (B, U)
            read = torch.bmm(shown[:, None], letters)[:, 0]
            found.append((h, read, shown, c, at))
        return tuple(map(torch.stack, zip(*found)))


def alphabet_of(texts: Sequence[str]) -> tuple[str, ...]:
    """The symbols of texts, in order."""
    return tuple(sorted(set("".join(texts))))


def encode_texts(texts: Sequence[str], alphabet: Sequence[str], *, replace: bool = False) -> np.ndarray:
    """(n, U) int64: indices of letters from 1; zeros after the last of a text, and with ``replace`` for others."""
    places = {letter: k for k, letter in enumerate(alphabet, start=1)}
    unknown = [letter for text in texts for letter in text if letter not in places]
    if unknown and not replace:
        known = "".join(alphabet)
        raise InputError(f"the model has never seen {unknown[0]!r} written; it knows {known}")
    encoded = np.zeros((len(texts), max(map(len, texts)) // 16 * 16 + 16), np.int64)
    for row, text in zip(encoded, texts):
        row[: len(text)] = [places.get(letter, 0) for letter in text]
    return encoded
