"""Nothing in the package runs what a file or a request holds."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import hmrnn

ROOT = Path(hmrnn.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "pty"}
NETWORK = {"urllib.request", "http.client", "ftplib", "smtplib", "requests", "httpx", "aiohttp", "urllib3", "socket"}
TRUST = ("allow_pickle", "shell", "trusted")
CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "torch.save", "torch.jit.load", "torch.hub.load",
         "os.system", "os.popen", "yaml.load", "pickle.load", "pickle.loads"}  # fmt: skip


@functools.cache
def nodes(code: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(code)))


def dangers(code: str) -> Iterator[str]:
    """What in a source file could run something it was given, with its line."""
    for node in nodes(code):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from (f"{name} in line {node.lineno}" for name in names if name.split(".")[0] in MODULES)  # type: ignore[attr-defined]
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        given = {word.arg: ast.unparse(word.value) for word in node.keywords if word.arg in TRUST}
        if called in CALLS:
            yield f"{called} in line {node.lineno}"
        reads_arrays = called in ("np.load", "numpy.load", "np.lib.format.read_array", "format.read_array")
        if reads_arrays and given.get("allow_pickle") != "False":
            yield f"{called} without allow_pickle=False in line {node.lineno}"
        if "True" in given.values():
            yield f"{called} with {given} in line {node.lineno}"


def test_nothing_runs_what_it_reads() -> None:
    assert [f"{path}: {danger}" for path in SOURCES for danger in dangers(path.read_text())] == []


def test_nothing_opens_a_connection() -> None:
    """The page's server alone has a socket, the one it listens on."""
    found = {str(path.relative_to(ROOT)): imported(path.read_text()) & NETWORK for path in SOURCES}
    assert {name: modules for name, modules in found.items() if modules} == {"web/server.py": {"socket"}}


def imported(code: str) -> set[str]:
    """The modules that a source file names, and all that it takes from one, which may be modules, too."""
    found = set()
    for node in nodes(code):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found
