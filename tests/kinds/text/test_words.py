"""Runs with a segmental head: what the text decides, the pull, exact resumption, and words from the command line."""

import collections
import dataclasses
import io
import itertools
import json
import warnings

import numpy as np
import pytest
import torch

import tiny
from hmrnn.checkpoint import Checkpoint
from hmrnn.config import Config, DetectorConfig, SegmentConfig
from hmrnn.kind import of as kind_of
from hmrnn.kinds.text.corpus import Corpus, load_corpus
from hmrnn.kinds.text.model import TextModel
from hmrnn.kinds.text.presets import PRESETS
from hmrnn.kinds.text.task import settled
from hmrnn.kinds.text.words.lexicon import learn_lexicon
from hmrnn.pretrained.export import export
from hmrnn.pretrained.load import load
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.training.task import Loss
from hmrnn.training.terms.steering import segment_pull, targets
from refusals import refused

WORDS = ["abc", "de", "fgh", "hhg", "cab", "edge"]


def book(path, lines=40):
    draw = np.random.default_rng(4)
    path.write_text("\n".join(" ".join(draw.choice(WORDS, 8)) for _ in range(lines)) + "\n")
    return path


def words_config(**changes) -> Config:
    """A tiny run of the preset words on the text of :func:`book`."""
    return tiny.changed(
        PRESETS["words"], embedding_size=6, hidden_size=(12,), output_size=12, epochs=1, batch_size=4, length=20,
        size=10, lexicon=64, reader=8, hidden=4, log_every=4, checkpoint_every=1e9, device="cpu", learning_rate=0.02,
        **changes,
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run directory, made by the command."""
    folder = tmp_path_factory.mktemp("words")
    with tiny.story(folder):
        book(folder / "book.txt")
        config = words_config()
        flags = [*tiny.flags(config), "--segments.size", "10", "--segments.lexicon", "64"]
        assert tiny.hmrnn("train", "words", folder / "book.txt", "--out", folder / "run", *flags) == 0
        yield folder


def test_the_text_decides_the_longest_segment_and_the_rate(tmp_path, monkeypatch):
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    config = words_config()
    config = dataclasses.replace(
        config, data=dataclasses.replace(config.data, path=(str(book(tmp_path / "book.txt")),))
    )
    corpus = load_corpus(config.data)
    found = settled(config, corpus)
    assert 4 <= found.segments.longest <= 12
    assert 0.15 < found.detectors.rates[0] < 0.5
    assert settled(found, corpus) == found
    without = dataclasses.replace(config, segments=SegmentConfig())
    assert settled(without, corpus) is without


def test_pull_and_rate_follow_the_segments_one_symbol_late():
    posterior = torch.tensor([[1.0], [0.0], [0.8]])
    z = torch.tensor([[0.3], [0.9], [0.2]], requires_grad=True)
    loss = Loss(torch.zeros(()), z[..., None], None, chances=z[..., None].detach(), segments=posterior)
    expected = ((0.9 - 1) ** 2 + (0.2 - 0) ** 2) / 2
    assert segment_pull(loss, 1).item() == pytest.approx(expected)
    beyond = ((0.9 - 0.9) ** 2 + (0.2 - 0.1) ** 2) / 2
    assert segment_pull(loss, 1, 2.0).item() == pytest.approx(expected + 2 * beyond)
    [gradient] = torch.autograd.grad(segment_pull(loss, 1, 2.0), z)
    assert gradient[0] == 0
    assert gradient[2].item() == pytest.approx(0.2 + 2 * 0.1)
    d = words_config().detectors
    assert targets(loss, d)[0].item() == pytest.approx(0.6)


def test_the_pull_needs_a_head():
    config = dataclasses.replace(words_config(), segments=SegmentConfig())
    with refused("detectors.pull_to"):
        config.check()


@pytest.mark.parametrize("name", ["longest", "lexicon", "reader"])
def test_settings_of_a_head_need_its_size(name):
    with refused():
        dataclasses.replace(tiny.DEFAULT, segments=SegmentConfig(**{name: 8})).check()


@pytest.mark.parametrize(
    ("symbols", "signs", "epochs"),
    [(1000, 2, 12), (300_000, 2, 4), (700_000, 2, 2), (5_000_000, 2, 1), (50_000, 300, 12), (50_000, 2000, 4)],
)
def test_large_texts_and_vocabularies_are_read_fewer_times(symbols, signs, epochs):
    config = words_config(longest=4)
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, epochs=0))
    config.check()
    part = np.zeros(symbols, np.uint8)
    corpus = Corpus(
        "large", Vocabulary("characters", tuple(map(chr, range(32, 32 + signs)))), part, part[:2], part[:2], {}
    )
    found = settled(config, corpus)
    assert found.train.epochs == epochs


def test_a_head_needs_a_reader():
    with refused("segments.reader"):
        tiny.changed(words_config(), reader=0).check()


def test_no_epochs_without_a_head_are_refused():
    with refused("train.epochs"):
        tiny.changed(tiny.DEFAULT, epochs=0).check()


def test_a_stopped_run_resumes_exactly(tmp_path, monkeypatch):
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    data = dataclasses.replace(words_config().data, path=(str(book(tmp_path / "book.txt", lines=24)),))
    config = dataclasses.replace(words_config(), data=data)
    corpus = load_corpus(data)
    config = settled(config, corpus)
    tiny.run(tmp_path / "whole", config, text=corpus)
    tiny.run(
        tmp_path / "parts", config, text=corpus, stop=lambda event: event["event"] == "step" and event["step"] == 5
    )
    tiny.run(tmp_path / "parts", config, text=corpus, resume=True)
    whole, parts = tiny.contents(tmp_path / "whole"), tiny.contents(tmp_path / "parts")
    best = [name for name in whole if name.endswith("model.safetensors")]
    assert best
    assert all(whole[name] == parts[name] for name in best)


def test_segments_by_the_head_and_by_the_detectors(trained):
    model = load(trained / "run")
    text = "abcdefgh\nhhgcab"
    by_head, by_detectors = model.segment(text), model.segment(text, by="detectors")
    assert by_head.text == by_detectors.text == text
    assert {8, 9} <= set(by_head.ends(1))
    assert by_head.probabilities[7, 0] == pytest.approx(1, abs=1e-4)
    many = model.segment_many([text, "abcde"])
    assert many[0].ends(1) == by_head.ends(1)
    assert model.late == 1


def test_words_alone_are_those_of_the_whole_segmentation(trained):
    model, text = load(trained / "run"), (trained / "book.txt").read_text()
    for primed in (True, False):
        found, whole = (find(text, primed=primed) for find in (model.find_words, model.segment))
        assert found.spaced() == whole.spaced()
        assert found.lexicon() == whole.lexicon()


def test_detectors_that_fire_late_are_moved_back(trained):
    from hmrnn.reading.read import segment_many

    model = load(trained / "run")
    indices = model.vocabulary.encode("abcdefghhhgcab")
    shown = [model.vocabulary.pieces(indices)]
    [raw], [moved] = (segment_many(model.network, [indices], lambda _: shown[0], late=late) for late in (0, 1))
    np.testing.assert_array_equal(moved.boundaries[:-1], raw.boundaries[1:])


def test_a_model_without_a_head_says_so(tmp_path):
    model = tiny.saved_model(tmp_path / "model")
    with refused():
        model.segment("abc", by="head")
    with refused():
        model.find_words("abc")


def test_words_lexicon_and_spaces_from_the_command_line(trained, capsys):
    text = "abc de fgh\nhhg cab"
    run = trained / "run"
    assert tiny.hmrnn("segment", text, "-m", run, "--format", "words") == 0
    words = capsys.readouterr().out.splitlines()
    assert "".join(words) == "abcdefghhhgcab"
    assert tiny.hmrnn("segment", text, "-m", run, "--format", "spaced") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.replace(" ", "") for line in lines] == ["abcdefgh", "hhgcab"]
    assert list(itertools.chain(*map(str.split, lines))) == words
    assert tiny.hmrnn("segment", text, "-m", run, "--lexicon") == 0
    entries = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert sum(int(count) for count, _ in entries) == len(words)
    assert tiny.hmrnn("segment", text, "-m", run, "--by", "detectors", "--format", "words") == 0
    assert "".join(capsys.readouterr().out.split()) == "abcdefghhhgcab"
    assert tiny.hmrnn("segment", text, "-m", run, "--json", "--lexicon") == 2


def test_words_in_one_command(trained, tmp_path, monkeypatch, capsys):
    text, small = trained / "book.txt", words_config()
    monkeypatch.setitem(PRESETS, "words", small)
    found = tmp_path / "found"
    assert tiny.hmrnn("words", text, "--out", found) == 0
    steps = len((found / "metrics.jsonl").read_text().splitlines())
    spaced = (found / "words.txt").read_text()
    assert spaced.replace(" ", "") == text.read_text().replace(" ", "")
    entries = [line.split("\t") for line in (found / "lexicon.tsv").read_text().splitlines()]
    assert {word: int(count) for count, word in entries} == collections.Counter(spaced.split())
    assert tiny.hmrnn("words", text, "--out", found) == 0  # trained already
    assert len((found / "metrics.jsonl").read_text().splitlines()) == steps
    other = tmp_path / "other.txt"
    other.write_text("abcdefgh\nhhgcab\n")
    assert tiny.hmrnn("words", other, "--out", found) == 2  # holds another run
    assert tiny.hmrnn("words", other, "-m", found, "--out", tmp_path / "of-other") == 0
    assert (tmp_path / "of-other" / "words.txt").read_text().replace(" ", "") == other.read_text()
    assert tiny.hmrnn("words") == 2
    capsys.readouterr()


def test_a_little_knowledge_from_the_command_line(trained, tmp_path, monkeypatch, capsys):
    text, given = trained / "book.txt", []
    learn = "hmrnn.kinds.text.task.learn_lexicon"
    monkeypatch.setattr(learn, lambda *rest, original=learn_lexicon: given.append(rest[3]) or original(*rest))
    monkeypatch.setitem(PRESETS, "words", words_config())
    known, lines = tmp_path / "known", tmp_path / "lines"
    known.write_text("cab\nxyz\nedge\n")
    lines.write_text("abc de\n\nfgh x hhg\n")
    flags = ("--lexicon", known, "--segmented", lines, "--out", tmp_path / "found")
    assert tiny.hmrnn("words", text, *flags) == 0
    letters = load(tmp_path / "found").vocabulary.encode
    assert {*given[0].words} == {tuple(letters(word)) for word in ("cab", "edge")}
    assert given[0].lines == [[tuple(letters(word)) for word in line.split()] for line in ("abc de", "fgh hhg")]
    assert tiny.hmrnn("words", text, *flags) == 0  # the same run
    assert tiny.hmrnn("words", text, "--out", tmp_path / "found") == 2  # another one
    known.write_text("xyz\n")
    capsys.readouterr()
    assert tiny.hmrnn("words", text, *flags, "--fresh") == 2
    assert "--lexicon" in capsys.readouterr().err


def test_a_stream_has_the_ends_of_the_detectors_moved_back(trained):
    run, text = trained / "run", trained / "other.txt"
    text.write_text("abcdefghhhgcab" * 30)
    assert tiny.hmrnn("segment", "-m", run, "--stream", text, "--out", trained / "ends", "--streams", "1") == 0
    lines = [json.loads(line) for line in (trained / "ends" / "other.txt.jsonl").read_text().splitlines()]
    found = load(run).segment(text.read_text(), by="detectors", primed=False)
    assert [end for line in lines for end in line["ends"][0]] == found.ends(1)


def test_evaluation_scores_the_head_words_and_types(trained, capsys):
    assert tiny.hmrnn("evaluate", "-m", trained / "run", "--boundaries", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["boundaries"]}
    assert list(rows)[:2] == ["head", "level 1"]
    assert rows["head"]["tolerance"]["0"]["f1"] > 0.8
    assert rows["head"]["types"]["gold"] == len(WORDS)
    assert 0 < rows["head"]["types"]["f1"] <= 1
    assert rows["head"]["words"]["f1"] <= rows["head"]["tolerance"]["0"]["f1"]


def test_fine_tuning_keeps_the_head_and_learns_the_lexicon_of_the_new_text(trained):
    model = load(trained / "run")
    text = "\n".join(["zab zab hhg zab de"] * 30) + "\n"
    tuned = model.finetune(text, epochs=1, device="cpu")
    assert tuned.config.segments == model.config.segments
    assert tuned.vocabulary.symbols == (*model.vocabulary.symbols, "z")
    head = tuned.network.segments
    found = [tuple(int(k) for k in word if k >= 0) for word in head.words.tolist()]
    known = {"".join(tuned.vocabulary.symbols[k] for k in word) for word in found}
    assert any("z" in word for word in known)
    assert not any("f" in word for word in known)  # only the first text has it
    assert "".join(tuned.segment("zabhhg").segments(1)) == "zabhhg"


def test_fine_tuning_for_0_epochs_reads_the_text_as_often_as_suits_its_size(trained, monkeypatch):
    monkeypatch.setattr("hmrnn.kinds.text.task.MOST_EPOCHS", 1)
    events = []
    text = "\n".join(["zab hhg zab de"] * 30) + "\n"
    tuned = load(trained / "run").finetune(text, epochs=0, device="cpu", progress=events.append)
    assert tuned.config.train.epochs == 1
    assert [event["epoch"] for event in events if event["event"] == "valid"][-1] == 1


def test_a_fine_tuned_head_starts_as_it_was(trained):
    model = load(trained / "run")
    source = Checkpoint(model.config, model.vocabulary, dict(model.network.state_dict()))
    larger = Vocabulary("characters", ("\t", *model.vocabulary.symbols))  # every index moves by one
    symbols = larger.encode((trained / "book.txt").read_text().replace(" ", ""))[:300]
    task = kind_of(model.config).task(
        model.config, Corpus("book", larger, symbols, symbols, symbols, {}), torch.device("cpu")
    )
    task.adopt(source.weights, source.reads)
    old, new = model.network.segments, task.model.segments
    assert torch.equal(new.embedding.weight[1:], old.embedding.weight)  # the last row begins a segment
    assert torch.equal(new.spell.weight[1:], old.spell.weight)
    assert torch.equal(new.spell.bias[1:], old.spell.bias)
    assert torch.equal(new.end.weight, old.end.weight)


def test_an_export_in_16_bits_keeps_the_lexicon(trained, tmp_path):
    export(trained / "run", tmp_path / "small", half=True)
    before, after = (load(path).network.segments for path in (trained / "run", tmp_path / "small"))
    assert torch.equal(before.words, after.words)
    assert torch.equal(before.shares, after.shares)
    assert not torch.equal(before.spell.weight, after.spell.weight)
    parameters = sum(p.numel() for p in load(tmp_path / "small").network.parameters())
    assert f"| parameters | {parameters:,}, of 16 bits |" in (tmp_path / "small" / "README.md").read_text()


def test_nothing_is_left_without_spaces_and_a_single_symbol_is_a_word(trained, tmp_path):
    model = load(trained / "run")
    assert model.find_words("a").words() == model.segment("a").words() == ["a"]
    for find in (model.find_words, model.segment, model.score):
        with refused():
            find(" \n \n")
    (tmp_path / "blank.txt").write_text(" \n" * 9)
    assert tiny.hmrnn("words", tmp_path / "blank.txt", "-m", trained / "run", "--out", tmp_path / "found") == 2
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize("name", ["run", "novel-small"])
def test_the_rows_of_a_column(trained, name):
    model = load(trained / "run" if name == "run" else name)
    rows = ["abcdefgh", None, "", "hhg\ncab" * 200, float("nan"), b"abc", "\u2603", " \n"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # rows say by themselves what is wrong
        table = model.segment_column(iter(rows))
    good = [row for row, error in zip(rows, table["error"]) if error is None]
    assert good[:2] == [rows[0], rows[3]]
    assert not [row for row in (rows[1], rows[2], rows[4], rows[5]) if row in good]
    assert all("\n" not in error for error in table["error"] if error)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.segment_many(good)
    assert [words for words in table["words"] if words is not None] == [each.words() for each in found]
    assert [ends for ends in table["ends"] if ends is not None] == [each.ends(1) for each in found]
    assert model.segment_column([]) == {"words": [], "ends": [], "error": []}
    assert model.segment_column([None])["words"] == [None]


def test_a_tokenizer_of_the_words_of_a_run(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("hmrnn.kinds.text.commands.DRAWS", 2000)
    assert tiny.hmrnn("export", "-m", trained / "run", "--tokenizer", tmp_path / "made") == 0
    pieces = [piece for piece, _ in json.loads((tmp_path / "made" / "tokenizer.json").read_text())["model"]["vocab"]]
    assert {*WORDS, *"abcdefgh"} <= {*pieces}
    (tmp_path / "more.txt").write_text("gacab hf\n" * 3)
    how = ("--tokenizer", tmp_path / "more", "--count", tmp_path / "more.txt")
    assert tiny.hmrnn("export", "-m", trained / "run", *how) == 0
    listed = [line.split("\t")[0] for line in (tmp_path / "more" / "vocab.tsv").read_text().splitlines()]
    assert "gacab" in listed or "ga" in listed  # they are in no other line
    assert {*WORDS} <= {*listed}
    model = load(trained / "run")
    symbols = model.vocabulary.encode((trained / "book.txt").read_text().replace(" ", ""))
    every = model.count_words(symbols, least=0)
    assert sum(len(word) * count for word, count in every.items()) == pytest.approx((symbols > 0).sum(), rel=0.02)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hmrnn.kinds.text.model._TOGETHER", 300)  # in parts
        assert sum(model.count_words(symbols, 0).values()) == pytest.approx(sum(every.values()), rel=0.1)
    assert model.count_words(symbols, least=9) == {word: count for word, count in every.items() if count >= 9}


def test_ends_by_their_probability(trained, capsys):
    model, text = load(trained / "run"), (trained / "book.txt").read_text()[:400]
    for find in (model.find_words, model.segment):
        few, many = (find(text, threshold=x) for x in (0.9, 0.1))
        assert {*few.ends(1)} < {*many.ends(1)}
        chances = few.probabilities[:-1, 0]
        assert few.ends(1)[:-1] == (np.flatnonzero(chances >= 0.9) + 1).tolist()
        with refused("threshold"):
            find(text, threshold=1.0)
    with refused("threshold"):
        model.segment(text, by="detectors", threshold=0.5)
    shown = []
    for how in ("--prefer recall", "--threshold 0.2", "--prefer precision", "--threshold 0.8", "--threshold 0.999"):
        assert tiny.hmrnn("segment", text, "-m", trained / "run", "--format", "words", *how.split()) == 0
        shown.append(capsys.readouterr().out.split())
    assert shown[0] == shown[1]
    assert shown[2] == shown[3]
    assert len(shown[4]) < len(shown[0])


def test_standard_input_is_segmented_line_by_line(trained, monkeypatch, capsys):
    lines = ["abc de fgh", "", "hhg cab"]
    stdin = io.TextIOWrapper(io.BytesIO("\n".join([*lines, ""]).encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert tiny.hmrnn("segment", "-m", trained / "run", "--stream") == 0
    model = load(trained / "run")
    expected = [model.find_words(line).spaced() if line else "" for line in lines]
    assert capsys.readouterr().out.splitlines() == expected
    assert tiny.hmrnn("segment", "-m", trained / "run", "--stream", trained / "book.txt") == 2  # without --out


def test_a_single_layer_with_a_head_is_refused_with_a_reason():
    vocabulary = Vocabulary("characters", tuple("abc"))
    config = dataclasses.replace(words_config(num_layers=1, longest=4), detectors=DetectorConfig())
    model = TextModel(kind_of(config).network(config, vocabulary), vocabulary, config)
    with refused():
        model.segment("abc")
    assert model.segment("abc", by="detectors").levels == 0
