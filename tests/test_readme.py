"""README and docs tell the truth: their commands and examples run, their tables and links match what is there."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tiny
import tiny_strokes
from hmrnn.cli import main as cli
from hmrnn.kinds.strokes.files import save_strokes

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
SITE = sorted(DOCS.rglob("*.md"))
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
"""Pages whose commands are run; those of other pages are parsed."""
PAGES = [README, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *SITE]

TEXT = "It was the best of times, it was the worst of times, it was the season of light.\n" * 70
SMALL = "--model.hidden-size 8 --model.output-size 8 --train.epochs 1 --train.batch-size 4 --train.device cpu"
QUICK = "--train.epochs 1 --train.batch-size 4 --train.device cpu --no-report"


def blocks(page: Path) -> list[tuple[str, str]]:
    """The fenced blocks of a page, in order: (language, content)."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def shell_lines(page: Path) -> list[str]:
    """The commands in the bash blocks of a page."""
    return [line for kind, text in blocks(page) if kind == "bash" for line in commands_in(text)]


def commands_in(text: str) -> list[str]:
    """The lines of a shell script, without comments."""
    return [line for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()) if line]


def hmrnn_arguments(line: str) -> list[str] | None:
    """What follows ``hmrnn`` or ``-m hmrnn`` in a command; None if it is no such command."""
    words = shlex.split(line)
    if words[0] == "torchrun":
        assert words[words.index("hmrnn") - 1] == "-m"
        return words[words.index("hmrnn") + 1 :]
    return words[1:] if words[0] == "hmrnn" else None


def needs_corpus(arguments: list[str]) -> bool:
    return any("corpora/" in word for word in arguments) or bool({"runs/ptb-best", "iamondb"} & {*arguments})


def parse_only(arguments: list[str]) -> Any:
    """What the command line makes of ``arguments``; files that the pages name need not exist."""
    return cli.parsed(arguments[0], arguments[1:])


