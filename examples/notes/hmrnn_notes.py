"""Tunes as a kind of data for hmrnn.

A file holds a tune on each line: notes such as c4, f#5 or r (a rest), separated by spaces, each
with its length in quarters after a colon where that is not 1, as in `c4 d4 e4:2 r:0.5`.
"""

import random
import re
from pathlib import Path

from hmrnn.config import Config, DataConfig, DetectorConfig, ModelConfig, TrainConfig
from hmrnn.errors import InputError
from hmrnn.sequences import SequenceCorpus, SequenceKind, SymbolSpec
from hmrnn.utils.inputs import read_text

NOTE = re.compile(r"([a-g][#b]?\d|r)(:\d+(\.\d+)?)?")


class Notes(SequenceKind):
    name = "notes"
    formats = ("notes",)
    presets = {
        "notes": Config(
            DataConfig(format="notes", valid_fraction=0.1, test_fraction=0.1),
            ModelConfig(
                embedding_size=24,
                hidden_size=(64,),
                output_size=64,
                flush=False,
                top_down="pending",
            ),
            TrainConfig(epochs=30, batch_size=16, learning_rate=0.005, cool_down=0.9),
            detectors=DetectorConfig(rates=(0.25, 0.08), start_at_rates=True, rate_control=0.05),
        )
    }

    def load(self, config: Config, progress: object = None) -> SequenceCorpus:
        tunes: list[list[str]] = []
        for path in config.data.path:
            lines = read_text(None, path, "characters").splitlines()
            for number, line in enumerate(lines, start=1):
                for note in line.split():
                    if not NOTE.fullmatch(note):
                        raise InputError(f"{path}, line {number}: {note!r} is not a note")
                tunes += [line.split()] if len(line.split()) > 1 else []
        random.Random(1).shuffle(tunes)
        ends = [
            0,
            config.data.test_fraction,
            config.data.test_fraction + config.data.valid_fraction,
        ]
        at = [round(len(tunes) * end) for end in ends]
        spec = SymbolSpec(tuple(sorted({note for tune in tunes for note in tune})), "note")
        test, valid, train = (tunes[a:b] for a, b in zip(at, [*at[1:], None]))
        return SequenceCorpus(Path(config.data.path[0]).name, spec, train, valid, test)


NOTES = Notes()
