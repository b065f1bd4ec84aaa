"""README and docs tell the truth: their commands and examples run, their tables and links match what is there."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hmrnn
import tiny
from hmrnn.cli import arguments as flags
from hmrnn.cli import main as cli
from hmrnn.config import SECTIONS, Config
from hmrnn.presets import PRESETS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "guide.md"
MODEL = ROOT / "docs" / "model.md"
PAGES = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]

TEXT = "It was the best of times, it was the worst of times, it was the season of light.\n" * 25
SMALL = (
    "--model.hidden-size 8 --model.embedding-size 4 --model.output-size 8 --train.epochs 1 --train.batch-size 4 "
    "--train.length 20 --train.device cpu"
)
SETUP = ("pip install .",)
PARTS = SECTIONS


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
    return any("corpora/" in word for word in arguments) or "runs/ptb-best" in arguments


def parse_only(arguments: list[str]) -> Any:
    """What the command line makes of ``arguments``; files that the pages name need not exist."""
    return cli.parsed(arguments[0], arguments[1:])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory where every command and example of the README has been run, in their order."""
    place = tmp_path_factory.mktemp("readme")
    (place / "book.txt").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(place):
        patch.setenv("HMRNN_CACHE", str(place / "cache"))
        for kind, text in blocks(README):
            if kind == "python":
                exec(compile(text, "README.md", "exec"), {})
            elif kind == "bash":
                for arguments in filter(None, map(hmrnn_arguments, commands_in(text))):
                    if not needs_corpus(arguments):
                        small = shlex.split(SMALL) if arguments[0] == "train" else []
                        assert cli.run([*arguments, *small]) == 0, arguments
        yield place


def test_readme_runs(place: Path) -> None:
    assert {path.name for path in (place / "runs").iterdir()} == {"book"}
    for name in ("segments.png", "figure4.png", "curves.png"):
        assert (place / name).read_bytes().startswith(b"\x89PNG")


def test_readme_shows_the_path_from_text_to_picture() -> None:
    shown = [arguments[0] for arguments in map(hmrnn_arguments, shell_lines(README)) if arguments]
    assert [name for name in dict.fromkeys(shown) if name != "data"] == [
        "segment", "generate", "score", "plot", "train", "evaluate",
    ]  # fmt: skip
    assert [kind for kind, _ in blocks(README)].count("python") == 2


def test_every_other_command_of_the_readme_is_known() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = []
    for line in shell_lines(README):
        if line.startswith("make "):
            named.append(line.removeprefix("make "))
            assert named[-1] in targets, line
        else:
            assert hmrnn_arguments(line) or line in SETUP, line
    assert named == ["demo", "test"]


def test_commands_that_need_a_corpus_parse() -> None:
    lines = [a for a in map(hmrnn_arguments, shell_lines(GUIDE)) if a and needs_corpus(a)]
    trained = set()
    for arguments in lines:
        parsed = parse_only(arguments)
        if arguments[0] == "train":
            parsed.config.check()
            assert parsed.data.path
            trained.add(arguments[1])
    assert trained == {"ptb", "ptb-best", "text8", "enwik8", "iamondb", "iamondb-best"}


