"""Pen strokes: their arrays, their scale, files of one's own, and how a corpus is split."""

from __future__ import annotations

import codecs
import dataclasses
import gzip
import io
import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from lines import line, npz, some, steps

from hmrnn import InputError
from hmrnn.kinds.strokes.corpus import _random_parts, load_strokes
from hmrnn.kinds.strokes.files import read_strokes, save_archive, save_strokes
from hmrnn.kinds.strokes.settings import StrokeData
from hmrnn.kinds.strokes.strokes import Scale, StrokeCorpus, Strokes, coordinates, polylines
from refusals import refused


def test_sequences() -> None:
    first, second = steps(line(5, 1)), steps(line(3, 2))
    strokes = Strokes.of([first, second], names=["a", "b"], texts=["ay", "be"])
    assert (len(strokes), strokes.lengths.tolist(), strokes.offsets.tolist()) == (2, [5, 3], [0, 5, 8])
    assert strokes.steps.dtype == np.float32
    np.testing.assert_array_equal(strokes[0], first)
    np.testing.assert_array_equal(strokes[-1], second)
    assert [len(s) for s in strokes] == [5, 3]
    for which, k in ((None, 0), ("1", 0), ("2", 1), ("b", 1)):
        np.testing.assert_array_equal(strokes.line(which)[0], strokes[k])
    with pytest.raises(IndexError):
        strokes[2]
    for which in ("c", "3", "0", ""):
        with refused():
            strokes.line(which)


def test_coordinates_and_polylines() -> None:
    drawn = [[(10, 20), (13, 24)], [(0, 0)], [(5, 5), (6, 5), (7, 5)]]
    strokes = Strokes.of([steps(drawn)])
    np.testing.assert_array_equal(coordinates(strokes[0]) + (10, 20), [p for stroke in drawn for p in stroke])
    assert [(piece + (10, 20)).tolist() for piece in polylines(strokes[0])] == [[list(p) for p in s] for s in drawn]


def test_first_step_and_last_pen_are_what_they_must_be() -> None:
    strokes = Strokes.of([[(9, 9, 0), (1, 2, 0), (3, 4, 0)]])
    assert strokes[0].tolist() == [[0, 0, 0], [1, 2, 0], [3, 4, 1]]


def test_select() -> None:
    strokes = some(6)
    chosen = strokes.select([4, 0, 4])
    assert chosen.names == ("5", "1", "5")
    for i, k in enumerate([4, 0, 4]):
        np.testing.assert_array_equal(chosen[i], strokes[k])
    assert len(strokes.select([])) == 0


def test_checksum_tells_sets_apart() -> None:
    strokes = some(4)
    changed = strokes.steps.copy()
    changed[3, 0] += 1
    sets = [strokes, strokes.select([1, 0, 2, 3]), some(5), dataclasses.replace(strokes, steps=changed)]
    assert len({one.checksum for one in sets}) == 4
    assert some(4).checksum == strokes.checksum


def test_scale_leaves_out_first_steps() -> None:
    strokes = some(10, shortest=5)
    moves = np.concatenate([s[1:, :2] for s in strokes]).astype(np.float64)
    scale = Scale.of(strokes)
    np.testing.assert_allclose([scale.mean, scale.deviation], [moves.mean(0), moves.std(0)])
    scaled = np.concatenate([scale.encode(s)[1:] for s in strokes])
    np.testing.assert_allclose(scaled[:, :2].mean(0, dtype=np.float64), 0, atol=1e-6)
    np.testing.assert_allclose(scaled[:, :2].std(0, dtype=np.float64), 1, atol=1e-6)
    assert set(scaled[:, 2].tolist()) == {0, 1}
    np.testing.assert_allclose(scale.decode(scale.encode(strokes.steps)), strokes.steps, atol=1e-5)
    assert scale.encode(strokes[0]).dtype == np.float32


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -3e15])
def test_scale_refuses_what_no_model_can_read(value: float) -> None:
    steps = np.zeros((4, 3))
    steps[2, 1] = value
    with refused():
        Scale((0.0, 0.0), (1.0, 2.0)).encode(steps)


