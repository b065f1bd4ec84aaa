"""Build hook: compiles the native CPU library into a wheel or, for an editable installation, into the checkout."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE = "hmrnn/ops/native"
_spec = importlib.util.spec_from_file_location("native", Path(__file__).parent / "packaging" / "native.py")
assert _spec is not None
assert _spec.loader is not None
build = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(build)


class NativeLibrary(BuildHookInterface):
    """Without a compiler that works, the wheel has no library, and the package runs the reference engine."""

    def dependencies(self) -> list[str]:
        return list(build.requirements())

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self.made = tempfile.TemporaryDirectory()
        try:
            if version == "editable":
                build.up_to_date()
                return
            for library in build.compile_all(Path(self.made.name)).values():
                build_data["force_include"][str(library)] = f"{_PACKAGE}/{library.name}"
        except build.BuildError as error:
            self.app.display_warning(f"hmrnn: no native CPU library is built: {error}")
            return
        build_data.update(pure_python=False, tag=f"py3-none-{build.tag()}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self.made.cleanup()
