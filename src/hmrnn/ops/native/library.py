"""Finds and loads the native CPU library.

HMRNN_NATIVE chooses the vector level ("avx512", "avx2" or "base") instead of the processor, or no library ("off").
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import platform
import warnings
from pathlib import Path
from typing import Any

from hmrnn.errors import Note

ABI = 6
"""What hm_version returns."""
_AVX2 = frozenset({"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})  # x86-64-v3, as Linux names its parts
_NEEDED = {
    "avx512": _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "avx2": _AVX2,
    "base": frozenset[str](),
}
_CPU = Path("/proc/cpuinfo")
FOLDER = Path(__file__).parent
BUILDER = FOLDER.parents[3] / "packaging" / "native.py"
code: ctypes.CDLL | None = None
"""The library, once :func:`why_not` has loaded it. It stays: of threads that load at once one may already call it."""


@functools.cache
def why_not() -> str | None:
    """Why there is no library, in one line; None if there is one. The first call loads it, and warns if that fails."""
    global code
    forced = os.environ.get("HMRNN_NATIVE", "")
    if forced == "off":
        return "HMRNN_NATIVE is off"
    try:
        loaded = ctypes.CDLL(str(_find(forced)))
        if loaded.hm_version() == ABI:
            code = loaded
            return None
        reason = f"{loaded._name} belongs to another version of hmrnn; install hmrnn again"
    except OSError as error:
        reason = str(error)
    warnings.warn(f"the native CPU engine is not available, so the slow reference runs: {reason}", Note, stacklevel=2)
    return reason


def _find(forced: str) -> Path:
    """The library of the level that is ``forced``, or else of the highest that the processor has."""
    able = _levels()
    if forced and forced not in able:
        raise OSError(f"HMRNN_NATIVE must be off or, on this processor, {' or '.join(able)}; got {forced!r}")
    level = forced or able[0]
    if (FOLDER / "hmrnn.cpp").exists() and BUILDER.exists():  # a checkout
        path: Path = builder().up_to_date()[level]
        return path
    if not (found := [*FOLDER.glob(f"_hmrnn_{level}*.so")]):
        raise OSError("hmrnn was installed without it, as there was no compiler; install one and hmrnn again")
    return found[0]


def _levels() -> list[str]:
    """The levels that this processor has, the highest first."""
    if platform.machine() != "x86_64":
        return ["base"]
    with open(_CPU) as lines:  # of its many lines, one for the first processor is enough
        flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return [level for level, needed in _NEEDED.items() if needed <= set(flags)]


@functools.cache
def builder() -> Any:
    """The module that compiles the library of a checkout."""
    found: Any = importlib.util.spec_from_file_location("native", BUILDER)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
