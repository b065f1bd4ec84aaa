"""Compiles the native CPU library, one shared library for each vector level that a processor may have.

It imports only the standard library: hatch_build.py loads this file by its path, before anything is installed, and so
does hmrnn/ops/native/library.py in a checkout, whose library follows its sources. A wheel does without.
``HMRNN_TARGET="linux aarch64"`` has ziglang compile for another machine: its system (linux or darwin) and processor.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src" / "hmrnn" / "ops" / "native"
CROSS = "HMRNN_TARGET" in os.environ
SYSTEM, MACHINE = os.environ["HMRNN_TARGET"].split() if CROSS else (sys.platform, platform.machine())
LINUX = SYSTEM == "linux"
ZIGLANG = "ziglang>=0.14,<1"  # the package that has a C++ compiler, for machines without one
FLAGS = ["-O3", "-std=c++17", "-fPIC", "-pthread", "-fvisibility=hidden"]
FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
# A library for each level, as in one library the linker could choose an inline function that only some processors run.
LEVELS: dict[str, list[str]] = {"base": []}
if MACHINE == "x86_64":
    LEVELS = {"avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"], "avx2": ["-march=x86-64-v3"],
              "base": ["-march=x86-64-v2"]}  # fmt: skip
ZIG = {"arm64": "aarch64"}  # its names of processors, where they are others


class BuildError(OSError):
    """Why there is no library, in one line."""


def requirements() -> list[str]:
    """What must be installed to compile: nothing where there is a compiler."""
    packaged = CROSS or (LINUX and MACHINE in ("x86_64", "aarch64"))
    return [ZIGLANG] if packaged and not compiler() else []


def tag() -> str:
    """The platform in the name of a wheel: what the package's compiler makes runs with glibc 2.28 or macOS 11."""
    if compiler():
        return sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"manylinux_2_28_{MACHINE}" if LINUX else f"macosx_11_0_{MACHINE}"


def up_to_date() -> dict[str, Path]:
    """The libraries of a checkout, by level; they are compiled first if a source has changed. BuildError if that fails.

    Of several processes one compiles, and the others wait.
    """
    digest = hashlib.sha256(f"{SYSTEM} {MACHINE}".encode())
    for source in [Path(__file__), *sorted(FOLDER.glob("*.h")), *sorted(FOLDER.glob("*.cpp"))]:
        digest.update(source.read_bytes())
    libraries = {level: FOLDER / f"_hmrnn_{level}.{digest.hexdigest()[:16]}.so" for level in LEVELS}
    try:
        if not all(library.exists() for library in libraries.values()):
            with open(FOLDER / "_hmrnn.lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not all(library.exists() for library in libraries.values()):
                    _renew(libraries)
    except BuildError:
        raise
    except OSError as error:
        raise BuildError(f"it cannot be compiled in {FOLDER}: {error.strerror}") from error
    return libraries


def _renew(libraries: dict[str, Path]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        for level, made in compile_all(Path(temporary)).items():
            part = libraries[level].with_suffix(".part")
            shutil.copyfile(made, part)
            os.replace(part, libraries[level])
    for old in set(FOLDER.glob("_hmrnn_*.so")) - set(libraries.values()):
        old.unlink()


def compile_all(folder: Path) -> dict[str, Path]:
    """Compile the libraries of all levels, at the same time, into ``folder``. BuildError if that fails."""
    zig = [sys.executable, "-m", "ziglang", "c++"]
    command = compiler()
    if not command and not importlib.util.find_spec("ziglang"):
        raise BuildError("found no compiler for C++17 (c++, g++ or clang++), nor the package ziglang, which has one")
    if command and not shutil.which(command[0]):
        raise BuildError(f"CXX names a compiler that cannot be run: {command[0]}")
    command, packaged = command or zig, not command
    target = []
    if packaged:
        target = [f"--target={MACHINE}-linux-gnu.2.28" if LINUX else f"--target={ZIG.get(MACHINE, MACHINE)}-macos.11.0"]
    link = [*command, *target, "-shared", "-pthread"]
    if LINUX:
        exports = folder / "exports"
        exports.write_text("{ global: hm_*; local: *; };")  # no function of the C++ library meets one of torch's
        link += [f"-Wl,--version-script={exports}", "-Wl,-z,defs"]
    link += ["-s"] if packaged else _static(command)
    compiling, linking, made = [], [], {}
    for level, flags in LEVELS.items():
        if packaged:
            flags = [flag.replace("-march=x86-64-", "-mcpu=x86_64_") for flag in flags]
        made[level], part = folder / f"_hmrnn_{level}.so", str(folder / f"{level}.o")
        compiling.append([*command, *target, *FLAGS, *flags, "-c", str(FOLDER / "hmrnn.cpp"), "-o", part])
        named = [] if LINUX else [f"-Wl,-install_name,@rpath/{made[level].name}"]  # not the folder of the build
        linking.append([*link, *named, part, "-o", str(made[level])])
    environment = {"ZIG_GLOBAL_CACHE_DIR": str(folder / "zig"), **os.environ}
    _run(compiling, environment)
    _run(linking, environment)
    return made


def compiler() -> list[str]:
    """The command of a C++ compiler that knows C++17 and all levels; empty if the package's must do it."""
    if CROSS or os.environ.get("CXX"):
        return [] if CROSS else shlex.split(os.environ["CXX"])
    check = [*FLAGS, *next(iter(LEVELS.values())), "-fsyntax-only", "-x", "c++", "-"]
    for name in filter(shutil.which, ("c++", "g++", "clang++")):
        if subprocess.run([name, *check], input=b"#include <thread>", capture_output=True).returncode == 0:
            return [name]
    return []


def _static(command: list[str]) -> list[str]:
    """The flags that put the C++ library inside, if the compiler has it in that form."""
    found = subprocess.run([*command, "-print-file-name=libstdc++.a"], capture_output=True, text=True).stdout
    return ["-static-libstdc++", "-static-libgcc"] if os.path.isabs(found) else []


def _run(commands: list[list[str]], environment: dict[str, str]) -> None:
    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")

    with ThreadPoolExecutor(len(commands)) as pool:
        for ended in pool.map(run, commands):
            if ended.returncode:
                said = ended.stderr.splitlines() or [f"exit status {ended.returncode}"]
                line = next((line for line in said if "error" in line), said[-1])
                raise BuildError(f"{ended.args[0]} cannot compile it: {line}")