def test_scale_as_json() -> None:
    scale = Scale.of(some(3))
    assert Scale.from_dict(json.loads(json.dumps(scale.to_dict()))) == scale


@pytest.mark.parametrize("damage", [
    None, {}, {"mean": [0, 0]}, {"mean": [0, 0], "deviation": [1, 0]}, {"mean": [0, 0], "deviation": [1]},
    {"mean": [0, "x"], "deviation": [1, 1]}, {"mean": [0, 0], "deviation": [1, float("nan")]},
    {"mean": [0, 0], "deviation": [1, 1], "more": 1}, {"mean": [0, 0], "deviation": [1, True]},
])  # fmt: skip
def test_damaged_scale(damage: object) -> None:
    with refused():
        Scale.from_dict(damage)


def test_writing_needs_two_dimensions() -> None:
    with refused():
        Scale.of(Strokes.of([[(0, 0, 0), (1, 0, 0), (3, 0, 1)]]))


@pytest.mark.parametrize("name", ["s.npz", "s.json", "s.csv"])
def test_written_and_read_back(tmp_path: Path, name: str) -> None:
    strokes = Strokes.of([steps(line(30, 1)), [(0, 0, 1)], steps(line(7, 2))], ["one", "a, “b”", "3"])
    save_strokes(strokes, tmp_path / name)
    again = read_strokes(tmp_path / name)
    assert again.names == strokes.names
    np.testing.assert_array_equal(again.offsets, strokes.offsets)
    np.testing.assert_array_equal(again.steps, strokes.steps)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["s.npz", "s.json"])
def test_texts_are_kept(tmp_path: Path, name: str) -> None:
    save_strokes(Strokes.of([steps(line(4))] * 2, texts=["é", ""]), tmp_path / name)
    assert read_strokes(tmp_path / name).texts == ("é", "")


def test_other_endings_and_equal_names_are_refused(tmp_path: Path) -> None:
    with refused():
        save_strokes(some(1), tmp_path / "s.txt")
    with refused():
        save_strokes(Strokes.of([steps(line(4))] * 2, ["a", "a"]), tmp_path / "s.csv")
    assert list(tmp_path.iterdir()) == []


def test_packed_files(tmp_path: Path) -> None:
    save_strokes(some(3), tmp_path / "s.npz")
    save_strokes(some(3), tmp_path / "s.csv")
    (tmp_path / "t.npz.xz").write_bytes(lzma.compress((tmp_path / "s.npz").read_bytes()))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress((tmp_path / "s.csv").read_bytes()))
    (tmp_path / "t.json.csv").write_bytes((tmp_path / "s.csv").read_bytes())
    save_strokes(some(3), tmp_path / "s.json")
    (tmp_path / "t.json").write_bytes(codecs.BOM_UTF8 + (tmp_path / "s.json").read_bytes())
    for name in ("t.npz.xz", "t.csv.gz", "t.json.csv", "t.json"):
        np.testing.assert_array_equal(read_strokes(tmp_path / name).steps, some(3).steps)


def parts(corpus: StrokeCorpus) -> list[list[str]]:
    return [sorted(part.names) for part in (corpus.train, corpus.valid, corpus.test)]


def test_corpus_of_own_files(tmp_path: Path) -> None:
    save_strokes(some(40), tmp_path / "a.npz")
    save_strokes(Strokes.of([steps(line(9))] * 20, [f"b{k}" for k in range(20)]), tmp_path / "b.json")
    config = StrokeData(format="strokes", path=(str(tmp_path),), valid_fraction=0.1, test_fraction=0.2)
    told: list[tuple[int, int]] = []
    corpus = load_strokes(config, lambda done, of: told.append((done, of)))
    assert [len(part) for part in parts(corpus)] == [42, 6, 12]
    assert sorted(name for part in parts(corpus) for name in part) == sorted(
        [*map(str, range(1, 41)), *(f"b{k}" for k in range(20))]
    )
    assert corpus.spec == Scale.of(corpus.train)
    size = sum(path.stat().st_size for path in tmp_path.iterdir() if path.is_file())
    assert told[-1] == (size, size)
    assert corpus.name == tmp_path.name
    assert "60 lines" in corpus.describe()


