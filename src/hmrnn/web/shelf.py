"""The models that the page was started with: the only files that it can reach, by their number in the list."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hmrnn import checkpoint, kind
from hmrnn.analysis.render import visible
from hmrnn.errors import InputError
from hmrnn.nn.output import possible
from hmrnn.pretrained.load import load
from hmrnn.reading.page import Page


@dataclasses.dataclass(frozen=True)
class Entry:
    """A loaded model, its name on the page, and what the page shows of it."""

    name: str
    kind: str
    model: Any
    page: Page

    @property
    def folder(self) -> str:
        """Where the page finds the files of its panels, under /static."""
        return (self.page.folder or self.kind) if self.page.static else "default"

    def about(self, index: int) -> dict[str, Any]:
        """What the page is told of the model: no path, no file name.

        ``condition`` has the classes of a model that is given a condition, none if that is numbers; null without one.
        """
        network, config = self.model.network, self.model.config.model
        return {
            "model": index, "name": self.name, "reads": self.kind, "script": f"/static/{self.folder}/page.js",
            "layers": list(network.rnn.hidden_sizes),
            "operations": [operation.name for operation in possible(network.rnn)],
            "parameters": sum(weight.numel() for weight in network.parameters()),
            "unit": self.model.reads.unit,
            "condition": list(config.classes) if config.conditioned else None,
            **self.page.about(),
        }  # fmt: skip


Shelf = tuple[Entry, ...]
"""The models in the order of the command line."""


def open_shelf(sources: Sequence[str | Path], device: str = "cpu") -> Shelf:
    """Load every checkpoint. A model has the name of its directory, with a number if that name was used before."""
    entries: list[Entry] = []
    for source in sources:
        wanted = _name(Path(source))
        same = sum(entry.name == wanted or entry.name.startswith(f"{wanted} (") for entry in entries)
        model = load(source, device=device)
        of = kind.of(model.config)
        if of.page is None:
            raise InputError(f"{source} is a model of {of.name}, which the page cannot show")
        entries.append(Entry(f"{wanted} ({same + 1})" if same else wanted, of.name, model, of.page(model)))
    return tuple(entries)


def _name(source: Path) -> str:
    """The printable name of the run directory, followed by that of the checkpoint if ``source`` is one."""
    path = source.resolve()
    return visible(f"{path.parent.name}/{path.name}" if checkpoint.NAME.fullmatch(path.name) else path.name)
