"""The arguments of each command: a dataclass per command, whose fields are its flags.

``check`` finds what is wrong as far as that is known without torch, which takes seconds to import.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from hmrnn import kind
from hmrnn.cli.arguments.models import (
    EvaluateArguments,
    ExploreArguments,
    ExportArguments,
    GenerateArguments,
    PlotArguments,
    PredictArguments,
    ScoreArguments,
    SegmentArguments,
)
from hmrnn.cli.arguments.others import (
    BenchArguments,
    DataArguments,
    DemoArguments,
    DoctorArguments,
    ShellArguments,
    WordsArguments,
)
from hmrnn.cli.arguments.train import TrainArguments
from hmrnn.errors import InputError
from hmrnn.kind import Kind
from hmrnn.utils.options import Options, named

ARGUMENTS: dict[str, type[Any]] = {
    "demo": DemoArguments,
    "train": TrainArguments,
    "words": WordsArguments,
    "evaluate": EvaluateArguments,
    "score": ScoreArguments,
    "segment": SegmentArguments,
    "generate": GenerateArguments,
    "predict": PredictArguments,
    "plot": PlotArguments,
    "explore": ExploreArguments,
    "export": ExportArguments,
    "data": DataArguments,
    "bench": BenchArguments,
    "doctor": DoctorArguments,
    "shell": ShellArguments,
}
"""What the commands have for every kind of data."""


@functools.cache
def arguments_of(command: str) -> type[Any]:
    """The arguments of a command, those that only some kinds of data have included."""
    common = ARGUMENTS[command]
    own = dict.fromkeys(one.options[command] for one in kind.every() if command in one.options)
    least = [one for one in own if not any(one is not other and issubclass(other, one) for other in own)]
    return dataclasses.make_dataclass(
        common.__name__, (), bases=(*least, common), frozen=True, namespace={"__doc__": common.__doc__}
    )


def check_kind(command: str, arguments: Options, of: Kind) -> None:
    """Raise InputError if an option is given that this kind of data does not have."""
    classes = {one.name: one.options[command] for one in kind.every() if command in one.options}
    known = {field.name for one in (ARGUMENTS[command], classes.get(of.name, Options)) for field in _fields(one)}
    for field in arguments.given():
        if field.name not in known:
            others = [name for name, one in classes.items() if any(each.name == field.name for each in _fields(one))]
            raise InputError(f"{named(field)} is for {' and '.join(others)}, and this is {of.name}; leave it out")


def _fields(options: type[Any]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(options) if dataclasses.is_dataclass(options) else ()
