"""The page of a model of sequences of any kind: data in the format of its files, their segments, and more of them."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from hmrnn.errors import InputError
from hmrnn.pretrained.sequences import SequenceModel
from hmrnn.reading.page import Action, Page, Part, Parts, Request, Seed


class DataRequest(Request, kw_only=True):
    """The content of a file, and which of its sequences to show, counted from 1."""

    bounds: ClassVar = {"data": "text"}
    data: Annotated[str, Meta(min_length=1)]
    sequence: Annotated[int, Meta(ge=1)] = 1


class MoreRequest(DataRequest, kw_only=True):
    """How to continue the sequence."""

    bounds: ClassVar = {"data": "text", "length": "length"}
    length: Annotated[int, Meta(ge=1)] = 50
    seed: Seed = None


class SequencePage(Page):
    model: SequenceModel

    def __init__(self, model: SequenceModel) -> None:
        super().__init__(model)
        self._sequences = functools.lru_cache(1)(self._load)

    def _load(self, data: str) -> list[Any]:
        """The sequences of a file, in the order of its kind."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, Path((*self.model.config.data.path, "data")[0]).name)
            path.write_text(data, encoding="utf-8")
            try:
                corpus = self.model.corpus((str(path),))
            except InputError as error:
                raise InputError(str(error).replace(f"{folder}/", "")) from error
            except (LookupError, TypeError, ValueError) as error:  # of a reader that trusts its files
                raise InputError(f"this is not in the format of the model's files: {error}") from error
        return [*corpus.train, *corpus.valid, *corpus.test]

    def _chosen(self, wanted: DataRequest) -> Any:
        every = self._sequences(wanted.data)
        if wanted.sequence > len(every):
            raise InputError(f"there is no sequence {wanted.sequence}: the data hold {len(every)}")
        return every[wanted.sequence - 1]

    def segmentation(self, wanted: DataRequest) -> Parts:
        """The segments of a sequence."""
        yield Part(self.model.segment(self._chosen(wanted)))
        return {}

    def read(self, wanted: DataRequest) -> Parts:
        """The segments of a sequence, and how well all sequences are predicted."""
        yield from self.segmentation(wanted)
        every = self._sequences(wanted.data)
        return {"sequences": len(every), "bits": self.model.score(every).bits}

    def write(self, wanted: MoreRequest) -> Parts:
        """What the model continues a sequence with, and its segments."""
        written = self.model.generate(self._chosen(wanted), wanted.length, seed=wanted.seed)
        yield Part(self.model.segment(written))
        return {}

    actions: ClassVar = {
        "read": Action(read, DataRequest),
        "segmentation": Action(segmentation, DataRequest, "whole"),
        "figure": Action(segmentation, DataRequest, "figure"),
        "write": Action(write, MoreRequest),
    }
