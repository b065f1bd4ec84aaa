"""What a stress test found, with all that is needed to do it again: build/stress/NAME.json and NAME.log."""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded import ROOT, Record, hardware

sys.path[:0] = [str(ROOT / "tests" / room) for room in ("web", "training")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.when == "call":
        item.stash[FAILED] = str(call.excinfo.value) if call.excinfo is not None else ""
    return report


FAILED = pytest.StashKey[str]()


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Iterator[Record]:
    record = Record()
    yield record
    failed = request.node.stash.get(FAILED, "it did not run")
    name = request.node.name.removeprefix("test_").replace("[", "-").replace("]", "").replace(" ", "-")
    folder = Path(os.environ.get("HMRNN_STRESS", ROOT / "build" / "stress"))
    folder.mkdir(parents=True, exist_ok=True)
    found = {
        "test": request.node.name,
        "what": (request.function.__doc__ or "").strip(),
        "passed": not failed,
        **({"failure": failed} if failed else {}),
        "numbers": record.numbers,
        "seconds": round(time.monotonic() - record.began, 1),
        "commit": record.commit,
        "hardware": hardware(),
        "software": f"Python {platform.python_version()}, torch {torch.__version__}",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    (folder / f"{name}.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    (folder / f"{name}.log").write_text("\n".join([*record.lines, failed or "passed"]) + "\n")
