"""Built-in handwriting: the same for a seed, of pen-like steps, with the texts it writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hmrnn.cli import main as cli
from hmrnn.kinds.strokes import synthetic
from hmrnn.kinds.strokes.corpus import load_strokes
from hmrnn.kinds.strokes.settings import StrokeData
from hmrnn.kinds.strokes.strokes import coordinates, polylines

LINES = synthetic.write_lines(120)


def test_the_same_for_a_seed() -> None:
    np.testing.assert_array_equal(synthetic.write_lines(120).steps, LINES.steps)
    np.testing.assert_array_equal(synthetic.write_lines(30).steps, LINES.select(range(30)).steps)
    assert len(synthetic.write_lines(120, seed=2).steps) != len(LINES.steps)


def test_texts() -> None:
    assert len(set(LINES.texts)) == 120
    assert all(2 <= len(text.split()) <= 4 for text in LINES.texts)


def test_steps_are_those_of_a_pen() -> None:
    steps = LINES.steps
    np.testing.assert_array_equal(steps, np.rint(steps))
    down = np.ones(len(steps), bool)
    down[LINES.offsets[:-1]] = False
    down[1:] &= steps[:-1, 2] == 0
    drawn = np.hypot(*steps[down, :2].T)
    assert 15 < np.median(drawn) < 60
    assert np.quantile(drawn, 0.99) < 120
    assert 100 < LINES.lengths.mean() < 400
    assert LINES.lengths.min() >= 2
    assert 5 < len(steps) / steps[:, 2].sum() < 30  # points per stroke


def test_lines_run_from_left_to_right() -> None:
    for i, text in enumerate(LINES.texts):
        x, y = coordinates(LINES[i]).T
        assert np.ptp(x) > 60 * len(text)
        assert np.ptp(x) > np.ptp(y)
        assert x[-1] > x[0]


def test_script_letters_are_joined() -> None:
    random = np.random.default_rng(0)
    points, ends, _ = synthetic._set("minimum minimum", "scripts", spacing=0.0, space=0.93)
    _, apart, _ = synthetic._set("minimum minimum", "rowmans", spacing=0.0, space=0.93)
    assert ends.sum() < apart.sum()
    assert ends[-1]
    assert len(points) == len(ends)
    sampled, pen_up, _ = synthetic._sample(points, ends, speed=1.5, random=random)
    assert pen_up.sum() == ends.sum()
    for piece, path in zip(
        np.split(sampled, np.flatnonzero(pen_up)[:-1] + 1), np.split(points, np.flatnonzero(ends)[:-1] + 1)
    ):
        np.testing.assert_allclose(piece[[0, -1]], path[[0, -1]], atol=1e-9)


def test_every_character_that_is_written_has_strokes() -> None:
    for font in synthetic.FONTS:
        glyphs = synthetic._glyphs(font)
        letters = set("".join(synthetic._WORDS.split())) | set("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789,.?!")
        assert all(len(glyphs[letter].points) for letter in letters), font


def test_corpus(cache: Path) -> None:
    told: list[tuple[int, int]] = []
    config = StrokeData(format="handwritten", lines=60)
    corpus = load_strokes(config, lambda done, of: told.append((done, of)))
    assert [len(corpus.train), len(corpus.valid), len(corpus.test)] == [54, 3, 3]
    assert told == [(60, 60)]
    again = load_strokes(config, lambda *_: pytest.fail("was written again"))
    np.testing.assert_array_equal(again.train.steps, corpus.train.steps)
    assert again.train.texts == corpus.train.texts
    assert len(list(cache.iterdir())) == 1
    first = corpus.train.names[0]
    np.testing.assert_array_equal(corpus.train[0], LINES[LINES.names.index(first)])
    assert all(len(piece) >= 2 for piece in polylines(corpus.train[0]))


def test_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "write_lines", lambda count, progress: LINES)
    assert cli.run(["data", "handwritten"]) == 0
    assert capsys.readouterr().out.startswith("handwritten: 120 lines of ")


def test_any_text_is_set_in_styles_and_its_letters_are_known(tmp_path: Path) -> None:
    data = StrokeData(format="fonts", lines=40, words=2, cache=str(tmp_path))
    corpus, again = load_strokes(data), load_strokes(data)  # from the cache
    assert corpus.conditions == again.conditions
    assert set(corpus.conditions) == set(synthetic.STYLES)
    assert {name.partition("-")[0] for name in corpus.train.names} == set(corpus.train.conditions)
    assert len(set("".join(corpus.train.texts))) > 40
    np.testing.assert_array_equal(corpus.train.steps, again.train.steps)
    assert max(len(text.split()) for text in corpus.train.texts) == 2
    for style in synthetic.STYLES:
        points, letters = synthetic.set_line("Hi, you", style, np.random.default_rng(0))
        assert points.shape == (len(letters), 3)
        assert np.unique(letters).tolist() == [0, 1, 2, 4, 5, 6]
        assert (np.diff(letters) >= 0).all()
        lifted = np.flatnonzero(points[:-1, 2])
        if style in ("print", "slanted"):  # every letter begins a stroke
            assert set(np.flatnonzero(np.diff(letters))) <= set(lifted)
