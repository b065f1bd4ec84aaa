"""Steps as ONNX: onnxruntime computes what hmrnn computes, and draws what hmrnn draws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor

import hmrnn
import tiny
from hmrnn import checkpoint, kind
from hmrnn.checkpoint import Checkpoint
from hmrnn.config import Config
from hmrnn.config.changes import replaced
from hmrnn.config.json import to_json
from hmrnn.kinds.strokes.mixture import Halting, StrokeMixture
from hmrnn.nn.context import Condition
from hmrnn.reading.sample import seeded

EXAMPLE = tiny.script(tiny.ROOT / "examples" / "onnx_model.py")
STEPS = 200
TEXT = "When the boats came back in the evening, the whole town was waiting on the pier; 3 gulls, too.\n" * 2
CONDITIONED = {"data.format": "lines", "data.condition": "rows", "model.classes": ("a", "b"), "model.time": "left"}
TINY: dict[str, dict[str, Any]] = {
    "lstm": {"model.rnn": "lstm"},
    "h-net": {"model.rnn": "h-net"},
    "conditioned": CONDITIONED | {"detectors.estimator": "soft", "model.top_down": "always"},
}
ENGLISH, HANDWRITING, LSTM = (
    pytest.param(name, marks=pytest.mark.slow) for name in ("english-small", "handwriting-small", "lstm")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("onnx")


@pytest.fixture
def onnx(folder: Path, command: tiny.Command, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The file of a model, written once, as each takes seconds."""
    monkeypatch.chdir(folder)

    def file(model: str) -> str:
        if model in TINY and not Path(model).exists():
            save(replaced(tiny.config(hidden_size=(4, 3), num_layers=2), TINY[model]), Path(model))
        path = Path(f"{model}.onnx")
        if not path.exists():
            said = command(f"export --onnx {path} -m {'./' if model in TINY else ''}{model}")
            assert said == f"wrote {path}: {path.stat().st_size:,} bytes\n"
            assert command.err == ""
        return str(path)

    return file


def save(config: Config, place: Path) -> None:
    """An untrained model."""
    torch.manual_seed(0)
    network = kind.of(config).network(config, tiny.VOCABULARY)
    checkpoint.write(place, Checkpoint(config, tiny.VOCABULARY, dict(network.state_dict())))


def inputs(model: Any) -> tuple[Tensor, Condition]:
    """Steps (T, 2) to read, and what is told of the two sequences."""
    m, random = model.config.model, np.random.default_rng(0)
    value = torch.tensor([1, 0]) if m.classes else None
    if hasattr(model, "vocabulary"):
        x = torch.from_numpy(random.integers(len(model.vocabulary), size=(STEPS, 2)))
        return x, Condition(value, torch.tensor([150.0, STEPS]) if m.time == "left" else None)
    text = model.as_texts(["a quick fox", "jumps"]) if m.window != "none" else None
    x = torch.from_numpy(random.normal(size=(STEPS, 2, 3)).astype(np.float32))
    x[..., 2] = (x[..., 2] > 1).float()
    return x, Condition(value, None, text)


