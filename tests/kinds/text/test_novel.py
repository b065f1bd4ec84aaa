"""The book of the demo, from a package that may not be installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hmrnn.config import Config
from hmrnn.kinds.text.corpus import load_corpus
from hmrnn.kinds.text.novel import FILE, PACKAGE, novel, novel_file
from hmrnn.kinds.text.presets import PRESETS
from hmrnn.kinds.text.settings import TextData
from refusals import refused

BOOK = """Title: something

ADVENTURE  I.  A SCANDAL

I.

The first paragraph
of two lines.

"Yes."

ADVENTURE II. THE END

The last paragraph.

*** END OF THE PROJECT GUTENBERG EBOOK, X ***

Small print.
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a package like the real one, which can be imported."""
    folder = tmp_path / "site" / PACKAGE
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('the package must not be imported')\n")
    (folder / FILE).write_text(BOOK)
    monkeypatch.syspath_prepend(tmp_path / "site")
    return folder / FILE


def test_paragraphs_are_lines(package: Path) -> None:
    assert novel_file() == package
    assert novel(package) == 'The first paragraph of two lines.\n"Yes."\nThe last paragraph.\n'


def test_it_is_a_corpus(package: Path, tmp_path: Path) -> None:
    package.write_text(BOOK.replace("Yes.", "Yes, " * 50))
    corpus = load_corpus(TextData(format="novel"))
    parts = (corpus.vocabulary.decode(part) for part in (corpus.train, corpus.valid, corpus.test))
    assert "".join(parts) == novel(package)
    assert corpus.name == "novel"


def test_the_demo_reads_it(package: Path) -> None:
    assert Config.named("demo") == ("demo", PRESETS["demo"])
    package.unlink()
    assert Config.named("demo")[1].data == TextData(format="manual")


def test_another_file_is_refused(package: Path) -> None:
    package.write_text("ADVENTURE I. X\n\nwithout an end")
    with refused():
        novel(package)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hmrnn.kinds.text.novel.PACKAGE", "no_such_package")
    assert novel_file() is None
    with refused("data.format"):
        load_corpus(TextData(format="novel"))
