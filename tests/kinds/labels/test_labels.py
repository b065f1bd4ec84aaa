"""Labelled sequences: what is accepted, how it is encoded, split and batched, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hmrnn.config import DataConfig
from hmrnn.errors import InputError
from hmrnn.kinds.labels.batches import LabelBatches
from hmrnn.kinds.labels.corpus import make_corpus
from hmrnn.kinds.labels.labelling import Labelling
from hmrnn.kinds.labels.load import load_labelled
from hmrnn.kinds.labels.sequences import names_in, sequences
from labelled import Table


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
    ("text", "put it into a list"),
    (3, "must be a list of sequences"),
    (np.ones(3), "numbers of shape"),
    ([], "at least one sequence"),
    (["a", ""], r"X\[1\] is an empty text"),
    ([["a", ""]], "none of them empty"),
    ([np.ones((2, 1)), np.ones((0, 1))], r"X\[1\] is empty"),
    ([np.ones((2, 2)), np.ones((3, 1))], r"as many channels; X\[0\] has 2 and X\[1\] 1"),
    ([[[1, 2], [3]]], r"^X\[0\] must have as many channels at every step; got 1 and 2$"),
    ([[1.0, 2.0], [1.0, None, 3.0]], r"^X\[1\] must hold numbers alone; got None at step 2; fill gaps$"),
    ([[[1, 2], [3, None]]], r"^X\[0\] must hold numbers alone; got \[3, None\] at step 2; fill gaps$"),
    ([np.array([1.0, np.nan])], "finite numbers; got NaN or infinity at step 2; fill gaps"),
    ([np.array([1e200])], "at most 1e\\+100"),
    (["a", np.ones(3)], "of one kind"),
    (["ab", ["a", "b"]], r"of one kind; X\[0\] and X\[1\] are a text and tokens"),
    ({"ab", "ba"}, "must be a list of sequences .*; got set"),
    ([np.ma.masked_array([1.0, 2.0], mask=[False, True])] * 2, r"X\[0\] must hold finite numbers"),
    (np.ma.masked_array([[1.0, 2.0]], mask=[[False, True]]), r"X\[0\] must hold finite numbers"),
    ([None], r"X\[0\] must be one of"),
    ([1.0, 2.0], r"X\[0\] must be one of .*; got 1.0"),
    (["a", "b\ud83d"], r"X\[1\] holds '\\ud83d', half of a surrogate pair"),
    ([["a"], ["b\ud83d"]], r"X\[1\] holds '\\ud83d', half of a surrogate pair"),
]


@pytest.mark.parametrize(("X", "message"), WRONG, ids=[message[:24] for _, message in WRONG])
def test_wrong_sequences_are_named(X: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sequences(X)


TWO = ["ab", "ba", "aa", "bb"]
BAD: list[tuple[str, Any, Any, dict[str, Any], str]] = [
    ("labels", TWO, ["x", "y"], {}, "4 sequences and 2 labels"),
    ("labels", TWO, ["x"] * 4, {}, "one class, the label 'x'"),
    ("labels", TWO, ["x", "y", "x", None], {}, r"None as y\[3\]"),
    ("labels", TWO, ["x", 1, "x", 1], {}, "all strings or all numbers"),
    ("labels", TWO, [1.0, float("nan"), 2.0, 1.0], {}, "string or a finite number"),
    ("labels", TWO, [0.5, 1.25, 2.0, 3.0], {}, "must hold classes, and every number in it is another; .*HMRegressor$"),
    ("labels", TWO, "xyxy", {}, "y must be a list"),
    ("labels", TWO, ["x", "y", "x", "\udc00"], {}, r"y\[3\] holds '\\udc00', half of a surrogate pair"),
    ("tags", TWO, [["x", "y"]] * 4, {"spelled": True}, r"X\[0\] is a text, and this model reads lists of tokens"),
    ("labels", TWO, [0, 1, 0, 1], {"sample_weight": [1, 1]}, "sample_weight must hold 4"),
    ("labels", TWO, [0, 1, 0, 1], {"sample_weight": [1, -1, 1, 1]}, "none negative"),
    ("labels", TWO, [0, 1, 0, 1], {"class_weight": {2: 1.0}}, "class_weight holds 2"),
    ("labels", TWO, [0, 1, 0, 1], {"class_weight": "even"}, "class_weight must be None"),
    ("labels", TWO, [0, 1, 0, 1], {"class_weight": {0: "a"}}, "class_weight must be numbers; got 'a' for 0"),
    ("labels", TWO, [0, 1, 0, 1], {"class_weight": {0: 1e20}}, r"class_weight must hold .* to 1e\+15; got 1e\+20"),
    ("labels", TWO, [0, 1, 0, 1], {"sample_weight": [1, 1, 1e-40, 1]}, "sample_weight must hold 0 or .* got 1e-40"),
    ("labels", TWO, {0: "x", 1: "y", 2: "x", 3: "y"}, {}, "y must be a list of labels; got dict"),
    ("labels", TWO, {0, 1, 2, 3}, {}, "y must be a list of labels; got set"),
    ("pairs", TWO, ["A", ["B"], "C", "D"], {}, r"of one kind; y\[0\] and y\[1\]"),
    ("labels", ["a", "b"], [0, 1], {}, r"cannot be taken from 2 sequence\(s\), as no label has two; .* to 0$"),
    ("tags", ["ab"], [["x", "y"]], {}, "cannot be taken from 1 .*, as there is one; give more.*fraction to 0$"),
    ("tags", ["ab"], [["x", "y"]], {"names": names_in("a.conll")}, "give more, as by cutting a long one into st"),
    ("pairs", ["ab"] * 4, TWO, {}, "as the first sequences are all the same"),
    ("tags", TWO, [["x", "y"]] * 3, {}, "4 sequences and 3"),
    ("tags", TWO, [["x", "y"]] * 3 + [["x"]], {}, r"X\[3\] has 2 steps and y\[3\] 1 tags"),
    ("tags", TWO, [["x", "x"]] * 4, {}, "one class, the tag 'x'"),
    ("tags", TWO, [["x", "y"]] * 4, {"class_weight": "balanced"}, "labels of whole sequences"),
    ("numbers", TWO, [1, 2], {}, "^there must be one number per sequence; got 4 sequences and 2$"),
    ("numbers", TWO, [1, 2, "3", 4], {}, r"^y\[2\] must be a number, or a row of numbers; got '3'$"),
    ("numbers", TWO, np.array([1, None, 3, 4], object), {}, r"^y\[1\] must be a number, .*; got None$"),
    ("numbers", TWO, [1, 10**400, 3, 4], {}, r"^numbers to predict must be finite, .*; got inf as y\[1\]$"),
    ("numbers", TWO, np.array([1, -(10**400), 3, 4], object), {}, r"must be finite, .*; got -inf as y\[1\]$"),
    ("numbers", TWO, [1.0, 2.0, float("nan"), 4.0], {}, r"^numbers to predict must be finite, .*; got nan as y\[2\]$"),
    (
        "numbers",
        TWO,
        np.array([[1, 2], [3, 1e200], [5, 6], [7, 8]]),
        {},
        r"^numbers .* at most 1e\+100 .* got 3 1e\+200 as y\[1\]$",
    ),
    (
        "numbers",
        TWO,
        [[1, 2], [3], [5], [6]],
        {},
        r"^there must be one number per step, .* X\[1\] has 2 steps and y\[1\] 1 ",
    ),
    (
        "numbers",
        TWO,
        [[1, 2], [3, "x"], [5, 6], [7, 8]],
        {},
        r"^y\[1\] must hold a number, .* per step; got \[3, 'x'\]$",
    ),
    ("numbers", TWO, [[1, 2], [3, np.inf], [5, 6], [7, 8]], {}, r"^numbers .* got inf as y\[1\]\[1\]$"),
    ("numbers", TWO, [[1, 2]] * 3 + [[[1], [2]]], {}, "^y must hold as many numbers for each step$"),
    ("numbers", TWO, [[1, 2], [3]], {}, "^there must be a list of numbers per sequence; got 4 sequences and 2$"),
    (
        "numbers",
        TWO,
        [[1, 2, 3], [3, 4, "x"], [5, 6, 7], [7, 8, 9]],
        {},
        r"^y\[1\] must be a number, or a row of numbers",
    ),
    ("numbers", TWO, np.ones((4, 0)), {}, "^y must hold a number per sequence, or as many for each$"),
    ("numbers", TWO, np.ones((4, 3, 1)), {}, r"^y\[0\] must be a number, or a row"),
    ("numbers", TWO, "1234", {}, "^y must be a list of numbers; got str$"),
    ("numbers", TWO, 5, {}, "^y must be a list of numbers; got int$"),
    ("numbers", TWO, np.array(5.0), {}, "^y must be a list of numbers; got ndarray$"),
    (
        "numbers",
        TWO,
        Table(["a", "b"], [[1, "x"]] * 4),
        {},
        "^y must hold numbers alone, in which a, b must be left out",
    ),
    ("numbers", TWO, [1, 2, 3, 4], {"valid_fraction": 0.99}, "from 4 .*, as none is left to train on; give more"),
    ("numbers", TWO, [1, 2, 3, 1e40], {"seed": 0, "valid_fraction": 0.25}, "^a number to predict must stay within"),
    ("numbers", TWO, [1, 2, 3, 4], {"class_weight": "balanced"}, "labels of whole sequences"),
    ("numbers", ["ab"], [1], {}, "cannot be taken from 1 .*, as there is one"),
    ("pairs", TWO, ["A"], {}, "got 4 and 1"),
    ("pairs", TWO, ["AB", "BA", "AA", ""], {}, r"y\[3\] is an empty text"),
    ("pairs", TWO, [np.ones(3)] * 4, {}, r"y\[0\] must be a text"),
]


@pytest.mark.parametrize(("modality", "X", "y", "how", "message"), BAD, ids=[row[-1][:24] for row in BAD])
def test_wrong_labels_are_named(modality: Any, X: Any, y: Any, how: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_corpus(modality, X, y, **how)


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
    reads = corpus.reads
    assert reads.spelled
    assert "".join(reads.decode(corpus.train.inputs[0])) == "a cat "
    assert corpus.train.places[0].tolist() == [1, 5]
    assert reads.decode(reads.encode(("dot",))) == ["\N{REPLACEMENT CHARACTER}"] * 2 + ["t", " "]
    plain = make_corpus("tags", ["ab", "b"], [[0, 1], [1]], valid_fraction=0.0)
    assert not plain.reads.spelled
    assert plain.train.places[0].tolist() == [0, 1]


def test_series_are_scaled_per_channel_and_a_constant_channel_stays_finite() -> None:
    X = [np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([[5.0, 5.0]])]
    reads = make_corpus("labels", X * 2, [0, 1] * 2, valid_fraction=0.0).reads
    encoded = np.concatenate([reads.encode(one) for one in X])
    np.testing.assert_allclose(encoded[:, 0], [-np.sqrt(1.5), 0, np.sqrt(1.5)], rtol=1e-6)
    assert (encoded[:, 1] == 0).all()
    with pytest.raises(InputError, match="2 channels; got 3"):
        reads.encode(np.ones((4, 3)))
    with pytest.raises(InputError, match="got a text"):
        reads.encode(("a",))
    with pytest.raises(InputError, match="deviations"):
        reads.encode(np.array([[1e20, 5.0]]))


def test_labelling_survives_json_and_damage_is_refused() -> None:
    reads = make_corpus("labels", list("abca"), [True, False, True, False], valid_fraction=0.0).reads
    data = reads.to_dict()
    assert Labelling.from_dict(data) == reads
    for change in (
        {"classes": [1, 1]},
        {"numbers": {"mean": [1.0], "deviation": [1.0]}},
        {"symbols": ["b", "a"]},
        {"modality": "other"},
        {"mean": [1.0]},
    ):
        with pytest.raises(InputError):
            Labelling.from_dict({**data, **change})
    with pytest.raises(InputError, match="exactly the fields"):
        Labelling.from_dict({**data, "more": 1})


def test_numbers_are_scaled_by_the_training_part_and_survive_json() -> None:
    y = np.array([[1.0, 7.0], [3.0, 7.0], [5.0, 7.0], [100.0, 7.0]])
    for seed in range(9):
        corpus = make_corpus("numbers", ["a", "b", "c", "d"], Table(["u", "v"], y), valid_fraction=0.25, seed=seed)
        if corpus.valid.sequences == [("d",)]:
            break
    reads = corpus.reads
    assert reads.numbers is not None
    assert (reads.numbers.mean, reads.numbers.rows) == ((3.0, 7.0), True)
    np.testing.assert_allclose(reads.numbers.deviation, (np.sqrt(8 / 3), 1.0))  # a constant has 1
    np.testing.assert_allclose(reads.numbers.decode(np.concatenate(corpus.train.targets)), y[:3])
    assert corpus.valid.targets[0].shape == (1, 2)
    assert LabelBatches(corpus.train, 3).batch(0, 0).targets.shape == (1, 3, 2)
    data = reads.to_dict()
    assert Labelling.from_dict(data) == reads
    assert reads.describe() == "3 symbols, 2 number(s) for each sequence"
    steps = make_corpus("numbers", ["ab", "a"], [[1, 2], [3]], valid_fraction=0).reads
    assert steps.describe() == "2 symbols, 1 number(s) for each step"
    worse = ({"deviation": [1.0]}, {"deviation": [1.0, 0.0]}, {"mean": [1.0, float("nan")]}, {"rows": False})
    for change in (*({"numbers": {**data["numbers"], **one}} for one in worse), {"numbers": None}, {"classes": ["a"]}):
        with pytest.raises(InputError):
            Labelling.from_dict({**data, **change})


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
    reads, also = (make_corpus("labels", X, [0, 1] * 2, valid_fraction=0.0).reads for X in (tables, mixed))
    assert reads == also
    assert reads.channels == ("a", "b")
    assert reads.describe().startswith("series of 2 channel(s) (a, b), ")
    found = sequences([tables[0][["b", "a"]], tables[0].rows], channels=reads.channels)
    assert all((one == tables[0].rows).all() for one in found)  # an array has no names
    with pytest.raises(InputError, match=r"^X\[1\] must have the columns a, b; got a, c, without b$"):
        sequences([tables[0], Table(["a", "c"], tables[0].rows)], channels=reads.channels)
    wider = Table(["b", "number", "a"], tables[0].rows[:, [1, 0, 0]])
    assert (sequences([wider], channels=reads.channels)[0] == tables[0].rows).all()
    with pytest.raises(InputError, match="distinct names"):
        Labelling.from_dict({**reads.to_dict(), "channels": ["a", "a"]})
    rows = np.array([[1.5, True, "on"], [2.0, False, "off"]], object)
    table = Table(["x", "moves", "state"], rows)
    assert sequences([table[["x", "moves"]]])[0].tolist() == [[1.5, 1.0], [2.0, 0.0]]
    with pytest.raises(InputError, match=r"^X\[0\] must be .*; got Table, in which state must be left out or turned"):
        sequences([table])
    with pytest.raises(InputError, match=r"^X\[0\] must hold finite numbers; got NaN or infinity at step 2; fill gaps"):
        sequences([WithGap(["x", "count"], [[1.0, 2.0], [1.5, np.nan]])])
    numbered = [Table([0, 1], table.rows) for table in tables]
    assert make_corpus("labels", iter(numbered), [0, 1] * 2, valid_fraction=0.0).reads.channels == ()
    cells = "series,time,{},label\n" + "".join(f"{k},0,{{}},{k % 2}\n" for k in range(4))
    for name, order in (("one", "Temp,x"), ("other", "x,Temp")):
        numbers = [f"{k},9" if order == "Temp,x" else f"9,{k}" for k in range(4)]
        (tmp_path / f"{name}.csv").write_text(cells.format(order, *numbers))
    corpus = load_labelled(
        DataConfig("labels", (str(tmp_path / "one.csv"), str(tmp_path / "other.csv")), valid_fraction=0)
    )
    assert corpus.reads.channels == ("Temp", "x")
    assert corpus.reads.mean == (1.5, 9.0)


def test_labels_may_be_a_column_and_a_table_of_steps_is_told() -> None:
    X, labels = ["ab", "cd"] * 2, np.array([["u"], ["v"]] * 2)
    for y in (labels, Table(["label"], labels)):
        assert make_corpus("labels", X, y, valid_fraction=0.0).reads.classes == ("u", "v")
    with pytest.raises(InputError, match=r"^y must be one column of labels; got shape \(4, 2\)$"):
        make_corpus("labels", X, Table(["a", "b"], np.ones((4, 2))))
    with pytest.raises(InputError, match="4 sequences and 2 labels; of a table with a row per step make a list"):
        make_corpus("labels", Table(["x", "y"], np.ones((4, 2))), ["u", "v"])
    with pytest.raises(InputError, match=r"7 steps and .* 2 tags; each character of a text is a step: give a list of"):
        make_corpus("tags", ["the cat"], [["D", "N"]])
    with pytest.raises(InputError, match=r"3 steps and .* 2 tags$"):
        make_corpus("tags", ["cat"], [["D", "N"]])
    reads = make_corpus("labels", [np.ones((3, 2))] * 2, [0, 1], valid_fraction=0.0).reads
    with pytest.raises(InputError, match="2 channels; got 1; put a single series into a list"):
        reads.encode(np.ones((2, 1)))


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
