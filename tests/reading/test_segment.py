"""Segmentations of texts and strokes: those of the forward pass, alone and side by side."""

import itertools
import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hmrnn import Operation
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.config import DetectorConfig, ModelConfig
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.nn.predictor import multiply_adds
from hmrnn.reading.read import on_time, segment_many
from refusals import refused


def network(estimator: Any = "step", on_copy: Any = "evaluate", **options: object) -> LanguageModel:
    sizes = {"embedding_size": 6, "hidden_size": (12, 10, 8), "num_layers": 3, "output_size": 9}
    detectors = DetectorConfig(estimator=estimator, on_copy=on_copy)
    config = ModelConfig(**{**sizes, **options})  # type: ignore[arg-type]
    return LanguageModel(11, config, detectors=detectors)


def segment(model: LanguageModel, sequence: Any, symbols: Any, **how: int) -> Segmentation:
    return segment_many(model, [sequence], lambda _: symbols, **how)[0]


def indices(T: int = 60) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 11, T)


@pytest.mark.parametrize("chunk", [1, 7, 60, 512])
@pytest.mark.parametrize("on_copy", ["hold", "evaluate"])
def test_segment_is_the_forward_pass(chunk: int, on_copy: str) -> None:
    model = network(on_copy=on_copy)
    x = indices()
    symbols = [chr(97 + i) for i in x]
    result = segment(model, x, symbols, chunk=chunk)
    with torch.no_grad():
        (logits,), out, _ = model.eval()(torch.from_numpy(x)[:, None])
    assert result.symbols == tuple(symbols)
    assert set(result.operations.ravel()) == set(Operation)  # all three happen, so that the comparison says something
    np.testing.assert_array_equal(result.boundaries, out.boundaries[:, 0].numpy())
    np.testing.assert_array_equal(result.operations, out.operations[:, 0].numpy())
    np.testing.assert_allclose(result.probabilities, out.probabilities[:, 0].numpy(), atol=1e-6)
    norms = np.stack([np.linalg.norm(h[:, 0].numpy(), axis=-1) for h in out.hidden], axis=1)
    np.testing.assert_allclose(result.norms, norms, rtol=1e-5)
    bits = F.cross_entropy(logits[:-1, 0], torch.from_numpy(x[1:]), reduction="none") / math.log(2)
    assert result.bits is not None
    assert math.isnan(result.bits[0])
    np.testing.assert_allclose(result.bits[1:], bits.numpy(), rtol=1e-5)
    np.testing.assert_array_equal(result.products, multiply_adds(model, out)[:, 0].numpy())
    assert result.boundaries.dtype == result.operations.dtype == np.uint8
    if on_copy == "hold":
        assert not result.boundaries[result.operations[:, :-1] == Operation.COPY].any()


def test_segment_rounds_soft_boundaries() -> None:
    model = network(estimator="soft")
    result = segment(model, indices(), "x" * 60)
    np.testing.assert_array_equal(result.boundaries, result.probabilities > 0.5)
    assert 0 < result.boundaries.mean() < 1


def test_segment_of_one_symbol_and_of_one_layer() -> None:
    one = segment(network(), [3], "d")
    assert (one.ends(1), one.segments(2)) == ([1], ["d"])
    flat_network = network(hidden_size=(5,), num_layers=1)
    assert segment(flat_network, indices(), "x" * 60).updates().saved == 0


def test_many_sequences_are_segmented_as_each_by_itself() -> None:
    """In float64, as side by side the sums are added up in another order."""
    model = network().double()
    sequences = [indices()[:length] for length in (9, 60, 1, 33, 9)]

    def pieces(x: np.ndarray) -> list[str]:
        return [chr(97 + i) for i in x]

    for batch, chunk in ((2, 7), (3, 512), (1, 512)):
        progress = mock.Mock()
        many = segment_many(model, sequences, pieces, batch=batch, chunk=chunk, progress=progress)
        for x, found in zip(sequences, many, strict=True):
            alone = segment(model, x, pieces(x))
            assert found.symbols == tuple(pieces(x))
            np.testing.assert_array_equal(found.boundaries, alone.boundaries)
            np.testing.assert_array_equal(found.operations, alone.operations)
            np.testing.assert_array_equal(found.products, alone.products)
            for name in ("probabilities", "norms", "bits"):
                np.testing.assert_allclose(getattr(found, name), getattr(alone, name), atol=1e-6)
        told = [call.args for call in progress.call_args_list]
        assert told == sorted(told)
        assert told[-1] == (112, 112)
    assert segment_many(model, [], pieces) == []


@pytest.mark.parametrize("cuts", [[], [1], [20, 21, 40]])
def test_a_late_detector_is_moved_back(cuts: list[int]) -> None:
    """Also across the parts of a sequence; what follows the last step is not known."""
    whole = segment(network(), indices(), "x" * 60)
    parts = [whole[a:b] for a, b in itertools.pairwise([0, *cuts, 60])]
    moved = Segmentation.join(on_time(parts, 1))
    for name in ("boundaries", "probabilities"):
        before, after = getattr(whole, name), getattr(moved, name)
        np.testing.assert_array_equal(after[:-1, 0], before[1:, 0])
        assert after[-1, 0] == before[-1, 0]
        np.testing.assert_array_equal(after[:, 1:], before[:, 1:])
    np.testing.assert_array_equal(moved.bits, whole.bits)
    assert list(on_time(parts, 0)) == parts


@pytest.mark.parametrize(
    ("wrong", "symbols"),
    [
        ([], ""),
        ([0.5], "a"),
        ([[1]], "a"),
        ([1, 2], "a"),
        ([1, 11], "ab"),
        ([-1, 2], "ab"),
    ],
)
def test_segment_says_what_is_wrong(wrong: list, symbols: str) -> None:
    with refused():
        segment(network(), wrong, symbols)
