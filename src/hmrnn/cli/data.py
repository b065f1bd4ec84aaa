"""``hmrnn data``: show what a corpus holds."""

from __future__ import annotations

from typing import Any

from hmrnn import kind
from hmrnn.cli.arguments import check_kind
from hmrnn.cli.display import show, show_progress
from hmrnn.config.changes import replaced


def run(arguments: Any) -> int:
    config = arguments.config
    config = replaced(config, {"data.path": (*config.data.path, *arguments.paths)})
    config.check()
    reads = kind.of(config)
    check_kind("data", arguments, reads)
    show(reads.commands(show_progress).data(config, arguments))
    return 0
