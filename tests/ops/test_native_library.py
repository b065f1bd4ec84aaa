"""The native library is compiled, found and loaded; or there is a reason why not. The sources here are tiny ones."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from hmrnn.errors import Note
from hmrnn.ops import Options, choose_engine
from hmrnn.ops.native import library
from refusals import refused

build = library.builder()
X86 = pytest.mark.skipif(build.MACHINE != "x86_64", reason="only x86-64 has several levels")
V3 = "avx2 bmi1 bmi2 f16c fma abm movbe"
V4 = "avx512f avx512bw avx512cd avx512dq avx512vl"


def write(folder: Path, answer: int = 1, version: int = library.ABI) -> None:
    (folder / "answer.h").write_text(f"static int answer = {answer};")
    exported = 'extern "C" __attribute__((visibility("default")))'
    (folder / "hmrnn.cpp").write_text(
        f'#include "answer.h"\n{exported} int hm_version() {{ return {version}; }}\n'
        f"{exported} int hm_answer() {{ return answer; }}\n"
    )


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout's folder, with sources of its own."""
    for name in ("HMRNN_NATIVE", "CXX"):
        monkeypatch.delenv(name, raising=False)
    for module in (build, library):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(library, "code", library.code)
    write(tmp_path)
    yield tmp_path
    library.why_not.cache_clear()


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)


def reload() -> str | None:
    library.why_not.cache_clear()
    return library.why_not()


def reason() -> str:
    """Why there is no library: a warning says the same, once."""
    with pytest.warns(Note) as told:
        said = reload()
    assert said is not None
    assert said in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert library.why_not() == said
    return said


def processor(folder: Path, monkeypatch: pytest.MonkeyPatch, flags: str) -> None:
    (folder / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu {flags}\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    monkeypatch.setattr(library, "_CPU", folder / "cpuinfo")


@X86
@pytest.mark.parametrize(
    ("flags", "level"),
    [("", "base"), (f"avx512f {V3[5:]}", "base"), (V3, "avx2"), (f"{V4[8:]} {V3}", "avx2"), (f"{V3} {V4}", "avx512")],
)
def test_the_level_is_the_highest_of_the_processor(
    flags: str, level: str, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor(sources, monkeypatch, flags)
    assert library._find("").name.startswith(f"_hmrnn_{level}.")


@pytest.mark.parametrize("level", library._levels())
def test_a_level_can_be_forced(level: str, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HMRNN_NATIVE", level)
    assert reload() is None
    assert f"_hmrnn_{level}." in library.code._name
    assert library.code.hm_answer() == 1


@X86
def test_a_level_that_the_processor_lacks_is_refused(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processor(sources, monkeypatch, V3)
    monkeypatch.setenv("HMRNN_NATIVE", "avx512")
    assert "HMRNN_NATIVE" in reason()


def test_off_compiles_nothing_and_warns_of_nothing(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HMRNN_NATIVE", "off")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "HMRNN_NATIVE" in str(reload())
    assert not list(sources.glob("_hmrnn*"))


def test_it_is_compiled_again_only_if_a_source_changed(sources: Path) -> None:
    first = build.up_to_date()
    times = {path: path.stat().st_mtime_ns for path in first.values()}
    assert build.up_to_date() == first
    assert times == {path: path.stat().st_mtime_ns for path in first.values()}
    assert reload() is None
    assert library.code.hm_answer() == 1

    write(sources, answer=2)
    assert reload() is None
    assert library.code.hm_answer() == 2
    assert set(sources.glob("_hmrnn_*")) == set(build.up_to_date().values())
    assert not set(first.values()) & set(build.up_to_date().values())


def test_of_processes_that_start_at_once_one_compiles(sources: Path, tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    real = shlex.join(build.compiler())
    compiler.write_text(f'#!/bin/sh\necho call >> {shlex.quote(str(tmp_path / "calls"))}\nexec {real} "$@"\n')
    compiler.chmod(0o755)
    shutil.copy(build.__file__, sources / "build.py")
    program = (
        "import build, ctypes; build.FOLDER = build.Path.cwd(); "
        "print([ctypes.CDLL(str(p)).hm_answer() for p in build.up_to_date().values()])"
    )
    environment = os.environ | {"CXX": str(compiler)}
    started = [
        subprocess.Popen([sys.executable, "-c", program], cwd=sources, env=environment, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    expected = f"{[1] * len(build.LEVELS)}\n".encode()
    assert [process.communicate()[0] for process in started] == [expected] * 3
    assert (tmp_path / "calls").read_text().count("call") <= 2 * len(build.LEVELS) + 1


def test_a_mistake_in_a_source_is_a_reason_and_leaves_nothing_half_made(sources: Path) -> None:
    assert reload() is None
    (sources / "answer.h").write_text("static int answer = ;")
    assert "answer.h:1" in reason()
    write(sources)
    assert reload() is None


def damage(sources: Path) -> None:
    for path in build.up_to_date().values():
        path.write_bytes(b"\x7fELF damaged")


UNUSABLE: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "version": lambda sources, patch: write(sources, version=library.ABI + 1),
    "_hmrnn_": lambda sources, patch: damage(sources),
    "no-such-compiler": lambda sources, patch: patch.setenv("CXX", "no-such-compiler -O3"),
    "_hmrnn.lock": lambda sources, patch: (sources / "_hmrnn.lock").mkdir(),
    "installed": lambda sources, patch: (sources / "hmrnn.cpp").unlink(),
}


@pytest.mark.parametrize("named", UNUSABLE)
def test_why_there_is_no_library_is_named(named: str, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    UNUSABLE[named](sources, monkeypatch)
    assert (named if named != "_hmrnn.lock" else str(sources)) in reason()
    assert named != "installed" or not list(sources.glob("_hmrnn*"))


def test_without_a_compiler_there_is_a_reason(sources: Path, no_compiler: None) -> None:
    assert "compiler" in reason()


def test_an_installed_library_is_found(sources: Path, tmp_path: Path) -> None:
    for level, path in build.up_to_date().items():
        path.rename(sources / f"_hmrnn_{level}.so")
    (sources / "hmrnn.cpp").unlink()
    assert reload() is None
    assert library.code.hm_answer() == 1


def test_a_compiler_is_required_only_where_there_is_none(
    sources: Path, monkeypatch: pytest.MonkeyPatch, no_compiler: None
) -> None:
    assert build.requirements() == [build.ZIGLANG]
    monkeypatch.setenv("CXX", "some-compiler")
    assert build.requirements() == []


def test_no_compiler_is_required_where_there_is_one(sources: Path) -> None:
    assert build.requirements() == []


def test_without_it_the_reference_runs(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HMRNN_NATIVE", "off")
    reload()
    assert choose_engine("auto", torch.device("cpu"), Options()) == "reference"
    with refused():
        choose_engine("native", torch.device("cpu"), Options())


@pytest.mark.parametrize(
    ("target", "tag"), [("linux aarch64", "manylinux_2_28_aarch64"), ("darwin arm64", "macosx_11_0_arm64")]
)
def test_a_wheel_for_another_machine_is_the_work_of_ziglang(target: str, tag: str, tmp_path: Path) -> None:
    program = "import build; print(build.tag(), *build.LEVELS, *build.requirements())"
    shutil.copy(build.__file__, tmp_path / "build.py")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=os.environ | {"HMRNN_TARGET": target}, capture_output=True
    )
    assert done.stdout.decode().split() == [tag, "base", build.ZIGLANG]
