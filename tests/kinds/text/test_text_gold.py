"""Segment ends of a model against spaces and removed spaces, and from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import hmrnn
import tiny
from hmrnn.analysis.scores import Row
from hmrnn.kinds.text import gold
from hmrnn.kinds.text.evaluate import find
from hmrnn.kinds.text.gold import FILE, Found
from hmrnn.reading.vocabulary import Vocabulary
from refusals import refused

WORDS = Vocabulary("characters", tuple("\n abc"))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a text and models trained on it, with spaces and without."""
    work = tmp_path_factory.mktemp("work")
    (work / "story.txt").write_text(tiny.text(900).replace(" a ", "\na "))
    flags = tiny.flags(tiny.config(epochs=1, length=10))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HMRNN_CACHE", str(work / "cache"))
        patch.chdir(work)
        assert tiny.hmrnn("train", "story.txt", *flags) == 0
        assert tiny.hmrnn("train", "story.txt", *flags, "--data.remove-spaces", "--out", "runs/bare") == 0
        yield work


def perfect(ends: list[int], length: int) -> Found:
    """Two levels: one found everything, the other nothing."""
    boundaries = np.zeros((length, 2), bool)
    boundaries[np.array(ends) - 1, 0] = True
    return Found(boundaries, *np.zeros((2, length), np.float32))


def by_name(rows: list[Row]) -> dict[str, Row]:
    return {row.name: row for row in rows}


def test_found_is_what_segment_finds(work: Path) -> None:
    model = hmrnn.load("runs/story")
    text = tiny.text(300, seed=5)
    whole = model.segment(text, primed=False)
    found = find(model.network, model.vocabulary.encode(text))
    assert np.array_equal(found.boundaries[:-1], whole.boundaries[:-1])
    assert not found.boundaries[-1].any()
    assert whole.bits is not None
    assert np.isnan(found.surprise[0])
    np.testing.assert_allclose(found.surprise[1:], whole.bits[1:], rtol=1e-4)
    (logits,), *_ = model.network(torch.from_numpy(model.vocabulary.encode(text).astype(np.int64))[:, None])
    p = logits[:-1, 0].detach().double().softmax(-1).numpy()
    assert np.isnan(found.expected[0])
    np.testing.assert_allclose(found.expected[1:], -(p * np.log2(p)).sum(-1), rtol=1e-4)


@pytest.mark.parametrize(("ends", "convention"), [([2, 5, 7], gold.BEFORE), ([3, 6, 9], gold.AFTER)])
def test_either_side_of_a_space(ends: list[int], convention: str) -> None:
    symbols = WORDS.encode("ab ab\nb  c")
    row = by_name(gold.against_white_space(perfect(ends, 10), symbols, WORDS))["level 1"]
    assert row.convention == convention
    assert (row.scores[0].f1, row.scores[0].gold) == (1, 3)


def test_text_without_words_is_said(work: Path) -> None:
    for text in ("abcabc", " \n "):
        with refused():
            gold.against_white_space(perfect([1], len(text)), WORDS.encode(text), WORDS)


def test_removed_spaces_are_scored_line_by_line() -> None:
    # "a b\nab c\n\nabc" without its spaces; ends next to a line feed are in plain sight and do not count
    symbols = WORDS.encode("ab\nabc\n\nabc")
    spaces = np.array([1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], np.uint8)
    rows = by_name(gold.against_removed_spaces(perfect([1, 2, 3, 5, 6, 7], 11), symbols, spaces, WORDS))
    level = rows["level 1"]
    assert (level.scores[0].found, level.scores[0].gold, level.scores[0].hits) == (2, 2, 2)
    assert level.words is not None
    assert (level.words.f1, level.words.gold) == (1, 5)
    silent = rows["level 2"]
    assert (silent.scores[0].f1, silent.scores[0].found) == (0, 0)
    assert silent.words is not None
    assert silent.words.hits == 1  # the line of one word
    assert rows["every position"].scores[0].found == 1 + 2 + 2


def test_a_word_may_be_known_to_have_ended_only_when_the_next_has_begun() -> None:
    symbols = WORDS.encode("abcab\nabc")  # "ab cab" and "ab c"
    spaces = np.array([0, 1, 0, 0, 0, 0, 0, 1, 0], np.uint8)
    level = by_name(gold.against_removed_spaces(perfect([3], 9), symbols, spaces, WORDS))["level 1"]
    assert level.convention == gold.LATER
    assert (level.scores[0].found, level.scores[0].gold, level.scores[0].hits) == (1, 1, 1)  # "c" ends with its line
    assert level.words is not None
    assert level.words.f1 == 1
    assert (
        by_name(gold.against_removed_spaces(perfect([2, 8], 9), symbols, spaces, WORDS))["level 1"].convention
        == gold.REMOVED
    )


def test_command(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tiny.hmrnn("evaluate", "-m", "runs/story", "--boundaries") == 0
    shown = capsys.readouterr().out
    for part in ("tolerance 0", "tolerance 1", "level 2", "every position", "fixed length", "random", "surprise rises",
                 "before the space"):  # fmt: skip
        assert part in shown, part
    assert max(map(len, shown.splitlines())) <= 100
    assert tiny.hmrnn("evaluate", "-m", "runs/story", "--boundaries", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["boundaries"]
    assert [row["name"] for row in rows][:3] == ["level 1", "level 2", "every position"]
    assert rows[2]["tolerance"]["0"]["recall"] == 1
    assert rows[0]["words"] is None
    assert tiny.hmrnn("evaluate", "-m", "runs/story", "--json") == 0
    assert "boundaries" not in json.loads(capsys.readouterr().out)


def test_command_without_spaces(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tiny.hmrnn("evaluate", "-m", "runs/bare", "--boundaries") == 0
    assert "word F1" in capsys.readouterr().out
    (work / "other.txt").write_text("abc de\nfgh a hhg")
    assert tiny.hmrnn("evaluate", "-m", "runs/bare", "--boundaries", "--json", "--file", "other.txt") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["symbols"] == 12
    assert result["boundaries"][0]["tolerance"]["0"]["gold"] == 3
    assert result["boundaries"][2]["words"]["gold"] == 5
    assert hmrnn.load("runs/bare").segment("abc\tde fgh").text == "abcdefgh"
    with refused():
        hmrnn.load("runs/bare").segment("  ")


def test_command_with_a_file_of_ends(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "ends.txt").write_text("3\n6\n")
    assert tiny.hmrnn("evaluate", "-m", "runs/story", "--boundaries", "--gold", "ends.txt", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["boundaries"]
    assert rows[0]["convention"] == FILE
    assert rows[0]["tolerance"]["0"]["gold"] == 2
    assert tiny.hmrnn("evaluate", "-m", "runs/story", "--gold", "ends.txt") == 2
    assert "--boundaries" in capsys.readouterr().err


def test_gold_ends_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ends.txt"
    path.write_text("7\n\n3  # a comment\n# another\n7\n")
    assert gold.read_ends(path, 10).tolist() == [3, 7]
    row = gold.against(perfect([3, 7], 10), {FILE: [gold.read_ends(path, 10)]}, [slice(10)])[0]
    assert row.scores[0].f1 == 1
    for bad in ("0", "3\n11", "x", "# none", "9" * 5000):
        path.write_text(bad)
        with refused():
            gold.read_ends(path, 10)
    with refused():
        gold.read_ends(tmp_path / "none", 10)


def test_an_endless_file_of_gold_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hmrnn.utils.inputs.LARGEST", 1 << 20)
    with refused():
        gold.read_ends("/dev/zero", 10)
