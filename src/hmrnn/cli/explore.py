"""``hmrnn explore``: serve the page."""

from __future__ import annotations

from hmrnn.cli.arguments import ExploreArguments
from hmrnn.errors import InputError
from hmrnn.utils.devices import choose_device


def run(arguments: ExploreArguments) -> int:
    try:
        from hmrnn.web.server import serve
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "hmrnn":
            raise
        raise InputError(f"hmrnn explore needs {error.name}: pip install starlette uvicorn") from error
    device = str(choose_device(arguments.device))
    return serve(arguments.model, host=arguments.host, port=arguments.port, names=arguments.name, device=device)