def run_blocks(page: Path, fresh: bool = False) -> None:
    """Run the commands and examples of a page in their order, small ones; train no run again that is there.

    With ``fresh`` a run is trained anew unless it is resumed, by settings that any network and kind of data has.
    """
    names: dict[str, Any] = {}
    for kind, text in blocks(page):
        if kind == "python":
            exec(compile(text, page.name, "exec"), names)
        elif kind == "bash":
            for arguments in filter(None, map(hmrnn_arguments, commands_in(text.replace("\\\n", " ")))):
                given = parse_only(arguments)
                if needs_corpus(arguments) or arguments[0] == "explore":
                    continue
                if arguments[0] == "train" and Path(given.out).exists():
                    if not fresh:
                        continue
                    if "--resume" not in arguments:
                        shutil.rmtree(given.out)
                small = {
                    "train": shlex.split(QUICK if fresh else SMALL),
                    "generate": [] if "--text" in arguments else ["--length", "20"],
                }
                assert cli.run([*arguments, *small.get(arguments[0], [])]) == 0, arguments


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory where every command and example of the README has been run, with what other pages name, too."""
    place = tmp_path_factory.mktemp("readme")
    (place / "book.txt").write_text(TEXT)
    for name in ("more.txt", "names.txt"):
        (place / name).write_text(TEXT[:200])
    save_strokes(tiny_strokes.strokes(40), place / "lines.npz")
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(place):
        patch.setenv("HMRNN_CACHE", str(place / "cache"))
        patch.syspath_prepend(ROOT / "examples" / "events")
        run_blocks(README)
        yield place


@pytest.fixture
def inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    monkeypatch.setenv("HMRNN_CACHE", str(place / "cache"))
    return place


def test_readme_runs(place: Path) -> None:
    assert {path.name for path in (place / "runs").iterdir()} == {"book"}


def test_readme_is_short() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= 150
    assert max(map(len, text.splitlines())) <= 100
    assert len(text.split()) <= 900


def test_docs_are_short() -> None:
    assert sum(len(page.read_text().split()) for page in SITE) <= 20_700


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.name)
def test_tutorials_run(page: Path, inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_readme.SMALL", f"{SMALL} --no-report")
    run_blocks(page)


WITH_EXAMPLES = [page for page in SITE if page not in TUTORIALS and "python" in dict(blocks(page))]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.name)
def test_examples_in_docs_run(page: Path, inside: Path) -> None:
    names: dict[str, Any] = {}
    for kind, text in blocks(page):
        if kind == "python":
            exec(compile(text, page.name, "exec"), names)


WITH_COMMANDS = [page for page in SITE if page not in TUTORIALS and shell_lines(page)]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_commands_in_docs_parse(page: Path, inside: Path) -> None:
    for line in shell_lines(page):
        arguments = hmrnn_arguments(line)
        assert arguments, line
        parse_only(arguments)


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in WITH_COMMANDS if p.name != "gallery.md"], ids=lambda page: page.name)
def test_commands_in_docs_run(page: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but those that need a corpus, people who look at the page, or models that only the gallery names."""
    folder = tmp_path / "here"
    shutil.copytree(place, folder)
    texts = TEXT.splitlines()[:25]
    words = [
        f"{word}\t{'N' if len(word) > 3 else 'D'}" if word else "" for line in texts for word in [*line.split(), ""]
    ]
    rows = "".join(f"{'ab' * (k % 7 + 1)},{k % 7 / 2}\n" for k in range(40))
    files = {
        "people.csv": "country\n" + "Norway\nPeru\n" * 20,
        "names.txt": "Anna\nOla\n" * 20,
        "reviews.tsv": "ab ab\tgood\ncd cd cd\tbad\n" * 20,
        "new.txt": "ab ab\ncd\n",
        "words.conll": "\n\n".join(words),
        "sounds.jsonl": '{"source": "ab", "target": "AB"}\n{"source": "ba", "target": "BA"}\n' * 20,
        "prices.csv": rows,
        "power.csv": "".join(f"{k % 24 / 24}\n" for k in range(400)),
        "other.txt": TEXT[:500],
        "ends.txt": "3\n7\n",
        "handwritten.npz": "",
    }
    for name, content in files.items():
        (folder / name).write_text(content)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HMRNN_CACHE", str(place / "cache"))
    run_blocks(page, fresh=True)


@tiny.needs_results
def test_the_first_page_lists_every_page_once() -> None:
    index = DOCS / "index.md"
    links = re.findall(r"^- \[[^]]+\]\(([^)]+)\)", index.read_text(), re.MULTILINE)
    listed = [(DOCS / link).resolve() for link in links]
    assert sorted({*SITE} - {index, *listed}) == []
    assert len(listed) == len(set(listed))


@tiny.needs_results
def test_links_resolve() -> None:
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            assert "://" not in link, f"{page.name}: {link} leads outside"
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.is_file(), f"{page.name}: {link} leads nowhere"
            assert not anchor or anchor in anchors(target), f"{page.name}: {link} names no heading"


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them in links."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_the_map_names_every_room_and_no_other() -> None:
    (shown,) = [text for kind, text in blocks(DOCS / "architecture.md") if text.startswith("src/hmrnn")]
    named = [line.split()[0] for line in shown.splitlines()[1:]]
    rooms = {path.parent.name + "/" for path in (ROOT / "src" / "hmrnn").glob("*/__init__.py")}
    files = {path.name for path in (ROOT / "src" / "hmrnn").glob("[!_]*.py")}
    assert set(named) == rooms | files
    assert len(named) == len(set(named))


@tiny.needs_results
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of Sphinx, about its own extensions
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Sphinx reads every page and resolves every reference; `make docs` writes them as well."""
    from sphinx.application import Sphinx

    warnings = io.StringIO()
    plain: dict[str, object] = {"smartquotes": False}  # which take a tenth of the time
    app = Sphinx(ROOT, DOCS, tmp_path / "out", tmp_path / "trees", "dummy", plain, status=None, warning=warnings)
    app.build()
    assert warnings.getvalue() == ""
    assert len(app.env.found_docs) > len(SITE)
