"""``hmrnn explore``: serve the page."""

from __future__ import annotations

from pathlib import Path

from hmrnn import kind
from hmrnn.cli.arguments import ExploreArguments
from hmrnn.errors import InputError
from hmrnn.pretrained import bundled
from hmrnn.utils.devices import choose_device


def run(arguments: ExploreArguments) -> int:
    try:
        from hmrnn.web.server import serve
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "hmrnn":
            raise
        raise InputError(f"hmrnn explore needs {error.name}: pip install starlette uvicorn") from error
    demos = (f"runs/{one.trains['demo']}" for one in kind.every() if "demo" in one.trains)
    models = arguments.model or (*bundled.names(), *(place for place in demos if any(Path(place).glob("best-*"))))
    device = str(choose_device(arguments.device))
    return serve(models, host=arguments.host, port=arguments.port, names=arguments.name, device=device)
