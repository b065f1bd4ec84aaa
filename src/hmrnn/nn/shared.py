"""Shared: a network in a directory of its own, or on the Hub of Hugging Face."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from hmrnn.config.json import to_json
from hmrnn.errors import InputError
from hmrnn.utils import hub

FILES = ("config.json", "model.safetensors")
N = TypeVar("N", bound="Shared")


class Shared(nn.Module):
    """A network that can be saved and shared as models of Hugging Face are: safetensors, JSON and a card."""

    def _arguments(self) -> dict[str, Any]:
        """What it was made with."""
        raise NotImplementedError

    def save_pretrained(self, directory: str | Path, *, license: str | None = None) -> Path:
        """Write arguments, weights and a card to a directory, which ``from_pretrained`` reads."""
        folder = Path(directory).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: a.detach().cpu().contiguous() for name, a in self.state_dict().items()}
        count = sum(p.numel() for p in self.parameters())
        (folder / "config.json").write_bytes(to_json(self._arguments()))
        (folder / "model.safetensors").write_bytes(save(weights))
        (folder / "README.md").write_bytes(
            hub.card(folder.name, license, f"A network of hmrnn with {count:,} parameters:\n\n    {self}\n")
        )
        return folder

    @classmethod
    def from_pretrained(cls: type[N], source: str | Path, **changed: Any) -> N:
        """The network in a directory, or ``user/name`` on the Hub, in ``eval()``; ``changed``: other arguments."""
        folder = hub.find(source, FILES)
        try:
            weights = load((folder / "model.safetensors").read_bytes())
            arguments = json.loads((folder / "config.json").read_bytes())
            made = cls(**{"dtype": next(iter(weights.values())).dtype, **arguments, **changed})
            made.load_state_dict(weights)
        except (OSError, SafetensorError, StopIteration, TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"{source} holds no {cls.__name__}: {' '.join(str(error).split())}") from error
        return made.eval()

    def push_to_hub(self, name: str, *, private: bool = False, license: str | None = None) -> str:
        """Write the network to the Hub of Hugging Face as ``user/name``; its address."""
        return hub.push(lambda folder: self.save_pretrained(folder, license=license), name, private)
