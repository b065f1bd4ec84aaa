"""Do the tests notice small faults? Each mutation is one wrong edit of the source; some test has to fail.

    make mutations                                            all of them, with a count at the end
    python tests/stress/mutations.py sparse-flush rate-prior  these alone

Every mutation is made in a temporary copy of src and tests, and the test files that it names run there, with -x. A
mutation names text, not a line: it may move within the files that its place names, but the text must be there exactly
once. Where it is not, nothing runs: the list has to be mended first. A test that fails must pass without the mutation.
"""

from __future__ import annotations

import argparse
import importlib
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from mutation_list import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
LIMIT = 400
"""Seconds of the processor after which a test counts as hanging, which is noticed, too."""


IMPORTED = (
    "hypothesis", "msgspec", "numpy", "pytest", "rich.console", "safetensors.torch", "torch", "torch.distributed",
    "torch.nn.parallel", "torch.testing",
)  # fmt: skip
"""Imported once for all children, as it takes longer than most tests."""


def mutate(source: Path, mutation: Mutation) -> tuple[Path, str]:
    """The file that ``mutation`` changes, and its new content."""
    place = source / mutation.place
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    found = [path for path in files if path.is_file() and mutation.text in path.read_text()]
    if len(found) != 1 or found[0].read_text().count(mutation.text) != 1:
        names = [f"{path.relative_to(source)} x {path.read_text().count(mutation.text)}" for path in found]
        raise SystemExit(f"{mutation.name}: the text must be in {mutation.place} exactly once; found {names}")
    assert mutation.text != mutation.instead
    changed = found[0].read_text().replace(mutation.text, mutation.instead)
    compile(changed, str(found[0]), "exec")
    return found[0], changed


def test_files(root: Path, mutation: Mutation) -> list[Path]:
    names = mutation.tests.split()
    found = [path for name in names for path in (root / "tests").rglob(f"{name}.py")]
    if len(found) < len(names):
        raise SystemExit(f"{mutation.name}: of the tests {names} only {[path.name for path in found]} were found")
    return found


def first_failure(copy: Path, tests: list[str]) -> str | None:
    """The first test that fails, in a child that starts with torch imported; None if all pass."""
    child = os.fork()
    if child == 0:
        log = os.open(copy / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
        os.environ |= {"PYTHONPATH": f"{copy}/src", "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True  # a compiled mutation could be taken for the source of the same second and size
        sys.path.insert(0, f"{copy}/src")
        os.chdir(copy)
        import pytest

        status = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:playwright", *tests])
        sys.stdout.flush()
        os._exit(int(status))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, 1, 2) and code >= 0:  # 2: a file that cannot even be imported
        raise SystemExit(f"pytest ended with {code}:\n{(copy / 'log').read_text()[-2000:]}")
    if code == 0:
        return None
    said = (copy / "log").read_text().splitlines()
    failed = [line.split(" - ")[0] for line in said if line.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else f"ended with {code}"


def run(root: Path, mutations: list[Mutation]) -> list[str]:
    """Say of each mutation whether it is noticed; the names of those that are not."""
    plan = [(mutation, *mutate(root / "src" / "hmrnn", mutation), test_files(root, mutation)) for mutation in mutations]
    for name in IMPORTED:
        importlib.import_module(name)
    survivors = []
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary)
        for part in ("src", "tests", "pyproject.toml", "README.md", "docs", "results", "benchmarks"):
            if (root / part).is_dir():
                shutil.copytree(
                    root / part, copy / part, ignore=shutil.ignore_patterns("__pycache__", "*.gif", "*.png")
                )
            elif (root / part).exists():
                shutil.copy(root / part, copy / part)
        for mutation, path, changed, files in plan:
            target = copy / path.relative_to(root)
            original, began = target.read_text(), time.monotonic()
            tests = [str(file.relative_to(root)) for file in files]
            target.write_text(changed)
            try:
                failed = first_failure(copy, tests)
            finally:
                target.write_text(original)
            if failed is not None and failed.startswith("FAILED") and first_failure(copy, [failed[7:]]):
                raise SystemExit(f"{failed[7:]} fails without any mutation, too; mend it first")
            took = f"{time.monotonic() - began:5.0f} s"
            print(f"{'SURVIVED' if failed is None else 'caught  '} {took}  {mutation.name}  {failed or ''}", flush=True)
            if failed is None:
                survivors.append(mutation.name)
    print(f"{len(plan) - len(survivors)} of {len(plan)} mutations caught; not caught: {', '.join(survivors) or 'none'}")
    return survivors


def main(mutations: list[Mutation]) -> int:
    """The command line; the exit status is 1 if a mutation survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="mutations to make; all if none is named")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - {mutation.name for mutation in mutations}:
        parser.error(f"there is no mutation {', '.join(sorted(unknown))}")
    chosen = [mutation for mutation in mutations if not arguments.names or mutation.name in arguments.names]
    return 1 if run(arguments.root.absolute(), chosen) else 0


if __name__ == "__main__":
    sys.exit(main(MUTATIONS))
