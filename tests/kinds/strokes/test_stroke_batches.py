"""Batches of pen strokes: every line once, exactly its points, few shapes, all fixed by the seed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lines import some

from hmrnn.kinds.strokes.batches import StrokeBatches
from hmrnn.kinds.strokes.settings import StrokeModelConfig
from hmrnn.kinds.strokes.strokes import Scale, Strokes
from hmrnn.reading.batches import padded_length
from refusals import refused

LINES = some(103)
MODEL = StrokeModelConfig()
SCALE = Scale.of(LINES)


def rows(batches: StrokeBatches, epoch: int) -> list[list[int]]:
    return [batches.batch(epoch, k).rows.tolist() for k in range(len(batches))]


@pytest.mark.parametrize("seed", [None, 3])
def test_every_line_once_with_exactly_its_points(seed: int | None) -> None:
    batches = StrokeBatches(LINES, SCALE, 8, MODEL, seed=seed)
    assert len(batches) == 13
    seen = []
    for k in range(len(batches)):
        batch = batches.batch(5, k)
        T = batch.inputs.shape[0]
        assert batch.inputs.shape == batch.targets.shape == (T, 8, 3)
        assert batch.inputs.dtype == batch.targets.dtype == np.float32
        assert padded_length(int(batch.counted.max())) == T
        for b, i in enumerate(batch.rows.tolist()):
            n = int(batch.counted[b])
            assert not batch.inputs[n:, b].any()
            assert not batch.targets[n:, b].any()
            if i < 0:
                assert n == 0
                continue
            seen.append(i)
            scaled = SCALE.encode(LINES[i])
            np.testing.assert_array_equal(batch.inputs[:n, b], scaled[:-1])
            np.testing.assert_array_equal(batch.targets[:n, b], scaled[1:])
    assert sorted(seen) == list(range(103))


def test_halts_mark_the_last_point_of_each_line() -> None:
    plain, halting = (
        StrokeBatches(LINES, SCALE, 8, dataclasses.replace(MODEL, halt=halt)).batch(0, 12) for halt in (False, True)
    )
    np.testing.assert_array_equal(halting.targets[..., :3], plain.targets)
    assert halting.inputs.shape[-1] == 3
    assert halting.targets.dtype == np.float32
    for b, n in enumerate(plain.counted.tolist()):
        assert np.flatnonzero(halting.targets[:, b, 3]).tolist() == ([n - 1] if n else [])


def test_fixed_by_seed_and_epoch() -> None:
    first = rows(StrokeBatches(LINES, SCALE, 8, MODEL, seed=1), 0)
    one = StrokeBatches(LINES, SCALE, 8, MODEL, seed=1)
    assert rows(one, 4) != first
    assert rows(one, 0) == first
    assert rows(StrokeBatches(LINES, SCALE, 8, MODEL, seed=2), 0) != first
    fixed = StrokeBatches(LINES, SCALE, 8, MODEL)
    assert rows(fixed, 0) == rows(fixed, 1)
    ordered = [i for batch in rows(fixed, 0) for i in batch if i >= 0]
    assert np.diff(LINES.lengths[ordered]).min() >= 0


def test_similar_lengths_share_a_batch() -> None:
    lines = Strokes.of([np.ones((n, 3)) * (1, n, 1) for n in np.random.default_rng(0).integers(300, 2000, 640)])
    batches = StrokeBatches(lines, SCALE, 32, MODEL, seed=1)
    plan = [batches.batch(0, k) for k in range(len(batches))]
    used = sum(int(batch.counted.sum()) for batch in plan)
    paid = sum(batch.inputs.shape[0] * 32 for batch in plan)
    assert used == lines.lengths.sum() - len(lines)
    assert used / paid > 0.85
    lengths = [batch.inputs.shape[0] for batch in plan]
    assert lengths != sorted(lengths)  # they come in random order
    assert len(set(lengths)) < len(lengths)


@given(n=st.integers(1, 70), batch_size=st.integers(1, 33))
def test_no_batch_overflows_and_fillers_are_spread(n: int, batch_size: int) -> None:
    lines = LINES.select(range(n))
    batches = StrokeBatches(lines, SCALE, batch_size, MODEL, seed=1)
    assert sorted(i for batch in rows(batches, 0) for i in batch if i >= 0) == list(range(n))
    filled = [sum(i < 0 for i in batch) for batch in rows(batches, 0)]
    assert max(filled) - min(filled) <= 1
    assert max(filled) < batch_size


@given(st.integers(1, 5000))
def test_padded_lengths(n: int) -> None:
    padded = padded_length(n)
    assert n <= padded < n + max(16, n / 8 + 1)
    assert padded % 16 == 0
    assert padded_length(padded) == padded


def test_few_shapes() -> None:
    expected = [320, 352, 384, 416, 448, 480, 512, 576, 640, 704, 768, 832, 896, 960, 1024]
    assert sorted({padded_length(n) for n in range(299, 1025)}) == expected


def test_refused() -> None:
    with refused():
        StrokeBatches(LINES, SCALE, 0, MODEL)
    with refused():
        StrokeBatches(Strokes.of([[(0, 0, 0), (1, 1, 1)], [(0, 0, 1)]], ["tick", "dot"]), SCALE, 1, MODEL)
    with refused():
        StrokeBatches(LINES.select([]), SCALE, 1, MODEL)
    with refused():  # they have no conditions
        StrokeBatches(LINES, SCALE, 1, dataclasses.replace(MODEL, classes=("print", "script")))
