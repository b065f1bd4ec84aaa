"""Cleaning a Wikipedia dump: every rule on a small dump, whatever the size of the blocks it is read in."""

import lzma
from pathlib import Path

import pytest

from hmrnn import InputError
from hmrnn.data import archives
from hmrnn.data.text import wikipedia
from hmrnn.data.text.wikipedia import clean_wikipedia

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


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_every_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(archives, "_BLOCK", block)
    (tmp_path / "dump.xml").write_text(DUMP, encoding="utf-8")
    count = clean_wikipedia(tmp_path / "dump.xml", tmp_path / "clean")
    assert (tmp_path / "clean").read_text() == CLEAN
    assert count == len(CLEAN)


@pytest.mark.parametrize(("article", "left"), RULES.items())
def test_one_rule(tmp_path: Path, article: str, left: str) -> None:
    (tmp_path / "dump.xml").write_text(f"<text x>a</text><text x>{article}</text>", encoding="utf-8")
    clean_wikipedia(tmp_path / "dump.xml", tmp_path / "clean")
    assert (tmp_path / "clean").read_text() == " a" + left


def test_cut_off_packed_and_with_progress(tmp_path: Path) -> None:
    (tmp_path / "dump.xml.xz").write_bytes(lzma.compress(DUMP.encode()))
    told: list[tuple[int, int]] = []
    clean_wikipedia(
        tmp_path / "dump.xml.xz", tmp_path / "clean", characters=50, progress=lambda done, of: told.append((done, of))
    )
    assert (tmp_path / "clean").read_text() == CLEAN[:50]
    size = (tmp_path / "dump.xml.xz").stat().st_size
    assert told[-1] == (size, size)


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "dump.xml").write_text(DUMP, encoding="utf-8")
    (tmp_path / "clean").write_text("precious")
    with pytest.raises(InputError, match="exists already"):
        clean_wikipedia(tmp_path / "dump.xml", tmp_path / "clean")
    assert (tmp_path / "clean").read_text() == "precious"


@pytest.mark.parametrize("content", ["", "no markup at all", "<page><title>text</title></page>"])
def test_not_a_dump(tmp_path: Path, content: str) -> None:
    (tmp_path / "dump.xml").write_text(content)
    with pytest.raises(InputError, match="holds no article"):
        clean_wikipedia(tmp_path / "dump.xml", tmp_path / "clean")
    assert [path.name for path in tmp_path.iterdir()] == ["dump.xml"]


def test_memory_is_bounded_on_what_is_no_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_BLOCK", 10)
    monkeypatch.setattr(wikipedia, "_LONGEST", 100)
    (tmp_path / "dump.xml").write_text("x" * 200)
    with pytest.raises(InputError, match="is not XML"):
        clean_wikipedia(tmp_path / "dump.xml", tmp_path / "clean")
    assert [path.name for path in tmp_path.iterdir()] == ["dump.xml"]


def test_other_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        clean_wikipedia(tmp_path / "dump.xml", tmp_path / "clean")
    (tmp_path / "dump.xml").write_text(DUMP, encoding="utf-8")
    with pytest.raises(InputError, match=r"cannot write .*clean: No such file or directory; give a path"):
        clean_wikipedia(tmp_path / "dump.xml", tmp_path / "nowhere" / "clean")
    with pytest.raises(InputError, match="at least 1"):
        clean_wikipedia(tmp_path / "dump.xml", tmp_path / "clean", characters=0)
