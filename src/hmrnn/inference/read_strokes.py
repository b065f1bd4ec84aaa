"""A network and lines of handwriting -> the Segmentation of each."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.data.strokes.strokes import Scale
from hmrnn.errors import InputError
from hmrnn.inference.read import by_length
from hmrnn.nn.models import HandwritingModel, evaluating

POINT, LAST = "o", "^"
"""How a point is shown in a Segmentation: one with another after it in its stroke, and the last of a stroke."""


def segment_strokes(
    network: HandwritingModel, lines: Sequence[np.ndarray], scale: Scale, batch: int
) -> list[Segmentation]:
    """What the network found in each line (T, 3), read from the zero state, ``batch`` of similar length side by side.

    ``bits`` are -log2 of densities in normalised coordinates, and so may be negative.
    """
    if network.rnn.num_boundaries == 0:
        raise InputError(f"a {type(network.rnn).__name__} has no detectors and so finds no segments; use an HM-LSTM")
    if batch < 1:
        raise InputError(f"batch must be at least 1; got {batch}")
    found: dict[int, Segmentation] = {}
    with evaluating(network), torch.no_grad():
        for places in by_length(lines, batch):
            group = [torch.from_numpy(scale.encode(lines[place])) for place in places]
            points = torch.nn.utils.rnn.pad_sequence(group).to(network.density.weight)  # (T, B, 3)
            mixture, out, _ = network(points)
            log_density = mixture.log_density(points.roll(-1, dims=0))  # of the point after each
            bits = torch.cat([torch.full_like(log_density[:1], math.nan), -log_density[:-1] / math.log(2)])
            norms = torch.stack([h.float().norm(dim=-1) for h in out.hidden], dim=2)  # (T, B, L)
            arrays = (out.boundaries > 0.5, out.probabilities.float(), out.operations, norms, bits)
            for b, place in enumerate(places):
                shown = tuple(LAST if up else POINT for up in lines[place][:, 2] > 0.5)
                # padding changes nothing before it
                found[place] = Segmentation(shown, *(a[: len(shown), b].cpu().numpy() for a in arrays))
    return [found[place] for place in range(len(lines))]
