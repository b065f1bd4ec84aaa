"""benchmarks/wikipedia.py: every rule on a small dump, whatever the size of the blocks it is read in."""

import html
import lzma
from pathlib import Path

import pytest

import tiny
from hmrnn.utils import archives
from refusals import refused

# What stands between <text ...> and </text> of one article, and what is left of it.
RULES = {
    "Letters only, in LOWER case: don't! naïve": " letters only in lower case don t na ve",
    "In 1984, 30%": " in one nine eight four three zero",
    "2x5=67": " two x five six seven",
    "a&lt;ref name=x&gt;not seen&lt;/ref&gt; b": " a b",
    "a&lt;br /&gt;b &lt;!-- not seen --&gt;c": " ab c",
    "[http://example.org/page?x=1 shown here] end": " shown here end",
    "[https://example.org stays]": " https example org stays",
    "[[Image:Cat.jpg|thumb|left|120px|A cat]] sat": " a cat sat",
    "[[IMAGE:Dog.png|frame|RIGHT|a [[Dog|hound]]]]": " a hound",
    "x|Thumb|LEFT|Right|80PX y": " x y",
    "[[Category:Living people| Name]] x": " living people x",
    "[[CATEGORY:Cats]]": " cats",
    "[[de:Katze]] [[zh-min-nan:Niau]] cat": " cat",
    "[[Plural form|plurals]] and [[links]]": " plurals and links",
    "pre[[fix]]ed [and] so on": " prefixed and so on",
    "{{stub}}a{{infobox|name=b}}c": " ac",
    "{| table |} after {one}": " after",
    "&amp;nbsp;&amp;mdash;x": " x",
    "AT&amp;amp;T; R&amp;D; z": " at t r z",
    "&quot;quoted&quot;": " quoted",
    "line\none\n\n== Heading ==": " line one heading",
}
ARTICLES = [f'<text xml:space="preserve">{article}</text>' for article in RULES]
DUMP = "\n".join(
    [
        "<mediawiki>\n  <siteinfo><sitename>Not seen</sitename></siteinfo>",
        *(f"  <page><title>Not seen {n}</title><id>{n}</id>\n    {text}\n  </page>" for n, text in enumerate(ARTICLES)),
        '  <page><text xml:space="preserve">#REDIRECT [[Not seen]]</text></page>',
        '  <page><text xml:space="preserve">never shown, as it mentions #redirect</text><x>nor this</x></page>',
        '  <page><text xml:space="preserve">The end is cut o',
    ]
)
CLEAN = "".join(RULES.values()) + " the end is cut o"


TAIL = " This sentence makes the paragraph as long as it has to be."
PARAGRAPHS = {
    "A [[cat]] and a [[Dog|hound]]s.": "A cat and a hounds.",
    "'''Bold''' and ''slanted'' don't matter.": "Bold and slanted don't matter.",
    "One{{note|with {{another}} inside}} two.": "One two.",
    "A<ref name=x>not seen</ref> b<ref y/> c <!-- nor this -->d.": "A b c d.",
    "See [http://example.org the page] or http://example.org/x now.": "See the page or now.",
    "[[Image:Cat.jpg|thumb|A [[Cat|feline]] sits]]The cat.": "The cat.",
    "The end.[[Category:Cats]][[de:Katze]]": "The end.",
    "Caf\u00e9s in \u0141\u00f3d\u017a \u2013 \u201cna\u00efve\u201d ones.": 'Cafes in Lodz - "naive" ones.',
    "Water (; ) boils , at 100&nbsp;degrees .": "Water boils, at 100 degrees.",
}
LEFT_OUT = [
    "x<sup>2</sup> &lt; 5 is not kept",
    "== A heading that is long enough to be taken for a paragraph, if it were one. ==",
    "* An item of a list that is long enough to be taken for a paragraph, if it were one.",
    "Too short.",
    "A line that is long enough to be taken for a paragraph but does not end a sentence as it should",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439: too much of this has no equivalent in plain letters.",
    "{| class=x\n|-\n| A cell that is long enough to be taken for a paragraph, if it were one.\n|}",
]
WIKIPEDIA = tiny.script(Path(__file__).parents[1] / "benchmarks" / "wikipedia.py")


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(archives, "_BLOCK", block)
    (tmp_path / "dump.xml").write_text(DUMP, encoding="utf-8")
    assert WIKIPEDIA.extract(tmp_path / "dump.xml", tmp_path / "clean", "text8") == len(CLEAN)
    assert (tmp_path / "clean").read_text() == CLEAN


def test_paragraphs(tmp_path: Path) -> None:
    articles = [*(markup + TAIL for markup in PARAGRAPHS), *LEFT_OUT, f"#REDIRECT [[x]]\nNot seen.{TAIL}"]
    pages = (f"<text xml:space='preserve'>{html.escape(article)}</text>" for article in articles)
    (tmp_path / "dump.xz").write_bytes(lzma.compress("\n".join(pages).encode()))
    WIKIPEDIA.extract(tmp_path / "dump.xz", tmp_path / "prose", "prose")
    shown = (tmp_path / "prose").read_text().splitlines()
    assert shown == [paragraph + TAIL for paragraph in PARAGRAPHS.values()]


def test_what_is_there_is_kept_and_a_text_may_be_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dump.xml").write_text(DUMP, encoding="utf-8")
    out = tmp_path / "clean"
    monkeypatch.setattr(
        "sys.argv", ["wikipedia", "text8", str(tmp_path / "dump.xml"), "--out", str(out), "--char", "50"]
    )
    WIKIPEDIA.main()
    assert out.read_text() == CLEAN[:50]
    with refused():
        WIKIPEDIA.main()
    (tmp_path / "dump.xml").write_text("no markup at all")
    with refused():
        WIKIPEDIA.extract(tmp_path / "dump.xml", tmp_path / "other", "prose")
    assert not (tmp_path / "other").exists()