@pytest.mark.parametrize("name", [ENGLISH, "novel-small", HANDWRITING, "writing-small", LSTM, "h-net", "conditioned"])
def test_every_step_agrees(name: str, onnx: Any) -> None:
    session = onnxruntime.InferenceSession(onnx(name))
    model = hmrnn.load(f"./{name}" if name in TINY else name)
    x, told = inputs(model)
    with torch.no_grad():
        prediction, out, end = model.network.predict(x, condition=told)
    if hasattr(prediction, "logits"):
        expected = {"probabilities": prediction.logits.softmax(-1)}
    else:
        expected = getattr(prediction, "mixture", prediction)._asdict()
        expected |= {"halt": prediction.halt} if isinstance(prediction, Halting) else {}
    expected["boundaries"] = out.boundaries
    state = {name: np.zeros_like(a) for name, a in end.named().items()}
    names = [output.name for output in session.get_outputs()]
    for t, row in enumerate(x):
        now = dict(zip(("condition", "clock", "text"), told.after(t, model.config.model.time)))
        given = {"x": row, **{name: a for name, a in now.items() if a is not None}}
        found = dict(zip(names, session.run(None, {name: a.numpy() for name, a in given.items()} | state)))
        state = {name: found[f"next.{name}"] for name in state}
        for name, a in expected.items():
            np.testing.assert_allclose(found[name], a[t], rtol=1e-5, atol=1e-5, err_msg=f"{name} at step {t}")
    for name, a in end.named().items():
        np.testing.assert_allclose(state[name], a, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", [ENGLISH, "novel-small"])
def test_a_text_has_the_same_segments_and_is_continued_the_same(name: str, onnx: Any) -> None:
    model, other = hmrnn.load(name), EXAMPLE.OnnxText(onnx(name))
    found, segments = model.segment(TEXT), other.segment(TEXT)
    for level in range(1, found.levels + 1):
        assert ["".join(segment) for segment in segments[level - 1]] == found.segments(level)
    for temperature in (0.0, 0.8):
        uniform = torch.rand(150, dtype=torch.float64, generator=seeded(5)).numpy()
        expected = model.generate("The town", 150, temperature=temperature, seed=5)
        assert other.generate("The town", uniform, temperature) == expected


@pytest.mark.slow
def test_lines_are_written_the_same(onnx: Any) -> None:
    model, other, generator = hmrnn.load("handwriting-small"), EXAMPLE.OnnxModel(onnx("handwriting-small")), seeded(3)
    x = model.scale.encode(np.zeros((1, 3)))
    drawn = []
    for _ in range(100):
        found = other.step(x=x)
        mixture = StrokeMixture(*(torch.from_numpy(found[name]) for name in StrokeMixture._fields))
        drawn.append(mixture.sample(generator, bias=0.5).numpy()[0])
        x = drawn[-1][None].astype(np.float32)
    expected = model.generate(100, bias=0.5, seed=3)
    np.testing.assert_allclose(model.scale.decode(np.stack(drawn)), expected, rtol=1e-4, atol=1e-4)


def test_a_text_is_written_the_same_to_its_end(onnx: Any) -> None:
    model, other, generator = hmrnn.load("writing-small"), EXAMPLE.OnnxModel(onnx("writing-small")), seeded(4)
    text, condition = model.as_texts(["pier"]).numpy(), np.array([2])
    x, drawn, over = model.scale.encode(np.zeros((1, 3))), [], False
    while not over:
        found = {name: torch.from_numpy(a) for name, a in other.step(x=x, text=text, condition=condition).items()}
        halting = Halting(StrokeMixture(*(found[name] for name in StrokeMixture._fields)), found["halt"])
        *point, halt = halting.sample(generator, bias=1.0).numpy()[0]
        drawn.append(point)
        over = (halt > 0 and found["past"] > -0.5) or (point[2] > 0 and found["past"] > 0.5)
        x = np.array([point], np.float32)
    expected = model.write("pier", seed=4, bias=1.0, condition=model.config.model.classes[2]).steps
    np.testing.assert_allclose(model.scale.decode(np.array(drawn)), expected, rtol=1e-3, atol=1e-3)


def test_the_file_says_what_it_is(onnx: Any) -> None:
    model, session = hmrnn.load("novel-small"), onnxruntime.InferenceSession(onnx("novel-small"))
    said = session.get_modelmeta().custom_metadata_map
    assert said["reads"] == to_json(model.reads.to_dict()).decode()
    assert json.loads(said["config"])["model"] == json.loads(to_json(model.config))["model"]


def test_what_cannot_be_written_is_refused(
    command: tiny.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(replaced(tiny.config(), {"segments.size": 4, "segments.reader": 4, "segments.longest": 3}), Path("words"))
    save(replaced(tiny.config(), CONDITIONED | {"model.condition": "state"}), Path("state"))
    save(tiny.config(hidden_size=(4,), num_layers=1, rnn="lstm"), Path("plain"))
    for source in ("reading-small", "words", "state"):
        assert source in command.refused(f"export --onnx file.onnx -m {source}")
    assert not Path("file.onnx").exists()
    assert "missing/file" in command.refused("export --onnx missing/file -m plain")
    assert "nothing" in command.refused("export --onnx file.onnx -m nothing")
    (tmp_path / "plain" / "model.safetensors").write_bytes(b"\0" * 100)
    command.refused("export --onnx file.onnx -m plain")
