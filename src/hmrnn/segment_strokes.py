"""A network and a line of handwriting -> Segmentation, and how its segment ends agree with where the pen was lifted."""

from __future__ import annotations

import math

import numpy as np
import torch

from hmrnn import boundary_scores
from hmrnn.boundary_scores import BoundaryScores
from hmrnn.data.strokes import Scale
from hmrnn.errors import InputError
from hmrnn.models import HandwritingModel
from hmrnn.segment import Segmentation

POINT, LAST = "o", "^"
"""How a point is shown in a Segmentation: one with another after it in its stroke, and the last of a stroke."""


@torch.no_grad()
def segment_strokes(network: HandwritingModel, steps: np.ndarray, scale: Scale) -> Segmentation:
    """What the network found in a line (T, 3), read from the zero state.

    ``bits`` are -log2 of densities in normalised coordinates, and so may be negative.
    """
    if network.rnn.num_boundaries == 0:
        raise InputError(f"a {type(network.rnn).__name__} has no detectors and so finds no segments; use an HM-LSTM")
    points = torch.from_numpy(scale.apply(steps)).to(network.density.weight)[:, None]  # (T, 1, 3)
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        mixture, out, _ = network(points)
    finally:
        for module, training in modes.items():
            module.training = training
    log_density = mixture.log_density(points.roll(-1, dims=0))[:-1, 0]  # of each point but the first
    bits = torch.cat([log_density.new_full((1,), math.nan), -log_density / math.log(2)])
    norms = torch.stack([h[:, 0].float().norm(dim=-1) for h in out.hidden], dim=1)  # (T, L)
    found = (out.boundaries[:, 0] > 0.5, out.probabilities[:, 0].float(), out.operations[:, 0], norms, bits)
    return Segmentation(tuple(LAST if up else POINT for up in steps[:, 2] > 0.5), *(a.cpu().numpy() for a in found))


def pen_ups(steps: np.ndarray) -> np.ndarray:
    """Where strokes end in a line (T, 3), as ``Segmentation.ends`` counts: points before the cut."""
    return boundary_scores.ends_of(steps[:, 2] > 0.5)


def against_pen_ups(segmentation: Segmentation, steps: np.ndarray) -> dict[int, dict[int, BoundaryScores]]:
    """For each level, for each tolerance in points, how its segment ends agree with the ends of strokes."""
    return {
        level: {
            tolerance: boundary_scores.score(
                segmentation.ends(level), pen_ups(steps), len(segmentation), tolerance=tolerance
            )
            for tolerance in boundary_scores.TOLERANCES
        }
        for level in range(1, segmentation.levels + 1)
    }
