"""``hmrnn explore``: serve the page."""

from __future__ import annotations

from pathlib import Path

from hmrnn.cli.arguments.models import EXPLORED, ExploreArguments
from hmrnn.errors import InputError
from hmrnn.utils.devices import choose_device

DEMO = Path("runs", "demo")
"""The run of ``hmrnn demo``, shown beside the bundled models if it is there and no model is named."""


def run(arguments: ExploreArguments) -> int:
    try:
        from hmrnn.web.server import serve
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "hmrnn":
            raise
        raise InputError(f"hmrnn explore needs {error.name}: pip install starlette uvicorn") from error
    device = str(choose_device(arguments.device))
    models = arguments.model
    if models == EXPLORED and any(DEMO.glob("best-*")):
        models += (str(DEMO),)
    return serve(models, host=arguments.host, port=arguments.port, names=arguments.name, device=device)
