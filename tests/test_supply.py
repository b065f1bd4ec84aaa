"""Ranges of versions for users, exact ones for development, and that they fit each other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOR_USERS = [
    *PROJECT["dependencies"],
    *PROJECT["optional-dependencies"]["page"],
    *PROJECT["optional-dependencies"]["demo"],
    *PROJECT["optional-dependencies"]["hub"],
    *PROJECT["optional-dependencies"]["onnx"],
    *PROJECT["optional-dependencies"]["tensorboard"],
]
OTHERS = [*PROJECT["optional-dependencies"]["test"], *PROJECT["optional-dependencies"]["docs"]]
FOR_TESTS = [line for line in OTHERS if not line.startswith("hmrnn[")]


def pins() -> dict[str, Version]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, _, version in (line.partition("==") for line in lines)}


@pytest.mark.parametrize("line", [*FOR_USERS, *FOR_TESTS])
def test_every_dependency_is_a_range_and_its_pin_lies_in_it(line: str) -> None:
    needed = Requirement(line)
    assert [s.operator for s in needed.specifier if s.operator in (">=", "<")], "a lower end, and no exact version"
    assert not {s.operator for s in needed.specifier} & {"==", "===", "~="}
    assert pins()[canonicalize_name(needed.name)] in needed.specifier


def test_make_installs_the_pinned_torch() -> None:
    (pinned,) = re.findall(r"^PINNED := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert Version(pinned) == pins()["torch"]
