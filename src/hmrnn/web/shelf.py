"""The models that the page was started with: the only files that it can reach, by their number in the list."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hmrnn import checkpoint
from hmrnn.analysis.render import visible
from hmrnn.config import LABEL_FORMATS
from hmrnn.errors import InputError
from hmrnn.nn.output import possible
from hmrnn.pretrained.load import load
from hmrnn.web.bodies import Model


@dataclasses.dataclass(frozen=True)
class Entry:
    """A loaded model and its name on the page."""

    name: str
    model: Any

    def about(self, index: int) -> Model:
        """What the page is told of the model: no path, no file name."""
        network, reads, config = self.model.network, self.model.reads, self.model.config.model
        alphabet = "".join(reads.symbols) if reads.unit == "character" else None
        return Model(
            model=index,
            name=self.name,
            reads=reads.modality,
            layers=list(network.rnn.hidden_sizes),
            operations=[operation.name for operation in possible(network.rnn)],
            parameters=sum(weight.numel() for weight in network.parameters()),
            unit=reads.unit,
            alphabet=alphabet,
            condition=list(config.classes) if config.conditioned else None,
        )


@dataclasses.dataclass(frozen=True)
class Shelf:
    """The models in the order of the command line."""

    entries: tuple[Entry, ...]

    def __getitem__(self, index: int) -> Entry:
        if not 0 <= index < len(self.entries):
            raise InputError(
                f"there is no model {index}: the page was started with {len(self.entries)}, counted from 0"
            )
        return self.entries[index]

    def reading(self, modality: str, index: int) -> Any:
        """The model with this number, which must read "text" or "strokes"."""
        entry = self[index]
        if entry.model.reads.modality != modality:
            reads = entry.model.reads.modality
            raise InputError(f"model {index} ({entry.name}) reads {reads}; this needs one that reads {modality}")
        return entry.model


def open_shelf(sources: Sequence[str | Path], device: str = "cpu") -> Shelf:
    """Load every checkpoint. A model has the name of its directory, with a number if that name was used before."""
    entries: list[Entry] = []
    for source in sources:
        wanted = _name(Path(source))
        same = sum(entry.name == wanted or entry.name.startswith(f"{wanted} (") for entry in entries)
        model = load(source, device=device)
        if model.reads.modality in LABEL_FORMATS:
            kind = model.reads.modality
            raise InputError(f"{source} is a model of {kind}, which the page cannot show; use hmrnn predict --explain")
        entries.append(Entry(f"{wanted} ({same + 1})" if same else wanted, model))
    return Shelf(tuple(entries))


def _name(source: Path) -> str:
    """The printable name of the run directory, followed by that of the checkpoint if ``source`` is one."""
    path = source.resolve()
    return visible(f"{path.parent.name}/{path.name}" if checkpoint.NAME.fullmatch(path.name) else path.name)
