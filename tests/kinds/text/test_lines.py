"""Lines of a text as sequences, batches of them, and the conditions in a file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import tiny
from hmrnn import InputError
from hmrnn.config import SPLITS, ModelConfig
from hmrnn.kinds.text.corpus import Corpus, load_corpus
from hmrnn.kinds.text.settings import TextData
from hmrnn.reading.conditions import encode, encoded, fitted, read_conditions
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.training.sequences import SequenceBatches
from refusals import refused

VOCABULARY = Vocabulary("characters", ("\n", "a", "b", "c"))


def corpus(train: str, valid: str, test: str, conditions: tuple[str, ...] = ()) -> Corpus:
    return Corpus("tiny", VOCABULARY, *map(VOCABULARY.encode, (train, valid, test)), {}, conditions=conditions)


def texts(corpus: Corpus, part: str) -> list[str]:
    lines, _ = corpus.lines[part]
    assert all(line[0] == 0 for line in lines)  # the line end before it
    return [VOCABULARY.decode(line[1:]) for line in lines]


def test_lines_that_a_cut_runs_through_and_blank_ones_are_left_out() -> None:
    given = tuple("012345678")
    parts = corpus("ab\n\nc\na", "b\nba\nc", "c\ncc\na\nb", given)
    assert [texts(parts, name) for name in SPLITS] == [["ab\n", "c\n"], ["ba\n"], ["cc\n", "a\n"]]
    assert [parts.lines[name][1] for name in SPLITS] == [("0", "2"), ("4",), ("6", "7")]
    whole = corpus("ab\n", "c\n", "a\n")  # parts that end with lines
    assert [texts(whole, name) for name in SPLITS] == [["ab\n"], ["c\n"], ["a\n"]]


@pytest.mark.parametrize(
    ("parts", "rows", "setting"),
    [
        (("ab\n\nc\na", "b\nba\nc", "c\ncc\na\nb"), "01234", "data.condition"),
        (("ab\n\nc\na", "b\nba\nc", "c\ncc\na\nb"), "0123456789", "data.condition"),
        (("ab\n", "abc", "b\na\n"), "", "data.valid_fraction"),
        (("aaa", "aaa", "aaa"), "", "data.valid_fraction"),
    ],
)
def test_lines_that_are_lacking(parts: tuple[str, str, str], rows: str, setting: str) -> None:
    with pytest.raises(InputError) as refused:
        _ = corpus(*parts, tuple(rows)).lines
    assert refused.value.setting == setting


def test_every_line_once_per_epoch_with_its_end_and_condition() -> None:
    lines, rows = corpus("ab\nc\nabc\nb\nca\n", "a\n", "a\n", tuple("vwxyzuu")).lines["train"]
    model = ModelConfig(classes=tuple("uvwxyz"))
    batches = SequenceBatches(lines, 2, 1, encoded(rows, model))
    assert len(batches) == 3
    seen = {}
    for index in range(3):
        batch = batches.batch(0, index)
        assert batch.conditions is not None
        for b, count in enumerate(batch.counted):
            text = VOCABULARY.decode(batch.targets[:count, b])
            assert VOCABULARY.decode(batch.inputs[:count, b]) == ("\n" + text)[:count]
            assert not batch.inputs[count:, b].any()
            seen[text] = "uvwxyz"[batch.conditions[b]] if count else None
    assert {text: c for text, c in seen.items() if text} == dict(zip(["ab\n", "c\n", "abc\n", "b\n", "ca\n"], "vwxyz"))
    with refused("data.condition"):
        encoded(None, model)


def test_conditions_from_files_and_columns(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("one\ntwo \none\n")
    (tmp_path / "table.csv").write_text('name,who\nx,"a, b"\ny,c\n')
    (tmp_path / "table.tsv").write_text("name\twho\nx\t1.5\ny\t2\n")
    (tmp_path / "short.csv").write_text("name,who\nx\n")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\n")
    assert read_conditions(str(tmp_path / "plain.txt")) == ("one", "two", "one")
    assert read_conditions(f"{tmp_path}/table.csv:who") == ("a, b", "c")
    assert read_conditions(f"{tmp_path}/table.tsv:who") == ("1.5", "2")
    for spec in (
        f"{tmp_path}/table.csv:age", f"{tmp_path}/short.csv:who", f"{tmp_path}/none.txt", f"{tmp_path}/bytes.txt"
    ):  # fmt: skip
        with refused("data.condition"):
            read_conditions(spec)


def test_rows_are_classes_or_numbers() -> None:
    assert fitted(tiny.DEFAULT, ()).model == tiny.DEFAULT.model
    assert fitted(tiny.DEFAULT, ("b", "a", "b")).model.classes == ("a", "b")
    assert fitted(tiny.DEFAULT, ("1", "0", "7")).model.classes == ("0", "1", "7")
    assert fitted(tiny.DEFAULT, ("1.0", "0", "7")).model.condition_numbers == 1
    assert fitted(tiny.DEFAULT, ("1 2", "0, 3")).model.condition_numbers == 2
    assert fitted(tiny.DEFAULT, ("1 2", "x y")).model.classes == ("1 2", "x y")
    with refused():
        fitted(tiny.DEFAULT, ("1 2", "0.5"))
    given = fitted(dataclasses.replace(tiny.DEFAULT, model=ModelConfig(classes=("b", "a"))), ("a", "b"))
    assert encode(["a", "b"], given.model).tolist() == [1, 0]
    assert encode(["1,2", (3, 4)], ModelConfig(condition_numbers=2)).tolist() == [[1, 2], [3, 4]]
    for bad in ("1", "1 2 3", "1 nan", "x y"):
        with refused():
            encode([bad], ModelConfig(condition_numbers=2))
    with refused():
        encode(["c"], given.model)
    with refused():
        encode(["c"], ModelConfig())


def test_a_corpus_of_lines(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("ab\nc\n" * 40)
    (tmp_path / "rows.txt").write_text("u\nv\n" * 40)
    config = TextData("lines", (str(tmp_path / "x.txt"),), condition=str(tmp_path / "rows.txt"))
    parts = load_corpus(config).lines
    assert sum(len(lines) for lines, _ in parts.values()) >= 78
    for lines, rows in parts.values():
        assert rows is not None
        assert {(len(line), row) for line, row in zip(lines, rows)} <= {(4, "u"), (3, "v")}
    with refused("data.condition"):
        dataclasses.replace(tiny.DEFAULT, data=TextData("text", condition="x")).check()
