"""Runs small enough for a test: a text in memory, a config whose update takes milliseconds, and ways to drive it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import io
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import pytest
import torch

from hmrnn import checkpoint
from hmrnn.config import Config, TrainConfig
from hmrnn.config.json import from_json
from hmrnn.kinds.text.corpus import Corpus
from hmrnn.kinds.text.model import TextModel
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.settings import TextData, TextModelConfig
from hmrnn.pretrained.load import load
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.training.loop import train
from hmrnn.training.metrics import read_metrics
from hmrnn.training.prepare import new_optimizer
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.task import Term
from hmrnn.training.trainer import Trainer

Kind = TypeVar("Kind", bound=Term)

ROOT = Path(__file__).parents[1]

DEFAULT = Config(TextData(), TextModelConfig())
"""A run on text with the defaults of the package."""
VOCABULARY = Vocabulary("characters", tuple(" abcdefgh"))
BYTES = Vocabulary("bytes", tuple(range(256)))


def text(length: int, seed: int = 0) -> str:
    """Words drawn at random."""
    words = np.random.default_rng(seed).choice(["abc", "de", "fgh", "a", "hhg", "cab"], length)
    return " ".join(words)[:length]


def corpus(train: int = 132, valid: int = 63, seed: int = 0) -> Corpus:
    whole = VOCABULARY.encode(text(train + 2 * valid, seed))
    return Corpus("tiny", VOCABULARY, *np.split(whole, [train, train + valid]), replaced={})


def config(**changes: Any) -> Config:
    """A tiny config; ``changes`` are fields of any of its sections but the data."""
    model = TextModelConfig(embedding_size=3, hidden_size=(6, 5, 4), output_size=5, layer_norm=False)
    train = TrainConfig(
        epochs=2, batch_size=4, length=3, learning_rate=0.02, log_every=4, checkpoint_every=1e9, device="cpu"
    )
    return changed(Config(TextData(), model, train), **changes)


def changed(config: Config, **changes: Any) -> Config:
    """``config`` with other values of fields of any section but the data."""
    for name, section in list(vars(config).items())[1:]:
        mine = {field.name: changes.pop(field.name) for field in dataclasses.fields(section) if field.name in changes}
        config = dataclasses.replace(config, **{name: dataclasses.replace(section, **mine)})
    assert not changes, changes
    return config


def flags(config: Config) -> list[str]:
    """The command-line flags that turn the preset for text files into ``config``, and no report."""
    result = ["--no-report"]
    for part in ("model", "train", "regularise", *(["detectors"] if config.model.detectors else [])):
        for name, value in dataclasses.asdict(getattr(config, part)).items():
            if value is None:
                continue
            flag = f"--{part}.{name.replace('_', '-')}"
            if isinstance(value, bool):
                result.append(flag if value else f"--{part}.no-{name.replace('_', '-')}")
            else:
                result += [flag, *map(str, value if isinstance(value, tuple) else [value])]
    return result


def trainer(config: Config, text: Corpus | None = None) -> Trainer:
    return Trainer(config, corpus() if text is None else text, torch.device("cpu"))


def in_precision(trainer: Trainer, dtype: torch.dtype = torch.float64) -> None:
    """Give a trainer that has made no update weights, optimizer and state of another precision."""
    trainer.model.to(dtype)
    trainer.optimizer = new_optimizer(trainer.model, trainer.config.train, trainer.device)
    if trainer.state is not None:
        trainer.state = trainer.model.rnn.initial_state(len(trainer.state.z))


def term(trainer: Trainer, kind: type[Kind]) -> Kind:
    """The one of its techniques that is of this kind."""
    (found,) = (one for one in trainer.terms if isinstance(one, kind))
    return found


Event = dict[str, Any]


def run(
    directory: Path,
    config: Config,
    *,
    resume: bool = False,
    stop: Callable[[Event], bool] = lambda event: False,
    crash: Callable[[Event], bool] = lambda event: False,
    text: Corpus | None = None,
) -> Event:
    """Train; where ``stop`` says so a SIGTERM arrives, where ``crash`` says so the process is gone. The last event."""
    here = RunDirectory(directory)
    here.check(resume=resume, overwrite=False)
    with here.open():
        events = train(trainer(config, text), here, resume=resume)
        event: Event = {}
        for event in events:
            if crash(event):
                break
            if event["event"] != "end" and stop(event):
                os.kill(os.getpid(), signal.SIGTERM)
        events.close()
    return event


def contents(directory: Path) -> dict[str, bytes | list[Event]]:
    """The checkpoints, byte for byte, and the metrics of a run, without the clock's part in them."""
    result: dict[str, bytes | list[Event]] = {}
    for path in sorted(directory.glob("*-0*/*")):
        if path.name == "training.json":
            progress = json.loads(path.read_bytes())
            assert progress.pop("seconds") > 0
            assert progress.pop("metrics_bytes") > 0  # lines differ in length by the clock
            result[str(path.relative_to(directory))] = [progress]
        elif path.name not in ("manifest.json", "config.json"):
            result[str(path.relative_to(directory))] = path.read_bytes()
    clock = ("seconds", "symbols_per_second")
    lines = read_metrics(directory / "metrics.jsonl")
    result["metrics"] = [{key: line[key] for key in line if key not in clock} for line in lines]
    return result


