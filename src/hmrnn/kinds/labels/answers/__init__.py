"""The answers of each kind of labelled sequences, by its name."""

from hmrnn.kinds.labels.answers.base import Answer as Answer
from hmrnn.kinds.labels.answers.labels import Labels
from hmrnn.kinds.labels.answers.numbers import Numbers
from hmrnn.kinds.labels.answers.pairs import Pairs
from hmrnn.kinds.labels.answers.series import Forecasts
from hmrnn.kinds.labels.answers.tags import Tags

AnyAnswer = Labels | Tags | Pairs | Numbers | Forecasts
ANSWERS: dict[str, type[Answer]] = {
    "labels": Labels, "tags": Tags, "pairs": Pairs, "numbers": Numbers, "series": Forecasts
}  # fmt: skip
