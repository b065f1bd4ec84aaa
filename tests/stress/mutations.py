"""Do the tests notice small faults? Each mutation is one wrong edit of the source; some test has to fail.

    make mutations                                            all of them, with a count at the end
    python tests/stress/mutations.py sparse-flush rate-prior  these alone
    python tests/stress/mutations.py --jobs 12                twelve at a time

Every mutation is made in a temporary copy of src and tests, and the test files that it names run there, with -x. A
mutation names text, not a line: it may move within the files that its place names, but the text must be there exactly
once. Where it is not, nothing runs: the list has to be mended first. A test that fails must pass without the mutation;
else the mutation is neither caught nor not, and the test has to be mended.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from mutation_list import OF_OPS, Mutation
from mutation_list_models import OF_MODELS

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
        path = [f"{copy}/src", *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ |= {"PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True  # a compiled mutation could be taken for the source of the same second and size
        sys.path.insert(0, f"{copy}/src")
        os.chdir(copy)
        import pytest

        status = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:playwright", *tests])
        sys.stdout.flush()
        os._exit(int(status))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 0:
        return None
    said = (copy / "log").read_text().splitlines()
    failed = [line.split(" - ")[0] for line in said if line.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else f"ended with {code}"


class Step(NamedTuple):
    """One mutation, as it is to be made in a copy of the repository."""

    name: str
    path: Path
    changed: str
    tests: list[str]


class Outcome(NamedTuple):
    name: str
    said: str
    """What happened: "caught", "SURVIVED", or "UNKNOWN" if a test fails without the mutation, too."""
    failed: str
    seconds: float


COPIED = ("src", "tests", "pyproject.toml", "README.md", "docs", "results", "benchmarks")


def copy_of(root: Path, place: Path) -> Path:
    """A copy of what the tests need, in a new folder in ``place``."""
    copy = Path(tempfile.mkdtemp(dir=place))
    for part in COPIED:
        if (root / part).is_dir():
            shutil.copytree(root / part, copy / part, ignore=shutil.ignore_patterns("__pycache__", "*.gif", "*.png"))
        elif (root / part).exists():
            shutil.copy(root / part, copy / part)
    return copy


def outcome(copy: Path, step: Step) -> Outcome:
    """Make a mutation in the copy, run its tests, and take it back."""
    target, began = copy / step.path, time.monotonic()
    original = target.read_text()
    target.write_text(step.changed)
    try:
        failed = first_failure(copy, step.tests)
    finally:
        target.write_text(original)
    said = "SURVIVED"
    if failed is not None:
        again = [failed.split(" ", 1)[1]] if failed.startswith(("FAILED", "ERROR")) else step.tests
        said = "UNKNOWN" if first_failure(copy, again) else "caught"
    return Outcome(step.name, said, failed or "", time.monotonic() - began)


_here: Path  # the copy of this process


def _start(root: Path, place: Path) -> None:
    global _here
    _here = copy_of(root, place)


def _outcome(step: Step) -> Outcome:
    return outcome(_here, step)


def run(root: Path, mutations: list[Mutation], jobs: int = 1) -> list[str]:
    """Say of each mutation whether it is noticed; the names of those of which that is not certain."""
    plan = []
    for mutation in mutations:
        path, changed = mutate(root / "src" / "hmrnn", mutation)
        tests = [str(file.relative_to(root)) for file in test_files(root, mutation)]
        plan.append(Step(mutation.name, path.relative_to(root), changed, tests))
    for name in IMPORTED:
        importlib.import_module(name)
    outcomes = []
    with (
        tempfile.TemporaryDirectory() as place,
        multiprocessing.get_context("fork").Pool(jobs, _start, (root, Path(place))) as pool,
    ):
        for found in pool.imap_unordered(_outcome, plan):
            print(f"{found.said:8s} {found.seconds:5.0f} s  {found.name}  {found.failed}", flush=True)
            outcomes.append(found)
    missed, unknown = (sorted(o.name for o in outcomes if o.said == said) for said in ("SURVIVED", "UNKNOWN"))
    caught = len(plan) - len(missed) - len(unknown)
    print(f"{caught} of {len(plan)} mutations caught; not caught: {', '.join(missed) or 'none'}")
    if unknown:
        print(f"unknown, as a test fails without the mutation, too: {', '.join(unknown)}")
    return missed + unknown


def main(mutations: list[Mutation]) -> int:
    """The command line; the exit status is 1 if a mutation survives, or nothing can be said of one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="mutations to make; all if none is named")
    parser.add_argument("--jobs", type=int, default=1, help="mutations to try at the same time")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - {mutation.name for mutation in mutations}:
        parser.error(f"there is no mutation {', '.join(sorted(unknown))}")
    chosen = [mutation for mutation in mutations if not arguments.names or mutation.name in arguments.names]
    return 1 if run(arguments.root.absolute(), chosen, arguments.jobs) else 0


if __name__ == "__main__":
    sys.exit(main(OF_OPS + OF_MODELS))
