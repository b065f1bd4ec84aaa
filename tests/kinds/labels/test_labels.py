"""Labelled sequences: what is accepted, how it is encoded, split and batched, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hmrnn.errors import InputError
from hmrnn.kinds.labels.answers.classes import Labels
from hmrnn.kinds.labels.answers.numbers import Numbers
from hmrnn.kinds.labels.batches import LabelBatches
from hmrnn.kinds.labels.corpus import make_corpus
from hmrnn.kinds.labels.encoder import LabelEncoder
from hmrnn.kinds.labels.load import load_labelled
from hmrnn.kinds.labels.sequences import sequences
from hmrnn.kinds.labels.settings import LabelData
from labelled import Table
from refusals import refused


def test_kinds_of_sequences() -> None:
    assert sequences(["ab", "c"]) == [("a", "b"), ("c",)]
    assert sequences([["the", "cat"], ("a",)]) == [("the", "cat"), ("a",)]
    for X in (np.ones((2, 3)), np.ones((2, 3, 1)), [np.ones(3)] * 2, [[1, 1, 1], [1.0, 1, 1]], torch.ones(2, 3)):
        found = sequences(X)
        assert [one.shape for one in found] == [(3, 1), (3, 1)], type(X)
    assert [one.shape for one in sequences([np.ones((4, 2)), torch.ones(3, 2)])] == [(4, 2), (3, 2)]
    assert sequences(np.array(["ab", "c"], dtype=object)) == [("a", "b"), ("c",)]
    for steps in (torch.ones(3, 2, requires_grad=True), torch.ones(3, 2, dtype=torch.bfloat16)):
        for X in ([steps, steps], [list(steps)]):
            assert {one.shape for one in sequences(X)} == {(3, 2)}
    texts = ["a" * 10**6, *["b"] * 10**5]  # an array of them would have 400 gigabytes
    assert sum(map(len, sequences(texts))) == 10**6 + 10**5


WRONG: list[tuple[Any, str]] = [
    ("text", "X"),
    (3, "X"),
    (np.ones(3), "X"),
    ([], "X"),
    ({"ab", "ba"}, "X"),
    (["a", ""], "X[1]"),
    ([["a", ""]], "X[0]"),
    ([np.ones((2, 1)), np.ones((0, 1))], "X[1]"),
    ([np.ones((2, 2)), np.ones((3, 1))], "X[1]"),
    ([[[1, 2], [3]]], "X[0]"),
    ([[1.0, 2.0], [1.0, None, 3.0]], "X[1]"),
    ([[[1, 2], [3, None]]], "X[0]"),
    ([np.array([1.0, np.nan])], "X[0][1]"),
    ([np.array([1e200])], "X[0]"),
    (["a", np.ones(3)], "X[1]"),
    (["ab", ["a", "b"]], "X[1]"),
    ([np.ma.masked_array([1.0, 2.0], mask=[False, True])] * 2, "X[0][1]"),
    (np.ma.masked_array([[1.0, 2.0]], mask=[[False, True]]), "X[0][1]"),
    ([None], "X[0]"),
    ([1.0, 2.0], "X[0]"),
    (["a", "b\ud83d"], "X[1]"),
    ([["a"], ["b\ud83d"]], "X[1]"),
    (np.ones((2, 3), complex), "X[0]"),
    (torch.ones(2, 3).to_sparse(), "X"),
    (Table(["x", "machine"], np.array([[1.0, "a"], [2.0, "a"]], object)), "X"),
]


@pytest.mark.parametrize(("X", "named"), WRONG)
def test_wrong_sequences_are_named(X: Any, named: str) -> None:
    with refused(named):
        sequences(X)


TWO = ["ab", "ba", "aa", "bb"]
CLASSES = [0, 1, 0, 1]
NAN = float("nan")
BAD: list[tuple[str, Any, Any, dict[str, Any], str]] = [
    ("labels", TWO, ["x", "y"], {}, "y"),
    ("labels", TWO, ["x"] * 4, {}, "y"),
    ("labels", TWO, ["x", 1, "x", 1], {}, "y"),
    ("labels", TWO, ["x", "y", "x", None], {}, "y[3]"),
    ("labels", TWO, [1.0, NAN, 2.0, 1.0], {}, "y[1]"),
    ("labels", TWO, [0.5, 1.25, 2.0, 3.0], {"valid_fraction": 0}, "y"),
    ("labels", TWO, "xyxy", {}, "y"),
    ("labels", TWO, ["x", "y", "x", "\udc00"], {}, "y[3]"),
    ("labels", TWO, CLASSES, {"sample_weight": [1, 1]}, "sample_weight"),
    ("labels", TWO, CLASSES, {"sample_weight": ["a"] * 4}, "sample_weight"),
    ("labels", TWO, CLASSES, {"sample_weight": [1, -1, 1, 1]}, "sample_weight"),
    ("labels", TWO, CLASSES, {"sample_weight": [1, 1, 1e-40, 1]}, "sample_weight"),
    ("labels", TWO, CLASSES, {"class_weight": {2: 1.0}}, "class_weight"),
    ("labels", TWO, CLASSES, {"class_weight": "even"}, "class_weight"),
    ("labels", TWO, CLASSES, {"class_weight": {0: "a"}}, "class_weight"),
    ("labels", TWO, CLASSES, {"class_weight": {0: 1e20}}, "class_weight"),
    ("labels", TWO, {0: "x", 1: "y", 2: "x", 3: "y"}, {}, "y"),
    ("labels", TWO, Table(["a", "b"], np.ones((4, 2))), {}, "y"),
    ("labels", ["a", "b"], [0, 1], {}, "data.valid_fraction"),
    ("tags", TWO, [["x", "y"]] * 4, {"spelled": True}, "X[0]"),
    ("tags", ["ab"], [["x", "y"]], {}, "data.valid_fraction"),
    ("tags", TWO, [["x", "y"]] * 3 + [["x"]], {}, "y[3]"),
    ("tags", ["ab", "b"], [["A", None], ["B"]], {}, "y[0][1]"),
    ("tags", TWO, [["x", "x"]] * 4, {}, "y"),
    ("pairs", TWO, ["A", ["B"], "C", "D"], {}, "y[1]"),
    ("pairs", ["ab"] * 4, TWO, {}, "data.valid_fraction"),
    ("pairs", TWO, ["AB", "BA", "AA", ""], {}, "y[3]"),
    ("pairs", TWO, [np.ones(3)] * 4, {}, "y[0]"),
    ("numbers", TWO, [1, 2], {}, "y"),
    ("numbers", TWO, [1, 2, "3", 4], {}, "y"),
    ("numbers", TWO, [1, 10**400, 3, 4], {}, "y"),
    ("numbers", TWO, [1.0, 2.0, NAN, 4.0], {}, "y[2]"),
    ("numbers", TWO, np.array([[1, 2], [3, 1e200], [5, 6], [7, 8]]), {}, "y[1]"),
    ("numbers", TWO, [[1, 2], [3, "x"], [5, 6], [7, 8]], {}, "y[1]"),
    ("numbers", TWO, [[1, 2], [3, np.inf], [5, 6], [7, 8]], {}, "y[1][1]"),
    ("numbers", TWO, np.ones((4, 0)), {}, "y"),
    ("numbers", TWO, np.ones((4, 3, 1)), {}, "y"),
    ("numbers", TWO, "1234", {}, "y"),
    ("numbers", TWO, Table(["a", "b"], [[1, "x"]] * 4), {}, "y"),
    ("numbers", TWO, [1, 2, 3, 4], {"valid_fraction": 0.99}, "data.valid_fraction"),
    ("numbers", TWO, [1, 2, 3, 1e40], {"seed": 0, "valid_fraction": 0.25}, ""),
]


@pytest.mark.parametrize(("kind", "X", "y", "how", "named"), BAD)
def test_wrong_answers_are_named(kind: Any, X: Any, y: Any, how: dict[str, Any], named: str) -> None:
    with refused(named):
        make_corpus(kind, X, y, **how)


def test_numbers_may_be_of_any_type() -> None:
    found = make_corpus("numbers", TWO, [Fraction(1, 2), Decimal(2), 2**70, True], valid_fraction=0).spec.answer
    assert isinstance(found, Numbers)
    assert found.mean == ((0.5 + 2 + 2**70 + 1) / 4,)


def test_every_class_is_held_out_by_its_share() -> None:
    X = [f"{k:03d}" for k in range(60)]
    y = ["a"] * 40 + ["b"] * 19 + ["c"]
    corpus = make_corpus("labels", X, y, valid_fraction=0.2, seed=3)
    counts = [np.bincount([int(one[0]) for one in part.targets], minlength=3) for part in (corpus.train, corpus.valid)]
    assert [one.tolist() for one in counts] == [[32, 15, 1], [8, 4, 0]]
    assert set(corpus.train.sequences).isdisjoint(corpus.valid.sequences)
    again = make_corpus("labels", X, y, valid_fraction=0.2, seed=3)
    assert again.valid.sequences == corpus.valid.sequences
    assert make_corpus("labels", X, y, valid_fraction=0.2, seed=4).valid.sequences != corpus.valid.sequences


def test_no_first_sequence_of_pairs_is_in_both_parts() -> None:
    X = [f"{k % 7}" for k in range(21)]
    corpus = make_corpus("pairs", X, ["AB"] * 21, valid_fraction=0.3)
    assert len(corpus.valid) == 6
    assert set(corpus.train.sequences).isdisjoint(corpus.valid.sequences)
    assert corpus.train.targets[0].tolist() == [0, 1, 2]  # the end comes last


def test_weights_of_classes_and_samples_multiply() -> None:
    y = [0] * 6 + [1] * 2
    how: Any = {"valid_fraction": 0.0, "sample_weight": np.arange(1.0, 9.0)}
    corpus = make_corpus("labels", list("abcdefgh"), y, class_weight={1: 3.0}, **how)
    assert corpus.train.weights.tolist() == [1, 2, 3, 4, 5, 6, 21, 24]
    balanced = make_corpus("labels", list("abcdefgh"), y, class_weight="balanced", **how)
    np.testing.assert_allclose(balanced.train.weights, [k * 8 / 12 for k in range(1, 7)] + [14, 16])


def test_tokens_are_spelled_and_tags_are_read_at_their_spaces() -> None:
    corpus = make_corpus("tags", [["a", "cat"], ["the"]], [["D", "N"], ["D"]], valid_fraction=0.0)
    reads = corpus.spec
    assert reads.spelled
    assert "".join(reads.decode(corpus.train.inputs[0])) == "a cat "
    assert corpus.train.places[0].tolist() == [1, 5]
    assert reads.decode(reads.encode(("dot",))) == ["\N{REPLACEMENT CHARACTER}"] * 2 + ["t", " "]
    plain = make_corpus("tags", ["ab", "b"], [[0, 1], [1]], valid_fraction=0.0)
    assert not plain.spec.spelled
    assert plain.train.places[0].tolist() == [0, 1]


def test_series_are_scaled_per_channel_and_a_constant_channel_stays_finite() -> None:
    X = [np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([[5.0, 5.0]])]
    reads = make_corpus("labels", X * 2, [0, 1] * 2, valid_fraction=0.0).spec
    encoded = np.concatenate([reads.encode(one) for one in X])
    np.testing.assert_allclose(encoded[:, 0], [-np.sqrt(1.5), 0, np.sqrt(1.5)], rtol=1e-6)
    assert (encoded[:, 1] == 0).all()
    for wrong in (np.ones((4, 3)), np.ones((2, 1)), ("a",), np.array([[1e20, 5.0]])):
        with pytest.raises(InputError):
            reads.encode(wrong)


def test_an_encoder_survives_json_and_damage_is_refused() -> None:
    reads = make_corpus("labels", list("abca"), [True, False, True, False], valid_fraction=0.0).spec
    data = reads.to_dict()
    assert LabelEncoder.from_dict(data) == reads
    for change in (
        {"answer": {"kind": "labels", "classes": [1, 1]}},
        {"answer": {"kind": "labels", "classes": []}},
        {"answer": {"kind": "other"}},
        {"symbols": ["b", "a"]},
        {"symbols": []},
        {"mean": [1.0]},
        {"mean": [1.0], "symbols": [], "deviation": [0.0]},
        {"more": 1},
    ):
        with pytest.raises(InputError):
            LabelEncoder.from_dict({**data, **change})


def test_numbers_are_scaled_by_the_training_part_and_survive_json() -> None:
    y = np.array([[1.0, 7.0], [3.0, 7.0], [5.0, 7.0], [100.0, 7.0]])
    for seed in range(9):
        corpus = make_corpus("numbers", ["a", "b", "c", "d"], Table(["u", "v"], y), valid_fraction=0.25, seed=seed)
        if corpus.valid.sequences == [("d",)]:
            break
    reads = corpus.spec
    answer = reads.answer
    assert isinstance(answer, Numbers)
    assert (answer.mean, answer.rows) == ((3.0, 7.0), True)
    np.testing.assert_allclose(answer.deviation, (np.sqrt(8 / 3), 1.0))  # a constant has 1
    np.testing.assert_allclose(answer.decode(np.concatenate(corpus.train.targets)), y[:3])
    assert corpus.valid.targets[0].shape == (1, 2)
    assert LabelBatches(corpus.train, 3).batch(0, 0).targets.shape == (1, 3, 2)
    data = reads.to_dict()
    assert LabelEncoder.from_dict(data) == reads
    steps = make_corpus("numbers", ["ab", "a"], [[1, 2], [3]], valid_fraction=0).spec.answer
    assert (answer.per_step, steps.per_step) == (False, True)
    worse = ({"deviation": [1.0]}, {"deviation": [1.0, 0.0]}, {"mean": [1.0, float("nan")]}, {"rows": False})
    for change in worse:
        with pytest.raises(InputError):
            LabelEncoder.from_dict({**data, "answer": {**data["answer"], **change}})


class WithGap(Table):
    """A missing integer, of which the column makes NaN and the whole table an object that is no number."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if dtype is not None:
            raise TypeError("float() argument must be a string or a real number, not 'NAType'")
        return self.rows.astype(object)


