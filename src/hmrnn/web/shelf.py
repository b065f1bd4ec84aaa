"""The checkpoints named at start: the only files that the page can reach, by their place in the list."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hmrnn import checkpoint
from hmrnn.errors import InputError
from hmrnn.pretrained.load import TextModel, load


@dataclasses.dataclass(frozen=True)
class Entry:
    """A loaded model and what the page calls it."""

    name: str
    model: Any

    @property
    def kind(self) -> str:
        return "text" if isinstance(self.model, TextModel) else "handwriting"

    def to_dict(self) -> dict[str, Any]:
        """What the page is told: no path, no file name."""
        network = self.model.network
        facts = {
            "name": self.name,
            "kind": self.kind,
            "layers": list(network.rnn.hidden_sizes),
            "parameters": sum(parameter.numel() for parameter in network.parameters()),
        }
        if not isinstance(self.model, TextModel):
            return facts | {"unit": "point", "alphabet": None}
        vocabulary = self.model.vocabulary
        known = "".join(map(str, vocabulary.symbols)) if vocabulary.kind == "characters" else None
        return facts | {"unit": {"characters": "character", "bytes": "byte"}[vocabulary.kind], "alphabet": known}


@dataclasses.dataclass(frozen=True)
class Shelf:
    entries: tuple[Entry, ...]

    def __getitem__(self, index: int) -> Entry:
        if not 0 <= index < len(self.entries):
            raise InputError(
                f"there is no model {index}: the page was started with {len(self.entries)}, counted from 0"
            )
        return self.entries[index]

    def of_kind(self, index: int, kind: str) -> Any:
        """The model at ``index``, which must be of this kind."""
        entry = self[index]
        if entry.kind != kind:
            raise InputError(f"model {index} ({entry.name}) is of kind {entry.kind}; this needs one of kind {kind}")
        return entry.model


def open_shelf(sources: Sequence[str | Path], device: str = "cpu") -> Shelf:
    """Load every checkpoint; names are those of the directories, with a number where one comes again."""
    entries: list[Entry] = []
    for source in sources:
        wanted = _name(Path(source))
        same = sum(entry.name == wanted or entry.name.startswith(f"{wanted} (") for entry in entries)
        entries.append(Entry(f"{wanted} ({same + 1})" if same else wanted, load(source, device=device)))
    return Shelf(tuple(entries))


def _name(source: Path) -> str:
    """The run's directory, and the checkpoint's where that was named itself."""
    path = source.resolve()
    return f"{path.parent.name}/{path.name}" if checkpoint.NAME.fullmatch(path.name) else path.name
