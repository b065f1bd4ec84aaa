"""Looks into the wheels of a folder: processor, system, exported names and what each library needs at run time.

A wheel for another machine cannot be run here; that its libraries are what its name says can be read from them.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import lief

GLIBC = (2, 28)
"""manylinux_2_28 in the name of a wheel promises that no later symbol is needed."""
LINKERS = {"init", "fini", "__dso_handle", "_mh_dylib_header"}
"""Names that linkers export."""
LIBRARIES = {
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "/usr/lib/libSystem.B.dylib",
    "/usr/lib/libc++.1.dylib",
}


def complaints(library: str, content: bytes, tag: str) -> list[str]:
    """What is not as ``tag``, the platform of a wheel, says."""
    binary = lief.parse(list(content))
    wrong = []
    if isinstance(binary, lief.ELF.Binary):
        machine = binary.header.machine_type.name.lower()
        needed = [v.name for r in binary.symbols_version_requirement for v in r.get_auxiliary_symbols()]
        versions = [tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in needed if "GLIBC_" in name]
        newest = max(version for version in versions)
        if "manylinux" in tag and newest > GLIBC:
            wrong.append(f"needs glibc {newest}")
    elif isinstance(binary, lief.MachO.Binary):
        machine = binary.header.cpu_type.name.lower()
    else:
        return ["is no library"]
    if machine.replace("aarch64", "arm64") not in tag.replace("aarch64", "arm64"):
        wrong.append(f"is for {machine}")
    names = {name.removeprefix("_") for name in (str(f.name) for f in binary.exported_functions)}
    if isinstance(
        binary, lief.MachO.Binary
    ):  # ziglang cannot hide new and delete, whose weak symbols are alike everywhere
        names = {name for name in names if not name.removeprefix("_").startswith(("Znw", "Zna", "Zdl", "Zda"))}
    if others := sorted(name for name in names if not name.startswith("hm_") and name not in LINKERS):
        wrong.append(f"exports {', '.join(others[:5])}")
    if not names:
        wrong.append("exports nothing")
    needs = {str(getattr(one, "name", one)) for one in binary.libraries} - {f"@rpath/{Path(library).name}"}
    if others := sorted(needs - LIBRARIES):
        wrong.append(f"needs {', '.join(others)}")
    return wrong


def main(folder: Path) -> int:
    failed = 0
    wheels = sorted(folder.glob("*.whl"))
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            libraries = [name for name in archive.namelist() if name.endswith((".so", ".dylib"))]
            wrong = [] if libraries else ["has no native library"]
            for name in libraries:
                wrong += [f"{name} {what}" for what in complaints(name, archive.read(name), wheel.stem)]
        print(f"{wheel.name}: {'; '.join(wrong) or f'{len(libraries)} libraries, as its name says'}")
        failed += bool(wrong)
    if not wheels:
        print(f"no wheel in {folder}")
    return int(bool(failed) or not wheels)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
