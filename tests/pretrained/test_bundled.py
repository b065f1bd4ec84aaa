"""The models that come with the package are whole, and those of text are what their cards say."""

from __future__ import annotations

import doctest
import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hmrnn
import tiny
from hmrnn import checkpoint
from hmrnn.analysis import scores as boundary_scores
from hmrnn.cli.main import HELP
from hmrnn.errors import TextNote
from hmrnn.kinds.text.model import TextModel
from hmrnn.pretrained import bundled
from refusals import refused

TEXTS = ("english-small", "novel-small")
HELD_OUT = Path(__file__).parents[1] / "held_out.txt"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model() -> TextModel:
    return hmrnn.load("english-small")


@pytest.fixture(scope="module", params=TEXTS)
def each(request: pytest.FixtureRequest) -> TextModel:
    """Each bundled model of text."""
    model = hmrnn.load(request.param)
    assert isinstance(model, TextModel)
    return model


@pytest.fixture(scope="module")
def card(each: TextModel) -> str:
    return (bundled.FOLDER / str(each.source) / "README.md").read_text()


SIZES = {
    "english-small": 10_000_000,
    "novel-small": 1_200_000,
    "handwriting-small": 2_000_000,
    "writing-small": 1_000_000,
    "reading-small": 1_000_000,
}


@pytest.mark.parametrize("name", bundled.names())
def test_it_is_there_whole_and_small_and_tells_nothing_of_the_machine_that_made_it(name: str) -> None:
    folder = bundled.FOLDER / name
    names = {path.name for path in folder.iterdir()}
    assert names == {"README.md", "config.json", "manifest.json", "model.safetensors", "input.json"}
    assert sum(path.stat().st_size for path in folder.iterdir()) <= SIZES[name]
    saved = checkpoint.read(folder)
    assert {weight.dtype for weight in saved.weights.values() if weight.dim() > 0} == {torch.float16}
    assert all(Path(path).name == path for path in saved.config.data.path)


def test_lists_of_bundled_models_are_complete() -> None:
    names = bundled.names()
    assert names[0] == bundled.DEFAULT
    assert names == [*filter(HELP[HELP.index("Models that come with") :].__contains__, names)]
    for page, word in (("docs/howto/export.md", "| `{}` |"), ("docs/index.md", "[The model {}]")):
        assert [name for name in names if word.format(name) not in (ROOT / page).read_text()] == []


def test_models_know_whether_their_corpus_is_built_in() -> None:
    assert {name: bundled.comes_with_corpus(name) for name in bundled.names()} == {
        "english-small": False, "handwriting-small": True, "novel-small": True,
        "reading-small": True, "writing-small": True,
    }  # fmt: skip


def bits(card: str, what: str) -> tuple[int, float]:
    """Characters and bits per character in the row of the card that begins so."""
    (row,) = re.findall(rf"^\| {re.escape(what)}[^|]*\| ([\d,]+) \| ([\d.]+) \|$", card, re.MULTILINE)
    return int(row[0].replace(",", "")), float(row[1])


def test_bits_of_held_out_text_are_those_of_the_card(card: str, each: TextModel) -> None:
    text = HELD_OUT.read_text().removesuffix("\n")
    characters, noted = bits(card, "`tests/held_out.txt`")
    found = each.score(text, primed=False)  # as measured for the card
    assert characters == len(text) == found.symbols + 1
    assert found.bits == pytest.approx(noted, abs=0.002)
    assert noted < {"english-small": 1.75, "novel-small": 2.2}[str(each.source)]
    assert all(0.002 < rate < 0.98 for rate in found.rates), "a level is dead"


def test_its_levels_are_words_and_groups_of_them(card: str, each: TextModel) -> None:
    """The card's F1 on the six paragraphs: a segment of level 1 ends after every space, and nearly nowhere else."""
    text = HELD_OUT.read_text().removesuffix("\n")
    found = each.segment(text, primed=False)
    words = [k + 1 for k, symbol in enumerate(text) if symbol in " \n"]
    level_1, level_2 = (boundary_scores.score(found.ends(level), words, len(text)) for level in (1, 2))
    assert f"the F1 of level 1 is {level_1.f1:.2f}" in card
    assert level_1.f1 > 0.95
    assert level_2.precision > 0.95
    assert 4 * level_2.found < level_1.found


@tiny.needs_results
def test_the_card_has_what_was_measured_and_half_precision_costs_nothing(card: str, each: TextModel) -> None:
    """Measured with the very weights that are bundled; those from before they were rounded are not kept."""
    name = str(each.source)
    file = "test-half-cpu" if name == "english-small" else "test-half"
    scores = tiny.recorded("bundled")[name]["again"]
    half = scores[file]
    assert bits(card, "the test part of its corpus") == (half["symbols"] + 1, round(half["bits"], 4))
    if name == "novel-small":  # english-small was measured in half precision only
        full = scores["test"]
        assert bits(card, "the same, before the weights were") == (full["symbols"] + 1, round(full["bits"], 4))
        assert half["bits"] == pytest.approx(full["bits"], abs=0.002)
    weights = bundled.FOLDER / name / "model.safetensors"
    assert half["weights_sha256"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    (level_1, level_2), f1 = half["boundaries"][:2], "F1 of {f1:.2f}"
    assert f1.format(**level_1["tolerance"]["0"]) in card
    assert level_2["tolerance"]["0"]["precision"] > 0.95


def test_it_prefers_english(model: TextModel) -> None:
    """To the same words, and those to the same letters, in another order."""
    english = model.score("The river flows through the city and into the sea.").bits
    words = model.score("Sea the into and city the through flows river the.").bits
    letters = model.score("ehT revir swolf hguorht eht ytic dna otni eht aes.").bits
    assert english + 0.3 < words < letters - 0.3


def test_the_readme_shows_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "README.md").read_text()
    (shown,) = re.findall(r"<!-- english-small segment -->\n```text\n(.*?)```", page, re.DOTALL)
    (text,) = re.findall(r'^hmrnn segment "(.*)"$', page, re.MULTILINE)
    assert tiny.hmrnn("segment", text) == 0
    assert capsys.readouterr().out == shown


