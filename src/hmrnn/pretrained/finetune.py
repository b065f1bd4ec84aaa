"""Fine-tuning: the config of a run that starts from a trained model, and such a run in one call."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import nn

from hmrnn import checkpoint
from hmrnn.checkpoint import Checkpoint
from hmrnn.config import BUILT_IN_TEXTS, STROKE_FORMATS, Config, DataConfig
from hmrnn.errors import InputError, no_file
from hmrnn.kinds.strokes.corpus import load_strokes
from hmrnn.kinds.text.corpus import Corpus, load_corpus
from hmrnn.kinds.text.sources import symbol_kind
from hmrnn.kinds.text.task import settled
from hmrnn.presets import FINETUNE, FINETUNE_RATE
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.training.loop import train
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from hmrnn.utils import files
from hmrnn.utils.devices import choose_device

KEPT = (
    "data.symbols", "data.unknown", "data.bytes", "data.remove_spaces", "detectors.hidden", "segments.size",
    "segments.longest", "segments.lexicon", "segments.reader",
)  # fmt: skip
"""Settings outside the section "model" that a run has from the model that it starts from."""


def finetune_config(start: Checkpoint, name: str, data: DataConfig) -> Config:
    """The config of a run on ``data`` that starts from the model ``start``, which is called ``name``.

    Its network, symbols, detectors and regularisation are those of the model, with a lower learning rate; the lexicon
    of a segmental head is learned from ``data``. The detectors start as they are: slope and temperature stay at the
    values that the model was trained to.
    """
    old, t, d = start.config, start.config.train, start.config.detectors
    train = dataclasses.replace(
        FINETUNE, learning_rate=FINETUNE_RATE * t.learning_rate, length=t.length, clip_norm=t.clip_norm,
        skip_nonfinite=t.skip_nonfinite, start_from=name, optimizer=t.optimizer, adam_rate=t.adam_rate, beta1=t.beta1,
    )  # fmt: skip
    detectors = dataclasses.replace(
        d, start_at_rates=False, bias=(), slope=(0.0, d.slope[1]), temperature=(d.temperature[1], d.temperature[1])
    )
    return Config(_data(start, name, data), old.model, train, old.regularise, detectors, old.segments)


def check_kept(config: Config, given: dict[str, Any]) -> None:
    """Raise InputError if a setting in ``given`` differs from one that the run has from its model."""
    for name, value in given.items():
        section, _, field = name.partition(".")
        if (section == "model" and field) or name in KEPT:
            kept = getattr(getattr(config, section), field)
            if value != kept:
                shown = " ".join(map(str, kept)) if isinstance(kept, tuple) else kept
                raise InputError(
                    f"{name} is {shown} in {config.train.start_from}, the model to start from, and cannot change; "
                    "leave it out"
                )


def _data(start: Checkpoint, name: str, data: DataConfig) -> DataConfig:
    """``data`` as the model ``start`` reads it; InputError if it cannot."""
    reads = start.reads
    kind = "text" if data.is_text else "strokes" if data.format in STROKE_FORMATS else data.format
    if reads.modality != kind:
        raise InputError(
            f"{name} is a model of {reads.modality}, and the data are {kind}; start from a model of {kind}"
        )
    if data.is_labelled:
        raise InputError(f"fine-tuning is for models of text or strokes; {name} is a model of {reads.modality}")
    if not isinstance(reads, Vocabulary):
        return data
    if data.format in ("text", "lines", *BUILT_IN_TEXTS):
        data = dataclasses.replace(data, bytes=reads.kind == "bytes")
    elif symbol_kind(data) != reads.kind:
        raise InputError(
            f"{name} reads {reads.kind}, and data.format {data.format} holds {symbol_kind(data)}; set data.format to "
            "text"
        )
    return dataclasses.replace(
        data, symbols="".join(map(chr, reads.values)), unknown=reads.unknown,
        remove_spaces=start.config.data.remove_spaces,
    )  # fmt: skip


def finetune(
    start: Checkpoint,
    name: str,
    data: str | Path | Sequence[str | Path],
    out: str | Path | None,
    progress: Callable[[dict[str, Any]], None] | None,
    **given: Any,
) -> tuple[nn.Module, Checkpoint]:
    """The model ``start``, called ``name``, trained further on ``data``: the network, and its best checkpoint.

    ``given`` are settings of the section "train"; None leaves one at its default. The other arguments are those of
    :meth:`hmrnn.pretrained.model.Model.finetune`.
    """
    with tempfile.TemporaryDirectory() as folder:
        wanted = _named(data, start, Path(folder), out is not None)
        config = finetune_config(start, name, wanted)
        t = dataclasses.replace(config.train, **{name: value for name, value in given.items() if value is not None})
        config = dataclasses.replace(config, train=t)
        config.check()
        run = RunDirectory(Path(folder, "run") if out is None else Path(os.path.expanduser(out)))
        run.check(resume=False, overwrite=False)
        least = 2 if config.data.format == "lines" else t.batch_size * t.length + 1
        try:
            corpus = load_corpus(config.data, training=least) if config.data.is_text else load_strokes(config.data)
        except InputError as error:  # which may name the file that the text was written to
            raise InputError(str(error).replace(str(Path(folder, "text")), "the text")) from error
        if isinstance(corpus, Corpus):
            config = settled(config, corpus)
        trainer = Trainer(config, corpus, choose_device(t.device), start=start)
        with run.open():
            for event in train(trainer, run):
                if progress is not None and event["event"] in ("train", "valid", "detector"):
                    progress(event)
        if event["signal"] is not None:
            raise KeyboardInterrupt(event["reason"])
        best = checkpoint.read(checkpoint.find(run.path))
    trainer.model.load_state_dict(best.weights)
    return trainer.model.eval(), best._replace(config=config)


def _named(data: str | Path | Sequence[str | Path], start: Checkpoint, folder: Path, kept: bool) -> DataConfig:
    """The data as files: a text is written to ``folder``. InputError if the run is ``kept`` and would miss them."""
    if start.reads.modality == "strokes":
        return DataConfig(format="strokes", path=_paths(data))
    kind: Literal["lines", "text"] = "lines" if start.config.data.format == "lines" else "text"
    if isinstance(data, str) and not os.path.exists(os.path.expanduser(data)):
        if files.seems_named(data):
            raise no_file(data)
        if kept:
            raise InputError(f"a run that is kept in out needs its text in a file, and there is no file {data[:100]!r}")
        (folder / "text").write_text(data, encoding="utf-8")
        return DataConfig(format=kind, path=(str(folder / "text"),), cache=str(folder / "cache"))
    return DataConfig(format=kind, path=_paths(data))


def _paths(data: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    return tuple(map(str, [data] if isinstance(data, str | Path) else data))
