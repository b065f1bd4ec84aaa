"""The prose of a Wikipedia dump: what a reader sees of an article, and nothing else."""

import lzma
from pathlib import Path

import pytest

from hmrnn import InputError
from hmrnn.cli.main import run
from hmrnn.data.text.wikipedia import paragraphs, wikipedia_prose

TAIL = " This sentence makes the paragraph as long as it has to be."
RULES = {
    "A [[cat]] and a [[Dog|hound]]s.": "A cat and a hounds.",
    "'''Bold''' and ''slanted'' don't matter.": "Bold and slanted don't matter.",
    "One{{note|with {{another}} inside}} two.": "One two.",
    "A<ref name=x>not seen</ref> b<ref y/> c <!-- nor this -->d.": "A b c d.",
    "See [http://example.org the page] or http://example.org/x now.": "See the page or now.",
    "[[Image:Cat.jpg|thumb|A [[Cat|feline]] sits]]The cat.": "The cat.",
    "The end.[[Category:Cats]][[de:Katze]]": "The end.",
    "Caf\u00e9s in \u0141\u00f3d\u017a \u2013 \u201cna\u00efve\u201d ones.": 'Cafes in Lodz - "naive" ones.',
    "Water (; ) boils , at 100&nbsp;degrees .": "Water boils, at 100 degrees.",
    "x<sup>2</sup> &lt; 5 is not kept": None,
}
LEFT_OUT = [
    "== A heading that is long enough to be taken for a paragraph, if it were one. ==",
    "* An item of a list that is long enough to be taken for a paragraph, if it were one.",
    "Too short.",
    "A line that is long enough to be taken for a paragraph but does not end a sentence as it should",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439: too much of this has no equivalent in plain letters.",
    "{| class=x\n|-\n| A cell that is long enough to be taken for a paragraph, if it were one.\n|}",
]


@pytest.mark.parametrize(("markup", "shown"), RULES.items())
def test_rules(markup: str, shown: str | None) -> None:
    assert list(paragraphs(markup + TAIL)) == ([] if shown is None else [shown + TAIL])


@pytest.mark.parametrize("markup", LEFT_OUT)
def test_left_out(markup: str) -> None:
    assert list(paragraphs(markup)) == []
    assert list(paragraphs(f"{markup}\nA paragraph.{TAIL}")) == [f"A paragraph.{TAIL}"]


def dump(*articles: str) -> bytes:
    pages = (f"<page><title>x &amp; y</title>\n<text xml:space='preserve'>{a}</text></page>" for a in articles)
    return "\n".join(["<mediawiki>", *pages, "</mediawiki>"]).encode()


def test_a_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = dump(
        f"&quot;One&quot; &amp;amp; two&lt;br /&gt;.{TAIL}",
        f"#REDIRECT [[x]]\nNot seen.{TAIL}",
        f"Three.{TAIL}\n\nFour.{TAIL}",
    )
    (tmp_path / "dump.xz").write_bytes(lzma.compress(given))
    run(["data", "--prose-from", str(tmp_path / "dump.xz"), "--out", str(tmp_path / "out.txt")])
    expected = f'"One" & two.{TAIL}\nThree.{TAIL}\nFour.{TAIL}\n'
    assert (tmp_path / "out.txt").read_text() == expected
    assert f"{len(expected)} characters" in capsys.readouterr().out


def test_clear_errors(tmp_path: Path) -> None:
    (tmp_path / "empty.xml").write_text("<mediawiki></mediawiki>")
    with pytest.raises(InputError, match="holds no article"):
        wikipedia_prose(tmp_path / "empty.xml", tmp_path / "out")
    with pytest.raises(InputError, match="there is no file"):
        wikipedia_prose(tmp_path / "none", tmp_path / "out")
    assert list(tmp_path.iterdir()) == [tmp_path / "empty.xml"]
