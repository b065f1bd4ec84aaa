"""The list of mutations, which ``make mutations`` runs: each names text that is in the source, and tests that exist."""

from pathlib import Path

import tiny


def test_every_mutation_can_be_made() -> None:
    script = tiny.script(Path(__file__).with_name("mutations.py"))
    source = script.ROOT / "src" / "hmrnn"
    sources = {path.relative_to(source).as_posix(): path.read_text() for path in source.rglob("*.py")}
    tests = {path.stem for path in (script.ROOT / "tests").rglob("test_*.py")}
    for mutation in (*script.OF_OPS, *script.OF_MODELS):
        found = sum(text.count(mutation.text) for name, text in sources.items() if name.startswith(mutation.place))
        assert found == 1, mutation.name
        assert tests.issuperset(mutation.tests.split()), mutation.name