def test_commands_on_text_import_little_estimators_no_scikit_learn_and_figures_no_pyplot(tmp_path: Path) -> None:
    """Importing torch._dynamo takes about as long as everything else that a command does, the others a while."""
    code = """
import sys
from hmrnn.cli import main as cli
assert cli.run(["segment", "The river flows."]) == cli.run(["score", "The river flows."]) == 0
assert cli.run(["generate", "The river", "--length", "5"]) == 0
import hmrnn, hmrnn.plots.charts, hmrnn.plots.style, hmrnn.plots.text, torch
for engine in ("auto", "reference"):  # with gradients and without
    rnn = hmrnn.HMLSTM(3, 4, engine=engine)
    rnn(torch.zeros(2, 2, 3))[0].hidden[2].sum().backward()
    rnn.requires_grad_(False)(torch.zeros(2, 2, 3))
spared = (
    "torch._dynamo", "matplotlib", "triton", "starlette", "hmrnn.training.trainer", "hmrnn.kinds.labels.estimators",
    "hmrnn.web", "hmrnn.kinds.strokes.model", "hmrnn.kinds.labels.model",
    "hmrnn.nn.crf", "hmrnn.kinds.labels.transducer", "hmrnn.kinds.strokes.task", "hmrnn.kinds.labels.task",
)
found = [name for name in spared if name in sys.modules]
hmrnn.HMClassifier()
hmrnn.plots.charts.curves([{"event": "train", "step": 1, "bits": 2.0, "rates": [0.5]}]).canvas.draw()
print(found + [name for name in ("sklearn", "matplotlib.pyplot") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=tiny.environment(tmp_path), check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_command_leaves_no_garbage_to_look_for(tmp_path: Path) -> None:
    code = """
import atexit, gc, sys
atexit.register(lambda: print(len(gc.get_objects()) < 1000, gc.get_freeze_count() > 1000))
from hmrnn.cli.main import main
main(["--version"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=tiny.environment(tmp_path), check=True
    )
    assert done.stdout.splitlines()[-1] == "True True"


def test_the_example_of_load_runs() -> None:
    (example,) = doctest.DocTestFinder(recurse=False).find(hmrnn.load, globs={"hmrnn": hmrnn})
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


def test_priming_is_reading_two_line_ends_first(model: TextModel) -> None:
    text = "The river flows."
    found, longer = model.segment(text), model.segment(" .\n" + text, primed=False)[3:]
    assert found.ends(1) == longer.ends(1)
    assert found.bits is not None
    assert longer.bits is not None
    assert found.bits == pytest.approx(longer.bits, abs=1e-4)
    score = model.score(text)
    assert score.symbols == len(text)
    assert score.bits == pytest.approx(found.bits.mean(), abs=1e-4)
    assert model.score("T").symbols == 1
    assert [line and line.symbols for line in model.score_lines([text, "T", ""])] == [len(text), 1, None]
    how: Any = {"temperature": 0.5, "seed": 3}
    assert model.generate(text, 30, **how) == model.generate(" .\n" + text, 30, primed=False, **how)
    assert model.vocabulary.decode(model.prime) == " .\n"


def test_loading_draws_no_random_numbers() -> None:
    before = torch.get_rng_state()
    hmrnn.load("english-small")
    assert torch.equal(torch.get_rng_state(), before)


def test_many_texts_from_one_prompt(model: TextModel, capsys: pytest.CaptureFixture[str]) -> None:
    texts = model.generate(["The river"] * 3, 20, temperature=0.8, seed=1)
    assert [len(text) for text in texts] == [20] * 3
    assert len(set(texts)) == 3
    assert tiny.hmrnn("generate", "The river", "--samples", 3, "--length", 20, "--seed", 1) == 0
    shown = "".join(f"--- sample {k} of 3 ---\nThe river{text}\n" for k, text in enumerate(texts, start=1))
    assert capsys.readouterr().out == shown
    assert tiny.hmrnn("generate", "The river", "--samples", 0) == 2
    assert "samples 0" in capsys.readouterr().err
    with refused():
        model.generate([])


def test_embed(model: TextModel) -> None:
    text = "The old river flows…"
    with pytest.warns(TextNote):
        found, vectors = model.segment(text), model.embed(text)
    sizes = model.network.rnn.hidden_sizes
    assert vectors.symbols.shape == (len(text), sum(sizes))
    assert vectors.text == pytest.approx(vectors.symbols.mean(0))
    norms = [np.linalg.norm(part, axis=1) for part in np.split(vectors.symbols, np.cumsum(sizes)[:-1], axis=1)]
    np.testing.assert_allclose(np.stack(norms, axis=1), found.norms, rtol=1e-4, atol=1e-5)
    for level in (1, 2):
        ends, segments = found.ends(level), vectors.segments[level - 1]
        assert vectors.ends[level - 1] == ends
        assert segments.shape == (len(ends), sizes[level])
        np.testing.assert_allclose(
            np.linalg.norm(segments, axis=1), found.norms[np.array(ends) - 1, level], rtol=1e-4, atol=1e-5
        )
    assert model.embed("a", primed=False).symbols.shape == (1, sum(sizes))
