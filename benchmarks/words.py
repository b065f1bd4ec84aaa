"""Train with a segmental head on a text whose spaces are removed, and score its words against the spaces.

    python benchmarks/words.py FILE... [--seed 1] [--set train.epochs=4 model.hidden_size=(256,) ...] [--out FILE.json]

Starts from the preset words. Prints boundary F1 / word F1 of the head (the most probable segmentation of each line) and
of the detectors (one symbol late, moved back), and the bits of the next symbol, on the validation and the test part.
Nothing is chosen by the spaces. --plain trains the same network without the head and without pulls, for its bits.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
import math
import time

import numpy as np
import torch

from hmrnn.config import Config, DetectorConfig, SegmentConfig
from hmrnn.kinds.text.corpus import load_corpus
from hmrnn.kinds.text.evaluate import evaluate, find
from hmrnn.kinds.text.gold import against_removed_spaces
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.presets import PRESETS
from hmrnn.kinds.text.task import settled
from hmrnn.training.trainer import Trainer
from hmrnn.utils.devices import choose_device


def configured(settings: list[str]) -> Config:
    """The preset words with other values: ["train.epochs=4", ...]."""
    config = PRESETS["words"]
    for setting in settings:
        name, value = setting.split("=", 1)
        section, field = name.split(".")
        try:
            parsed = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parsed = value
        part = dataclasses.replace(getattr(config, section), **{field: parsed})
        config = dataclasses.replace(config, **{section: part})
    return config


def scores(trainer: Trainer, corpus: object, part: str) -> dict[str, float]:
    """F1 of boundaries and words by the head and by the detectors, and bits, on a part of the corpus."""
    model, symbols = trainer.model, np.asarray(getattr(corpus, part))
    result = {"bits": evaluate(model, symbols, streams=64, warmup=200).bits}
    if model.segments is None and not trainer.config.detectors.rates:  # --plain
        return result
    found = find(model, symbols, streams=64, warmup=200)
    late = trainer.config.detectors.pull_delay
    moved = np.concatenate([found.boundaries[late:], np.zeros((late, found.boundaries.shape[1]), bool)])
    rows = against_removed_spaces(
        found._replace(boundaries=moved),
        symbols,
        corpus.spaces[part],
        corpus.vocabulary,  # type: ignore[attr-defined]
    )
    for row in rows:
        if row.name in ("head", "level 1"):
            kind = "head" if row.name == "head" else "detectors"
            result |= {f"{kind} boundary": row.scores[0].f1, f"{kind} word": row.words.f1 if row.words else 0.0}
            result |= {f"{kind} type": row.types.f1 if row.types else 0.0, f"{kind} length": row.length}
    return result


@torch.no_grad()
def lexicon_alone(model: LanguageModel) -> None:
    """Make the head a unigram lexicon: 1 of 400 words is none of the lexicon, and is spelt with equal probabilities."""
    head = model.segments
    assert head is not None
    assert head.gate is not None
    for parameter in head.parameters():
        parameter.zero_()
    head.gate.bias.fill_(math.log(400))


def prepared(config: Config, corpus: object, uncaptured: bool) -> Trainer:
    trainer = Trainer(config, corpus, choose_device(config.train.device))
    trainer.captured = None if uncaptured else trainer.captured
    return trainer


def seconds_per_update(trainer: Trainer, count: int = 40) -> float:
    """The mean time of updates, after ten that are not counted."""
    for _ in range(10):
        trainer.step()
    trainer.window_means()  # waits for a GPU
    began = time.monotonic()
    for _ in range(count):
        trainer.step()
    trainer.window_means()
    return (time.monotonic() - began) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--lexicon", action="store_true", help="pull to a unigram lexicon that is not trained further")
    parser.add_argument("--parts", nargs="*", default=["valid", "test"])
    parser.add_argument("--uncaptured", action="store_true", help="on a GPU: no CUDA graph")
    parser.add_argument("--symbols", type=int, help="train on so many symbols from the start of the training part")
    parser.add_argument("--steps", type=int, default=0, help="stop after so many updates")
    parser.add_argument("--seconds", type=float, default=0, help="choose train.epochs so that training takes so long")
    parser.add_argument("--limit", type=float, default=0, help="stop training after so many seconds, and score")
    parser.add_argument("--every", type=int, default=0, help="print scores on the validation part so often, in updates")
    parser.add_argument("--out", help="a file of JSON lines: the scores on the way, then the record of the run")
    given = parser.parse_args()

    def note(record: dict[str, object]) -> None:
        line = json.dumps(record)
        print(line, flush=True)
        if given.out:
            with open(given.out, "a") as file:
                file.write(line + "\n")

    config = configured(given.set)
    config = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, path=tuple(given.path)),
        train=dataclasses.replace(config.train, seed=given.seed),
    )
    torch.set_num_threads(config.train.threads or 1)
    corpus = load_corpus(config.data)
    corpus = dataclasses.replace(corpus, train=corpus.train[: given.symbols])
    began = time.monotonic()
    config = settled(config, corpus)
    trainer = prepared(config, corpus, given.uncaptured)
    if given.seconds:
        epochs = max(1, int(given.seconds / (seconds_per_update(trainer) * trainer.task.chunks)))
        config = dataclasses.replace(config, train=dataclasses.replace(config.train, epochs=epochs))
    if given.plain:
        config = dataclasses.replace(config, detectors=DetectorConfig(), segments=SegmentConfig())
    if given.seconds or given.plain:
        trainer = prepared(config, corpus, given.uncaptured)
    if given.lexicon:  # with segments.weight 0, so that the head stays as it is
        lexicon_alone(trainer.model)
    steps = given.steps or config.train.epochs * trainer.task.chunks
    print(
        f"{corpus.name}: {steps} updates, longest {config.segments.longest}, rates {config.detectors.rates}", flush=True
    )
    for step in range(1, steps + 1):
        trainer.step()
        if step % max(1, steps // 8) == 0:
            means = trainer.window_means()
            print(f"{step} {time.monotonic() - began:.0f} s, bits and rates {means}", flush=True)
        if given.every and step % given.every == 0 and step < steps:
            note({"step": step, "seconds": round(time.monotonic() - began), "valid": scores(trainer, corpus, "valid")})
        if given.limit and time.monotonic() - began > given.limit:
            break
    record = {
        "seed": given.seed,
        "plain": given.plain,
        "lexicon": given.lexicon,
        "set": given.set,
        "symbols": len(corpus.train),
        "epochs": config.train.epochs,
        "updates": step,
        "of": steps,
        "seconds": round(time.monotonic() - began),
    }
    record |= {part: scores(trainer, corpus, part) for part in given.parts}
    note(record)


if __name__ == "__main__":
    main()
