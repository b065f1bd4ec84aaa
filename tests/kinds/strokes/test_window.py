"""The window over a text: its equations, state, padding and gradient; texts as letters; lines that say something."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from lines import some

import tiny
import tiny_strokes
from against_reference import worst
from hmrnn import kind
from hmrnn.config import Config, TrainConfig
from hmrnn.kinds.strokes.files import read_strokes, save_strokes
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.strokes.network import HandwritingModel
from hmrnn.kinds.strokes.presets import PRESETS
from hmrnn.kinds.strokes.settings import StrokeData, StrokeModelConfig
from hmrnn.kinds.strokes.strokes import Scale, Strokes
from hmrnn.kinds.strokes.window import Place, Window, encode_texts
from hmrnn.nn.context import Condition
from hmrnn.ops.native import engine
from hmrnn.ops.native import window as native
from hmrnn.reading.read import Reader
from refusals import refused

T, B, U = 9, 3, 5
TEXT = torch.tensor([[1, 2, 3, 0, 0], [4, 1, 4, 2, 1], [3, 0, 0, 0, 0]])


def window(detects: bool = False) -> Window:
    return Window(4, 6, 3, 2, 20.0, detects).double()


def points(*shape: int) -> torch.Tensor:
    made = torch.randn(*shape, 3, dtype=torch.float64)
    made[..., 2] = (made[..., 2] > 0).double()
    return made


def network(**more: object) -> HandwritingModel:
    config = StrokeModelConfig(
        hidden_size=(6, 5), num_layers=2, output_size=8, mixtures=2, window="soft", window_width=4,
        window_components=2, alphabet=tuple("abcd "), **more,  # type: ignore[arg-type]
    )  # fmt: skip
    return HandwritingModel(config).double()


@pytest.mark.parametrize("detects", [False, True])
def test_the_window_is_that_of_its_equations(detects: bool) -> None:
    w, x = window(detects), points(T, B)
    h, read, shown, place = w(x, TEXT, w.start(B))
    state, at, seen = (torch.zeros(B, 6).double(),) * 2, torch.zeros(B, 2).double(), torch.zeros(B, 3).double()
    stood = []
    for t in range(T):
        state = w.cell(torch.cat([x[t], seen], dim=1), state)
        said = w.moves(state[0])
        alpha, beta, step = said[:, :6].exp().chunk(3, dim=1)
        fires = (said[:, 6:] > 0).double() if detects else torch.ones(B, 1).double()
        stood.append(fires == 0)
        at = at + step * fires
        phi = torch.zeros(B, U).double()
        for k in range(2):
            for u in range(U):
                phi[:, u] += alpha[:, k] * torch.exp(-beta[:, k] * (at[:, k] - u) ** 2)
        seen = (phi[..., None] * w.letters(TEXT)).sum(1)
        torch.testing.assert_close((h[t], read[t], shown[t]), (state[0], seen, phi))
    torch.testing.assert_close(place.at, at)
    assert torch.stack(stood).any() == detects


@pytest.mark.parametrize("detects", [False, True])
def test_the_gradient_of_the_window(detects: bool) -> None:
    w, x = window(detects), points(T, B).requires_grad_()
    _, read, shown, _ = w(x, TEXT, w.start(B))
    (read.square().sum() + shown.square().sum()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in w.parameters())
    assert (w.letters.weight.grad[0] == 0).all()
    if not detects:  # the gradient of a detector is straight-through
        assert torch.autograd.gradcheck(lambda x: w(x, TEXT, w.start(B))[1], points(3, B).requires_grad_())


@pytest.mark.parametrize("detects", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 5, 3), (7, 1, 16), (23, 17, 33)])
def test_the_library_agrees_with_the_equations(
    detects: bool, sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    T, B, U = sizes
    monkeypatch.setattr(native, "threads", lambda *_: 3)
    torch.manual_seed(T)
    w, x = Window(9, 13, 7, 5, 2.0, detects).double(), points(T, B).requires_grad_()
    with torch.no_grad():
        w.moves.weight.mul_(20)
        w.moves.bias[[0, 6, 12]] = torch.tensor([10.0, 10.5, 9.5]).double()  # on both sides of the clamp
    text = torch.randint(1, 10, (B, U)) * (torch.arange(U) <= torch.arange(B)[:, None])
    start = Place(*(torch.randn_like(a).requires_grad_() for a in w.start(B)))
    found = []
    for library in (True, False):
        monkeypatch.setattr(engine, "takes", lambda a, library=library: library)
        *outputs, place = w(x, text, start)
        torch.manual_seed(1)
        loss = torch.stack([(a * torch.randn_like(a)).sum() for a in (*outputs, *place)]).sum()
        gradients = torch.autograd.grad(loss, [x, *start, *w.parameters()])
        found.append({str(i): a.detach() for i, a in enumerate((*outputs, *place, *gradients))})
    error, where = worst(*found)
    assert error < 1e-10, where


def test_far_letters_and_large_numbers_make_no_nan() -> None:
    w = window(True).float()
    with torch.no_grad():
        w.moves.weight.mul_(1e4)
        w.moves.bias.copy_(torch.tensor([99.0, -99, 99, -99, 99, 5, 1]))
    x = (1e3 * points(50, B).float()).requires_grad_()
    *outputs, place = w(x, TEXT, w.start(B))
    assert place.at.max() > 1e5
    gradients = torch.autograd.grad(sum(a.sum() for a in (*outputs, *place)), [x, *w.parameters()])
    assert all(a.isfinite().all() for a in (*outputs, *place, *gradients))
    with refused():
        w(x, TEXT, w.start(B + 1))


def test_pieces_and_single_steps_make_the_whole() -> None:
    model, x, told = network(), points(T, B), Condition(text=TEXT)
    whole, _, end = model(x, condition=told)
    state, parts = None, []
    for piece in x.split(4):
        found, _, state = model(piece, state, condition=told)
        parts.append(found.means)
    torch.testing.assert_close(torch.cat(parts), whole.means)
    torch.testing.assert_close(state, end)
    reader = Reader(model, B, told)
    for t in range(T):
        reader.read(x[t])
        torch.testing.assert_close(reader.predict().means, whole.means[t])
    torch.testing.assert_close(reader.state, end)


def test_letters_beyond_the_end_and_other_lines_mean_nothing() -> None:
    model, x = network(), points(T, B)
    whole = model(x, condition=Condition(text=TEXT))[0].means
    longer = torch.cat([TEXT, torch.zeros(B, 4, dtype=torch.int64)], dim=1)
    torch.testing.assert_close(model(x, condition=Condition(text=longer))[0].means, whole)
    for b in range(B):
        alone = model(x[:, b : b + 1], condition=Condition(text=TEXT[b : b + 1]))[0].means
        torch.testing.assert_close(alone[:, 0], whole[:, b])
    with refused():
        model(x)


def test_letters_are_numbered_and_unknown_ones_named() -> None:
    assert encode_texts(["ba", "c"], "abc")[:, :3].tolist() == [[2, 1, 0], [3, 0, 0]]
    assert encode_texts(["bxa"], "abc", replace=True)[0, :3].tolist() == [2, 0, 1]
    with refused() as error:
        encode_texts(["bxa"], "abc")
    assert "'x'" in str(error.value)


def test_a_line_ends_at_its_last_letter_alone() -> None:
    model = network(halt=True)
    told = Condition(text=torch.tensor(encode_texts(["ab", "abcd"], "abcd")))
    state = model.initial_state(2, told)
    drawn = torch.tensor([[0.0, 0, 0, 1], [0, 0, 0, 1]])
    for at, ends in ((0.0, [False, False]), (0.8, [True, False]), (2.7, [True, True])):
        state = state._replace(c=(*state.c[:-1], torch.full_like(state.c[-1], at)))
        assert model.ends(drawn, state, told).tolist() == ends
    lifted = torch.tensor([[0.0, 0, 1, 0], [0, 0, 0, 0]])  # beyond the first text, and before the end of the other
    assert model.ends(lifted, state, told).tolist() == [True, False]


def lines() -> Strokes:
    texts = [text * 2 for text in ("ab", "bc", "cab", "d", "dc", "a", "cab")]
    return dataclasses.replace(some(7, 20), texts=tuple(texts))


@pytest.fixture(scope="module")
def model() -> StrokeModel:
    torch.manual_seed(1)
    net = network(halt=True).float()
    config = Config(StrokeData(path=("lines.json",)), net.config, TrainConfig())
    return StrokeModel(net, Scale.of(lines()), config)


def test_a_line_says_a_text_and_each_point_belongs_to_a_letter(model: StrokeModel) -> None:
    short, long = model.write_many(["ab", "abcabc"], seed=1)
    for text, written in (("ab", short), ("abcabc", long)):
        assert written.steps.shape == (len(written.letters), 3)
        assert len(written.steps) <= 80 * 6
        assert set(written.letters) <= set(range(len(text)))
    again = model.write("ab", seed=1)
    np.testing.assert_array_equal(again.steps, model.write("ab", seed=1).steps)
    primed = model.write("ab", seed=1, style=lines().line("3"))
    assert not np.array_equal(primed.steps[:2], again.steps[:2])
    assert primed.letters.min() >= 0
    for wrong in ("", " ", "ax"):
        with refused():
            model.write(wrong)
    with refused("style"):
        model.write("ab", style=some(1))


def test_lines_are_segmented_and_scored_with_their_texts(model: StrokeModel) -> None:
    found = model.segment_many(lines())
    alone = model.segment(lines().line("3"))
    np.testing.assert_allclose(found[2].bits, alone.bits, atol=1e-4)
    score = model.score(lines())
    bits = sum(float(np.nansum(one.bits)) for one in found)
    assert score.log_likelihood < -bits * np.log(2) / len(found)  # the halts count, too
    assert [len(each) for each in model.letters(lines())] == lines().lengths.tolist()
    with refused():
        model.segment(lines()[0])
    odd = dataclasses.replace(lines(), texts=("axb",) * 7)  # a letter that training did not show, as in other parts
    assert len(model.segment_many(odd)) == len(model.letters(odd)) == model.score(odd).sequences == 7


def test_the_presets_say_what_they_train() -> None:
    for name, config in PRESETS.items():
        assert (config.model.window != "none") == name.endswith("-text")
        config.check()
        commands = kind.of(config).commands(lambda name: None)
        assert ("--text" in commands.next(config, Path("run"), None)) == name.endswith("-text")


def test_the_command_writes_a_text_in_lines(
    model: StrokeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with torch.no_grad():
        model.network.density.bias[-1] = -9  # it does not halt
    folder, sheet = tiny_strokes.save(tmp_path / "run", model), tmp_path / "sheet.json"
    command = ["generate", "-m", str(folder), "--seed", "1", "--out", str(sheet)]
    assert tiny.hmrnn(*command, "--text", "ab cab dab", "--width", "6") == 0
    made = read_strokes(sheet)  # the pen is lifted where the window has left the last letter, after 20 points a letter
    assert len(made) == 2
    assert max(made.lengths) < 1 + 80 * 6
    assert all(line[-1, 2] for line in made)
    save_strokes(lines(), tmp_path / "lines.json")
    assert tiny.hmrnn(*command, "--text", "ab", "--prime", "lines.json", "--line", "3") == 0
    assert tiny.hmrnn(*command) == tiny.hmrnn(*command, "--text", "xyz") == 2