@pytest.mark.parametrize("page", [MODEL, GUIDE], ids=lambda page: page.name)
def test_examples_in_docs_run(page: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("HMRNN_CACHE", str(place / "cache"))
    names: dict[str, Any] = {}
    examples = [text for kind, text in blocks(page) if kind == "python"]
    assert examples
    for text in examples:
        exec(compile(text, page.name, "exec"), names)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_commands_in_docs_parse(page: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    Path("mine.npz").touch()  # which an example of the guide makes, and commands after it take
    for line in shell_lines(page):
        arguments = hmrnn_arguments(line)
        assert arguments, line
        parse_only(arguments)


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
    (shown,) = [text for kind, text in blocks(README) if kind == "text" and text.startswith("src/hmrnn")]
    named = [line.split()[0] for line in shown.splitlines()[1:]]
    rooms = {path.parent.name + "/" for path in (ROOT / "src" / "hmrnn").glob("*/__init__.py")}
    files = {path.name for path in (ROOT / "src" / "hmrnn").glob("[!_]*.py")}
    assert set(named) == rooms | files
    assert len(named) == len(set(named))


def shown(value: Any) -> str:
    """A value as the tables of the guide write it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def fields() -> dict[str, Any]:
    """Every field of the config with its default."""
    return {f"{part}.{name}": value for part, config in vars(Config()).items() for name, value in vars(config).items()}


def rows(page: Path, heading: str) -> list[list[str]]:
    """The cells of the tables under a heading, line by line."""
    section = re.search(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    assert section, heading
    table = [line for line in section[1].splitlines() if line.startswith("| ")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" |")] for line in table]


def test_guide_lists_every_setting_with_its_default() -> None:
    listed = {row[0]: row[1] for part in PARTS for row in rows(GUIDE, part)[1:]}
    assert listed == {name: shown(value) for name, value in fields().items()}


def test_guide_lists_what_the_presets_change() -> None:
    (_, *names), *table = rows(GUIDE, "Presets")
    assert sorted(names) == sorted(PRESETS)
    values = {
        name: {f"{part}.{field.name}": shown(getattr(getattr(config, part), field.name))
               for part in PARTS for field in dataclasses.fields(getattr(config, part))}
        for name, config in PRESETS.items()
    }  # fmt: skip
    differing = [key for key in fields() if len({values[name][key] for name in names}) > 1]
    assert {row[0]: row[1:] for row in table} == {key: [values[name][key] for name in names] for key in differing}


@pytest.mark.parametrize("command", sorted(flags.ARGUMENTS))
def test_guide_lists_every_option(command: str) -> None:
    text = GUIDE.read_text()
    section = re.search(rf"^### hmrnn {command}\n(.*?)^##", text, re.MULTILINE | re.DOTALL)
    assert section, command
    shared = text.split("Options that")[1].split("###")[0]
    for field in dataclasses.fields(flags.ARGUMENTS[command]):
        if field.name == "target":
            continue  # the examples show it
        if field.name in PARTS and command == "train":
            assert f"--{field.name}.*" in section[1]
        else:
            flag = f"--{field.name.replace('_', '-')}"
            positional = "positional" in field.metadata
            where = shared if field.name in ("model", "device") else section[1]
            assert re.search(rf"`{field.name.upper()}`" if positional else rf"`{flag}\b", where), f"{command} {flag}"


def test_guide_explains_what_a_run_writes(place: Path) -> None:
    text = GUIDE.read_text()
    listed = [row[0] for row in rows(GUIDE, "metrics.jsonl")[1:]]
    lines = [json.loads(line) for line in (place / "runs/book/metrics.jsonl").read_text().splitlines()]
    assert set(listed) == {key for line in lines if line["event"] != "detector" for key in line}
    for path in (place / "runs/book").rglob("*"):
        name = re.sub(r"-\d{8}$", "-", path.name)
        assert name in text, path


def test_model_page_lists_every_option_of_hmlstm() -> None:
    listed = {row[0]: row[1] for row in rows(MODEL, "Options of `HMLSTM`")}
    for name, option in inspect.signature(hmrnn.HMLSTM).parameters.items():
        default = "" if option.default is option.empty else option.default
        assert listed[name] == (f'"{default}"' if default and isinstance(default, str) else str(default)), name
    assert set(inspect.signature(hmrnn.HMLSTM.forward).parameters) - {"self"} <= set(listed)


def test_guide_lists_every_parameter_of_the_segmenter() -> None:
    parameters = inspect.signature(hmrnn.HMSegmenter).parameters
    listed = {row[0].strip("`"): row[1].strip("`") for row in rows(GUIDE, "Series of numbers")[1:]}
    assert listed == {name: repr(p.default).replace("'", '"') for name, p in parameters.items()}


MEASURED = {
    "Penn Treebank": ([f"ptb/ln-lstm-seed{seed}" for seed in (1, 2)], [f"ptb/held-seed{seed}" for seed in (1, 2)]),
    "enwik8, 3": (["enwik8/ln-lstm-seed1"], ["enwik8/held-seed1"]),
    "enwik8 at word rates": (["enwik8-frontier/ln-lstm-512-seed1"], ["enwik8-cell/pending-seed1"]),
    "IAM-OnDB": ([f"iamondb/lstm-seed{seed}" for seed in (1, 2)], [f"iamondb/hm-seed{seed}" for seed in (1, 2)]),
}


@tiny.needs_results
def test_what_the_readme_says_was_measured_is_what_was_recorded() -> None:
    table = [row for row in rows(README, "Measured") if len(row) == 4][1:]
    assert len(table) == len(MEASURED)
    for (said, *figures, _), (name, networks) in zip(table, MEASURED.items(), strict=True):
        assert said.startswith(name)
        for figure, runs in zip(figures, networks, strict=True):
            tests = [json.loads((ROOT / "results" / run / "result.json").read_text())["test"] for run in runs]
            mean = sum(test.get("bits") or test["log_likelihood"] for test in tests) / len(tests)
            assert figure == f"{mean:.{len(figure.partition('.')[2])}f}", (name, runs)
    products = [json.loads((ROOT / "results" / run / "result.json").read_text())["test"]["multiply_adds"] / 1e6
                for (run,) in MEASURED["enwik8 at word rates"]]  # fmt: skip
    assert "{:.1f} and {:.1f} million multiply-adds per symbol".format(*products) in table[2][0]


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 180