def test_split_is_drawn_by_the_seed_alone(tmp_path: Path) -> None:
    names = [f"line {k}" for k in range(60)]
    forwards = Strokes.of([steps(line(4 + k % 5, k)) for k in range(60)], names)
    save_strokes(forwards, tmp_path / "a.npz")
    save_strokes(forwards.select(range(59, -1, -1)), tmp_path / "b.npz")
    config = StrokeData(format="strokes", path=(str(tmp_path / "a.npz"),))
    first = parts(load_strokes(config))
    assert parts(load_strokes(StrokeData(format="strokes", path=(str(tmp_path / "b.npz"),)))) == first
    other = parts(load_strokes(StrokeData(format="strokes", path=config.path, split_seed=2)))
    assert [len(p) for p in other] == [len(p) for p in first] == [54, 3, 3]
    assert other != first


def test_split_of_the_paper() -> None:
    """11,628 lines give 10,465, 581 and 582."""
    drawn = _random_parts(StrokeData(format="iamondb"), Strokes.of([[(0, 0, 1)]] * 11_628))
    assert [len(part) for part in drawn] == [10_465, 581, 582]
    assert sorted(np.concatenate(drawn).tolist()) == list(range(11_628))


def test_split_given_in_the_file(tmp_path: Path) -> None:
    split = ["train", "valid", "test", "train"]
    strokes = some(4)
    points = np.concatenate([coordinates(line) for line in strokes])
    path = npz(tmp_path / "s.npz", offsets=strokes.offsets, points=points, pen_up=strokes.steps[:, 2], split=split)
    assert parts(load_strokes(StrokeData(format="strokes", path=(path,)))) == [["1", "4"], ["2"], ["3"]]
    sequences = [{"strokes": line(4, k), "split": part} for k, part in enumerate(split)]
    (tmp_path / "s.json").write_text(json.dumps(sequences))
    given = load_strokes(StrokeData(format="strokes", path=(str(tmp_path / "s.json"),)))
    assert parts(given) == [["1", "4"], ["2"], ["3"]]


def test_skipped_files_of_joined_archives_are_kept(tmp_path: Path) -> None:
    reasons = tuple(f"{name}-01.xml: it is empty" for name in "ab")
    for why in reasons:
        save_archive(dataclasses.replace(some(3), skipped=(why,)), tmp_path / f"{why[0]}.npz")
    corpus = load_strokes(StrokeData(format="strokes", path=(str(tmp_path),)))
    assert corpus.train.skipped == reasons
    assert all(why in corpus.describe() for why in reasons)


def test_short_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    save_strokes(Strokes.of([steps(line(n, n)) for n in (*range(1, 60), 1)]), tmp_path / "s.npz")
    config = StrokeData(format="strokes", path=(str(tmp_path / "s.npz"),))
    corpus = load_strokes(config)
    assert (corpus.short, sum(map(len, parts(corpus)))) == (2, 58)
    longer = load_strokes(StrokeData(format="strokes", path=config.path, min_points=30))
    assert longer.short == 30
    assert min(part.lengths.min() for part in (longer.train, longer.valid, longer.test)) == 30
    with pytest.raises(InputError) as error:
        load_strokes(StrokeData(format="strokes", path=config.path, min_points=300))
    assert error.value.setting == "data.min_points"


def test_nothing_of_it_is_pickled(tmp_path: Path) -> None:
    save_strokes(some(3), tmp_path / "s.npz")
    with np.load(io.BytesIO((tmp_path / "s.npz").read_bytes()), allow_pickle=False) as arrays:
        assert sorted(arrays.files) == ["names", "offsets", "pen_up", "points"]
