"""What all trained models share: a network with its config, and what it reads."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import torch

from hmrnn import kind
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.checkpoint import Checkpoint
from hmrnn.config import Config
from hmrnn.config.changes import replaced
from hmrnn.errors import InputError
from hmrnn.kind import InputSpec, Progress
from hmrnn.nn.context import Condition
from hmrnn.nn.predictor import describe
from hmrnn.reading.conditions import encode
from hmrnn.utils import hub
from hmrnn.utils.devices import find_device
from hmrnn.utils.options import check_files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ConditionLike: TypeAlias = str | Sequence[float] | Sequence[str] | Sequence[Sequence[float]] | None
"""A class, or numbers; or a list of these, one for each of several sequences."""
M = TypeVar("M", bound="Model")


def plain(condition: Any) -> Any:
    """A condition with numbers, strings and lists for arrays and tensors."""
    return condition.tolist() if hasattr(condition, "tolist") else condition


def one_each(condition: ConditionLike, numbers: int) -> list[Any] | None:
    """The conditions of a list, one for each of several sequences; None if there is one for all, or none.

    A list of numbers is one condition, unless a condition has ``numbers`` 1.
    """
    condition = plain(condition)
    if condition is None or isinstance(condition, str | Real):
        return None
    each = [plain(one) for one in condition]
    alone = each and all(isinstance(one, Real) for one in each) and (numbers != 1 or len(each) == 1)
    return None if alone else each


class Model:
    """The face of a trained model: ``segment``, ``generate``, ``score``, ``figure``, ``save`` and others."""

    figures: ClassVar[tuple[str, ...]] = ("4", "3", "segments", "timescales")
    """The names that ``figure`` takes, the usual one first."""
    network: Any
    config: Config
    source: str | None

    @property
    def reads(self) -> InputSpec:
        """What it reads: the vocabulary of a text or the scale of strokes."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.source or 'in memory'}: {describe(self.network)}; {self.reads.describe()}>"
        )

    def finetune(
        self: M,
        data: str | Path | Sequence[str | Path],
        *,
        out: str | Path | None = None,
        epochs: int | None = None,
        learning_rate: float | None = None,
        seed: int = 1,
        device: str = "auto",
        progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> M:
        """A new model: this one trained further on other data. This one does not change.

        Args:
            data: a text, or the path or paths of files of text or strokes. A str that names an existing file is a path.
            out: the directory of the run, which ``hmrnn train --resume`` can continue. None: nothing is kept but the
                model that is returned.
            epochs: passes over the training part; 3 if not given.
            learning_rate: of the first update; it falls linearly to zero. If not given, a share of the rate that this
                model was trained with.
            seed: of all random draws.
            device: cpu, cuda, cuda:N, or auto: a GPU if there is one.
            progress: called with each line of metrics; the first is the validation before any update.

        The last 10 % of the data are held out: one half chooses the best model, the other is not used. Symbols that
        this model does not know are added to its vocabulary.

        Example::

            >>> model = hmrnn.load("english-small").finetune("book.txt", out="runs/book")  # doctest: +SKIP
        """
        from hmrnn.pretrained.finetune import finetune_config
        from hmrnn.pretrained.train import train

        start = self._checkpoint()
        given = {"epochs": epochs, "learning_rate": learning_rate, "seed": seed, "device": device}
        with tempfile.TemporaryDirectory() as folder:
            wanted = kind.of(self.config).given(start, data, Path(folder), out is not None)
            config = finetune_config(start, self.source or "a model in memory", wanted)
            config = replaced(config, {f"train.{name}": value for name, value in given.items() if value is not None})
            try:
                config.check()
            except InputError as error:  # about an argument of the caller's
                raise error.renamed(error.setting.removeprefix("train.")) from error
            try:
                found: M = train(config, out=out, progress=progress, start=start)
            except InputError as error:  # which may name the file that the text was written to
                raise InputError(str(error).replace(str(Path(folder, "text")), "the text")) from error
        return found

    def save(
        self, directory: str | Path, *, license: str | None = None, facts: Mapping[str, object] | None = None
    ) -> Path:
        """Write the model to a new directory, which :func:`hmrnn.load` reads: safetensors and JSON, no pickle.

        Of the paths of the data only the file names are kept. ``hmrnn export`` can also round the weights to 16 bits.
        The card, README.md, has what is known of the model and its run, and ``facts``, such as an F1.
        """
        from hmrnn.pretrained.export import of_run, write

        saved = self._checkpoint()
        known = {**of_run(self.source, saved), **(facts or {})}
        return write(directory, saved, dict(self.network.named_parameters()), known, license)

    save_pretrained = save

    @classmethod
    def from_pretrained(
        cls: type[M], source: str | Path, *, device: str | torch.device = "cpu", engine: str = "auto"
    ) -> M:
        """As :func:`hmrnn.load`, of a directory, a bundled model, or ``user/name`` on the Hub."""
        from hmrnn.pretrained import bundled
        from hmrnn.pretrained.load import load

        there = os.path.isdir(source) or str(source).startswith(hub.SCHEME) or source in bundled.names()
        found: M = load(source if there else f"{hub.SCHEME}{source}", device=device, engine=engine)
        if not isinstance(found, cls):
            raise InputError(f"{source} is a {type(found).__name__}, not a {cls.__name__}; use hmrnn.load")
        return found

    def push_to_hub(
        self,
        name: str,
        *,
        private: bool = False,
        license: str | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> str:
        """Write the model to the Hub of Hugging Face as ``user/name``; the address that :func:`hmrnn.load` takes.

        ``license`` and ``facts`` are for the card, as of :meth:`save`.
        """
        return hub.push(lambda folder: self.save(folder, license=license, facts=facts), name, private)

    def figure(self, name: str, given: Any, found: Segmentation, levels: Iterable[int] = ()) -> Figure:
        """One of ``figures`` for the segments found in ``given``."""
        from hmrnn.plots.charts import timescales
        from hmrnn.plots.text import figure3, figure4, segments

        if name == "timescales":
            lengths = [found.lengths(level) for level in range(1, found.levels + 1)]
            return timescales(lengths, unit=f"{self.reads.unit}s")
        return {"3": figure3, "4": figure4, "segments": segments}[name](found)

    def corpus(self, path: tuple[str, ...] = (), progress: Progress = None) -> Any:
        """The corpus that it was trained on, which may have moved to ``path``."""
        config = replaced(self.config, {"data.path": path or self.config.data.path})
        check_files(*config.data.path)
        return kind.of(config).load(config, progress)

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(self.config, self.reads, dict(self.network.state_dict()))

    def as_condition(self, condition: ConditionLike, count: int = 1, steps: int | None = None) -> Condition:
        """A condition, or ``count`` of them in a list, as the network takes it, and how many steps it will read."""
        m, given = self.config.model, self.network.condition.value
        if condition is not None:
            each = one_each(condition, m.condition_numbers)
            rows: list[Any] = [
                [row] if isinstance(row, Real) else row for row in ([plain(condition)] if each is None else each)
            ]
            if each is not None and len(rows) != count:
                raise InputError(f"expected one condition, or {count} in a list, one each; got {len(rows)}")
            given = torch.from_numpy(encode(rows, m)).to(next(self.network.parameters()).device)
        return Condition(given, torch.tensor([steps]) if m.time == "left" and steps is not None else None)

    def to(self: M, device: str | torch.device) -> M:
        """Move the network; returns self."""
        self.network.to(find_device(device))
        return self
