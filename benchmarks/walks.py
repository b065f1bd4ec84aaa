"""How many files of the package are entered on three walks: from a batch to its loss, a whole update, a segmentation.

    python benchmarks/walks.py            # the table of docs/architecture.md
    python benchmarks/walks.py --files    # also the files of each walk, in the order in which they are first entered
    python benchmarks/walks.py --write    # put the table onto the page; `make docs` does so

A small model reads a small text on a CPU, as `hmrnn train` and `model.segment` do; what runs only once is not counted.
The exit status is 1 if a walk passes more files than its limit.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch

import hmrnn
from hmrnn.kind import of
from hmrnn.kinds.text.presets import PRESETS
from hmrnn.kinds.text.settings import TextData
from hmrnn.training.trainer import Trainer

PACKAGE = str(Path(hmrnn.__file__).parent) + "/"
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
TEXT = "When the boats came back in the evening, the whole town was waiting on the pier.\n"
LIMITS = {"from a batch to its loss": 11, "a whole update": 18, "`model.segment`": 14}


def files_of(walk: Callable[[], object]) -> list[str]:
    """The files of the package whose functions ``walk`` enters, each once."""
    entered: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            entered.setdefault(frame.f_code.co_filename.removeprefix(PACKAGE))

    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(None)
    return list(entered)


def walks() -> dict[str, list[str]]:
    """The files of each walk."""
    torch.set_num_threads(1)
    preset = PRESETS["demo"]
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        text.write_text(TEXT * 100)
        model = dataclasses.replace(preset.model, embedding_size=8, hidden_size=(16,), output_size=16)
        train = dataclasses.replace(preset.train, batch_size=4, length=20, device="cpu")
        config = dataclasses.replace(preset, data=TextData(path=(str(text),)), model=model, train=train)
        trainer = Trainer(config, of(config).load(config), torch.device("cpu"))
        trainer.step()
        trained = hmrnn.load("english-small")
        trained.segment(TEXT)

        def loss() -> None:
            trainer.task.loss(trainer.model, trainer.task.batch(0, 2), trainer.state)

        walked = (loss, trainer.step, lambda: trained.segment(TEXT))
        return {name: files_of(walk) for name, walk in zip(LIMITS, walked, strict=True)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    found = walks()
    rows = [f"| {name} | {len(files)} | {LIMITS[name]} |" for name, files in found.items()]
    table = "\n".join(["| walk | files | goal |", "|---|---|---|", *rows])
    print(table)
    if arguments.files:
        for name, files in found.items():
            print(f"\n{name}:", *files, sep="\n  ")
    if arguments.write:
        before, rest = PAGE.read_text().split("<!-- walks -->\n")
        PAGE.write_text(f"{before}<!-- walks -->\n{table}\n<!-- end -->{rest.split('<!-- end -->')[1]}")
    return int(any(len(files) > LIMITS[name] for name, files in found.items()))


if __name__ == "__main__":
    sys.exit(main())
