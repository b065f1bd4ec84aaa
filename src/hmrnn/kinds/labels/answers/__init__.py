"""The answers of each kind of labelled sequences, by its name."""

from typing import Any

from hmrnn.kinds.labels.answers.classes import Labels, Pairs, Tags
from hmrnn.kinds.labels.answers.numbers import Numbers
from hmrnn.kinds.labels.answers.series import Forecasts

AnyAnswer = Labels | Tags | Pairs | Numbers | Forecasts
ANSWERS: dict[str, Any] = {
    "labels": Labels, "tags": Tags, "pairs": Pairs, "numbers": Numbers, "series": Forecasts
}  # fmt: skip