def test_channels_of_tables_are_taken_by_their_names(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tables = [Table(["a", "b"], rng.normal(size=(5, 2)) + (0, 10)) for _ in range(4)]
    mixed = [table[["b", "a"]] if k == 2 else table for k, table in enumerate(tables)]
    reads, also = (make_corpus("labels", X, [0, 1] * 2, valid_fraction=0.0).spec for X in (tables, mixed))
    assert reads == also
    assert reads.channels == ("a", "b")
    found = sequences([tables[0][["b", "a"]], tables[0].rows], channels=reads.channels)
    assert all((one == tables[0].rows).all() for one in found)  # an array has no names
    with refused("X[1]"):
        sequences([tables[0], Table(["a", "c"], tables[0].rows)], channels=reads.channels)
    wider = Table(["b", "number", "a"], tables[0].rows[:, [1, 0, 0]])
    assert (sequences([wider], channels=reads.channels)[0] == tables[0].rows).all()
    with pytest.raises(InputError):
        LabelEncoder.from_dict({**reads.to_dict(), "channels": ["a", "a"]})
    rows = np.array([[1.5, True, "on"], [2.0, False, "off"]], object)
    table = Table(["x", "moves", "state"], rows)
    assert sequences([table[["x", "moves"]]])[0].tolist() == [[1.5, 1.0], [2.0, 0.0]]
    with refused("X[0]"):
        sequences([table])
    with refused("X[0]"):
        sequences([WithGap(["x", "count"], [[1.0, 2.0], [1.5, np.nan]])])
    numbered = [Table([0, 1], table.rows) for table in tables]
    assert make_corpus("labels", iter(numbered), [0, 1] * 2, valid_fraction=0.0).spec.channels == ()
    cells = "series,time,{},label\n" + "".join(f"{k},0,{{}},{k % 2}\n" for k in range(4))
    for name, order in (("one", "Temp,x"), ("other", "x,Temp")):
        numbers = [f"{k},9" if order == "Temp,x" else f"9,{k}" for k in range(4)]
        (tmp_path / f"{name}.csv").write_text(cells.format(order, *numbers))
    corpus = load_labelled(
        LabelData("labels", (str(tmp_path / "one.csv"), str(tmp_path / "other.csv")), valid_fraction=0)
    )
    assert corpus.spec.channels == ("Temp", "x")
    assert corpus.spec.mean == (1.5, 9.0)


def test_labels_may_be_a_column() -> None:
    X, labels = ["ab", "cd"] * 2, np.array([["u"], ["v"]] * 2)
    for y in (labels, Table(["label"], labels)):
        answer = make_corpus("labels", X, y, valid_fraction=0.0).spec.answer
        assert answer == Labels(("u", "v"))


def test_batches_hold_every_sequence_once_and_padding_rows_weigh_nothing() -> None:
    X = ["ab" * k for k in range(1, 12)]
    corpus = make_corpus("labels", X, [0, 1] * 5 + [0], valid_fraction=0.0)
    batches = LabelBatches(corpus.train, 4, seed=1, multiple=4)
    lengths = []
    for k in range(len(batches)):
        batch = batches.batch(5, k)
        assert batch.inputs.shape == (batch.lengths.max(), 4)
        lengths += batch.lengths[batch.weights > 0].tolist()
        assert (batch.lengths[batch.weights == 0] == 1).all()
    assert sorted(lengths) == [2 * k for k in range(1, 12)]
    same = LabelBatches(corpus.train, 4, seed=1, multiple=4).batch(5, 1)
    assert all((a == b).all() for a, b in zip(same, batches.batch(5, 1)))


def test_symbols_are_now_and_then_read_as_unknown() -> None:
    corpus = make_corpus("labels", ["ab" * 50] * 4, [0, 1] * 2, valid_fraction=0.0)
    batches = LabelBatches(corpus.train, 4, seed=1, unknown=np.array([0.0, 0.5, 0.0]))
    inputs = batches.batch(0, 0).inputs
    a, b, other = (np.count_nonzero(inputs == k) for k in range(3))
    assert a == 200
    assert b + other == 200
    assert 60 < other < 140