def hmrnn(line: str, *more: object) -> int:
    """Run a command line in this process, with ``more`` words behind it; its exit status."""
    from hmrnn.cli.main import main

    try:
        main([*shlex.split(line), *map(str, more)])
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    raise AssertionError("main must exit")


def stdin(patch: pytest.MonkeyPatch, content: str | bytes) -> None:
    """Let standard input be this."""
    data = content.encode() if isinstance(content, str) else content
    patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), errors="surrogateescape"))


class Command:
    """Runs command lines as ``hmrnn`` does; what the last one printed is in ``out`` and ``err``."""

    out = err = ""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, line: str, *more: object, status: int = 0) -> str:
        """Run one that must end with ``status``; what it printed."""
        self.capsys.readouterr()
        found = hmrnn(line, *more)
        self.out, self.err = self.capsys.readouterr()
        assert found == status, self.err
        return self.out

    def json(self, line: str, *more: object) -> Any:
        return json.loads(self(line, *more))

    def lines(self, line: str, *more: object) -> list[Any]:
        """One that prints a line of JSON for each thing."""
        return [json.loads(shown) for shown in self(line, *more).splitlines()]

    def refused(self, line: str, *more: object) -> str:
        """Run one that must be refused in one line; what it says."""
        self(line, *more, status=2)
        assert self.err.startswith("hmrnn: ")
        assert self.err.count("\n") == 1, self.err
        return self.err.removeprefix("hmrnn: ")


def saved_model(directory: Path, reads: Vocabulary = VOCABULARY, **data: Any) -> TextModel:
    """An untrained model, with ``data`` as settings of what it read, written to ``directory`` and loaded from there."""
    torch.manual_seed(0)
    settings = dataclasses.replace(config(), data=TextData(**data))
    weights = LanguageModel(len(reads), settings.model).state_dict()
    checkpoint.write(directory, checkpoint.Checkpoint(settings, reads, weights))
    loaded = load(directory)
    assert isinstance(loaded, TextModel)
    return loaded


def environment(cache: Path) -> dict[str, str]:
    """For a command in a process of its own."""
    plain = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "COLUMNS")}
    return {**plain, "HMRNN_CACHE": str(cache), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@contextlib.contextmanager
def story(folder: Path) -> Iterator[Path]:
    """Within it the folder is the working directory, with a text in story.txt and a cache of its own."""
    (folder / "story.txt").write_text(text(900))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HMRNN_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        yield folder


OF_A_MACHINE = {"path", "device", "precision", "checkpoint_every", "log_every", "seed"}


@functools.cache
def recorded(name: str) -> dict[str, Any]:
    """The lines of a file of results, by their names."""
    lines = (ROOT / "results" / f"{name}.jsonl").read_text().splitlines()
    return {line["name"]: line for line in map(json.loads, lines)}


def differences(run: Any, config: Config) -> set[str]:
    """Settings of a recorded config that ``config`` has otherwise, apart from those of a machine and the seed."""
    read = from_json(json.dumps(run).encode(), Config, "a recorded config")
    return {
        f"{part}.{field}"
        for part, settings in dataclasses.asdict(read).items()
        for field, value in settings.items()
        if field not in OF_A_MACHINE and value is not None and getattr(getattr(config, part), field) != value
    }


needs_results = pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="results/ is not part of the source archive")


def script(path: Path) -> ModuleType:
    """A script outside the package, as a module; it may import the files beside it."""
    found = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # where dataclasses look their annotations up
    sys.path.insert(0, str(path.parent))
    try:
        found.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
