"""``hmrnn predict``: the answers of a model of labels, tags or pairs."""

from __future__ import annotations

from typing import Any

import msgspec

from hmrnn.analysis.decision import Decision, shown_answer
from hmrnn.cli import inputs
from hmrnn.cli.arguments import PredictArguments
from hmrnn.cli.terminal import say, warn
from hmrnn.data.labels.files import Labelled, decoded, parse
from hmrnn.errors import InputError
from hmrnn.pretrained.labelled import LabelledModel, PairModel
from hmrnn.pretrained.load import load
from hmrnn.utils.devices import choose_device

WRONG = {"labels": "labels", "tags": "tags", "pairs": "sequences"}


def run(arguments: PredictArguments) -> int:
    model = load(arguments.model, device=choose_device(arguments.device))
    if not isinstance(model, LabelledModel):
        raise InputError(
            f"{arguments.model} is a model of {model.reads.modality}; hmrnn predict needs one of labels, tags or pairs"
        )
    if arguments.beam > 1 and not isinstance(model, PairModel):
        raise InputError(f"--beam is for pairs, and {arguments.model} is a model of {model.reads.modality}")
    given = _given(arguments.file, model)
    how = {"beam": arguments.beam} if isinstance(model, PairModel) else {}
    for sequence, decision in zip(given.sequences, model.explain(given.sequences, **how)):
        if arguments.json:
            say(msgspec.json.encode(decision.to_dict()).decode())
        elif arguments.explain:
            say(f"{_shown(sequence, decision)}\n{decision.render()}\n")
        else:
            say("\t".join([shown_answer(decision.answer), *_sure(decision), _shown(sequence, decision)]))
    if given.answers is not None:
        answers: list[Any] = [_typed(one, model) for one in given.answers]
        right = model.score(given.sequences, answers, **how)
        warn(f"{right:.2%} of the {WRONG[model.reads.modality]} are right")
    return 0


def _given(path: str, model: LabelledModel) -> Labelled:
    name = "standard input" if path == "-" else path
    data = inputs.read_bytes(None if path == "-" else path)
    reads = model.reads
    tokens = reads.spelled or any(len(symbol) > 1 for symbol in reads.symbols)
    found = parse(decoded(data, name), name, reads.modality, tokens=tokens, numbers=not reads.symbols)
    if not found.sequences:
        raise InputError(f"{name} holds no sequences")
    return found


def _typed(answer: Any, model: LabelledModel) -> Any:
    """An answer from a table, where all are strings, as one of the model's classes if these are numbers."""
    known = {str(label): label for label in model.reads.classes}
    if model.reads.modality == "labels":
        return known.get(str(answer), answer)
    return [known.get(str(tag), tag) for tag in answer] if model.reads.modality == "tags" else answer


def _sure(decision: Decision) -> list[str]:
    """The probability of a label; nothing for tags and pairs."""
    chances = decision.probabilities
    return [f"{chances[decision.answer]:.3f}"] if isinstance(chances, dict) else []


def _shown(sequence: Any, decision: Decision) -> str:
    if decision.numbers:
        return f"{len(decision.segmentation)} steps"
    return sequence if isinstance(sequence, str) else " ".join(sequence)
