"""``hmrnn explore``: serve the page."""

from __future__ import annotations

from pathlib import Path

from hmrnn import kind
from hmrnn.cli.arguments import ExploreArguments
from hmrnn.errors import installed
from hmrnn.pretrained import bundled
from hmrnn.utils.devices import choose_device


def run(arguments: ExploreArguments) -> int:
    server = installed("hmrnn.web.server", "hmrnn explore", "page")
    demos = (f"runs/{one.trains['demo']}" for one in kind.every() if "demo" in one.trains)
    models = arguments.model or (*bundled.names(), *(place for place in demos if any(Path(place).glob("best-*"))))
    device = str(choose_device(arguments.device))
    found: int = server.serve(models, host=arguments.host, port=arguments.port, names=arguments.name, device=device)
    return found
