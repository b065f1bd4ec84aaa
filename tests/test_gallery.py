"""The gallery: every picture is shown with the command that draws it, and one script runs them all."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tiny
import tiny_strokes
from hmrnn import checkpoint
from hmrnn.checkpoint import Checkpoint
from hmrnn.kinds.strokes.files import save_strokes
from hmrnn.kinds.strokes.strokes import Strokes
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.reading.vocabulary import Vocabulary

DOCS = Path(__file__).parents[1] / "docs"
SHOWN = re.findall(r"!\[[^\]]+\]\(gallery/([^)]+)\)", (DOCS / "gallery.md").read_text())


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    return tiny.script(DOCS / "gallery.py")


def outs(gallery: ModuleType) -> list[str]:
    """The files that the commands of the page write."""
    return [words[words.index("--out") + 1] for words in gallery.commands()]


def test_every_picture_has_its_command_and_every_command_its_picture(gallery: ModuleType) -> None:
    assert [f"docs/gallery/{name}" for name in SHOWN] == outs(gallery)
    assert len(set(SHOWN)) == len(SHOWN) >= 6


def test_pictures_are_there_and_small(gallery: ModuleType) -> None:
    assert {path.name for path in (DOCS / "gallery").iterdir()} == set(SHOWN)
    for path in (DOCS / "gallery").iterdir():
        assert path.stat().st_size <= gallery.LARGEST, path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of handwriting, one of text that knows all of ASCII, and a file of lines with the names on the page."""
    place = tmp_path_factory.mktemp("gallery")
    tiny_strokes.save(place / "hand", tiny_strokes.model())
    vocabulary = Vocabulary("characters", ("\n", *map(chr, range(32, 127))))
    config = tiny.config()
    network = LanguageModel(len(vocabulary), config.model)
    checkpoint.write(place / "text", Checkpoint(config, vocabulary, dict(network.state_dict())))
    lines = tiny_strokes.strokes(2)
    save_strokes(Strokes.of(list(lines), names=["line-00078", "line-00009"]), place / "lines.npz")
    return place


def run(gallery: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["gallery.py", *map(str, arguments)])
    gallery.main()


@pytest.mark.slow
def test_the_script_draws_them_all(
    gallery: ModuleType, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DOCS.parent)
    short = [["20" if word in ("400", "500", "700") else word for word in words] for words in gallery.commands()]
    monkeypatch.setattr(gallery, "commands", lambda: short)
    hand, lines = models / "hand", models / "lines.npz"
    chosen = (
        "--handwriting",
        hand,
        "--lines",
        lines,
        "--people",
        hand,
        "--written",
        lines,
        "--text",
        models / "text",
        "--words",
        models / "text",
    )
    run(gallery, monkeypatch, *chosen, "--out", tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {*SHOWN} - {"events.svg"}  # a model of that kind
