"""The arguments of each command: a dataclass per command, whose fields are its flags.

``check`` finds what is wrong as far as that is known without torch, which takes seconds to import.
"""

from __future__ import annotations

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
from hmrnn.cli.arguments.others import BenchArguments, DataArguments, DemoArguments
from hmrnn.cli.arguments.train import TrainArguments

ARGUMENTS: dict[str, type] = {
    "demo": DemoArguments,
    "train": TrainArguments,
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
}
