"""Event logs as a kind of data for hmrnn: what each user did, and when.

A log is a CSV file with the columns time (in seconds), user and event. The events of a user, in
the order of time, are a sequence; the model predicts each event and how long it is in coming.
"""

import collections
import csv
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Normal

from hmrnn.config import Config, DataConfig, DetectorConfig, ModelConfig, TrainConfig
from hmrnn.errors import InputError
from hmrnn.nn.distributions import Categorical
from hmrnn.nn.predictor import Predictor
from hmrnn.sequences import SequenceCorpus, SequenceKind
from hmrnn.utils.inputs import read_text

SIZE = 16  # of the embedding of an event
Log = list[tuple[float, str]]  # the times and events of a user


class EventSpec(NamedTuple):
    """The events that a model knows; it reads of one its number and the logarithm of the wait."""

    events: tuple[str, ...]
    unit = "event"

    def encode(self, log: Log) -> np.ndarray:
        """(T, 2) float32."""
        times, events = zip(*log)
        if unknown := set(events) - set(self.events):
            raise InputError(f"the model does not know the event {min(unknown)!r}")
        places = [self.events.index(event) for event in events]
        waits = np.log1p(np.diff(times, prepend=times[0]))
        return np.array([places, waits], np.float32).T

    def decode(self, steps: np.ndarray) -> Log:
        times = np.expm1(steps[:, 1]).cumsum(dtype=np.float64)
        return list(zip(times.tolist(), [self.events[int(k)] for k in steps[:, 0]]))

    def pieces(self, steps: np.ndarray) -> list[str]:
        return [event + " " for _, event in self.decode(steps)]

    def describe(self) -> str:
        return f"{len(self.events)} kinds of events"

    def to_dict(self) -> dict:
        return {"events": list(self.events)}


class EventPrediction(NamedTuple):
    """A distribution of the next event, and a normal one of the logarithm of the wait."""

    scores: Tensor  # (..., events)
    mean: Tensor
    log_deviation: Tensor

    @property
    def wait(self) -> Normal:
        return Normal(self.mean, self.log_deviation.exp(), validate_args=False)

    def log_prob(self, x: Tensor) -> Tensor:
        return Categorical(self.scores).log_prob(x[..., 0].long()) + self.wait.log_prob(x[..., 1])

    def entropy(self) -> Tensor:
        return Categorical(self.scores).entropy() + self.wait.entropy()

    def sample(self, generator: torch.Generator | None = None, **how: float) -> Tensor:
        event = Categorical(self.scores).sample(generator, **how)
        wait = torch.normal(self.mean.cpu(), self.wait.stddev.cpu(), generator=generator)
        return torch.stack([event.float(), wait.clamp(min=0)], dim=-1)

    def next_input(self, drawn: Tensor) -> Tensor:
        return drawn

    def draw(self) -> Tensor:
        return self.sample()


class EventEmbedding(nn.Module):
    def __init__(self, events: int) -> None:
        super().__init__()
        self.events = nn.Embedding(events, SIZE)

    def forward(self, x: Tensor) -> Tensor:  # (..., 2)
        return torch.cat([self.events(x[..., 0].long()), x[..., 1:]], dim=-1)


class EventModel(Predictor):
    step_shape = (2,)

    def __init__(self, events: int, config: ModelConfig, **how: object) -> None:
        super().__init__(config, SIZE + 1, embedding=EventEmbedding(events), **how)
        self.head = nn.Linear(self.output.size, events + 2)

    def expect(self, embedding: Tensor) -> EventPrediction:
        vector = self.head(embedding).float()
        return EventPrediction(vector[..., :-2], vector[..., -2], vector[..., -1].clamp(-5, 5))


class Events(SequenceKind):
    name = "events"
    formats = ("events",)
    presets = {
        "events": Config(
            DataConfig(format="events", valid_fraction=0.1, test_fraction=0.1),
            ModelConfig(hidden_size=(64,), output_size=64, flush=False, top_down="pending"),
            TrainConfig(epochs=20, batch_size=16, learning_rate=0.005, cool_down=0.9),
            detectors=DetectorConfig(rates=(0.3, 0.1), start_at_rates=True, rate_control=0.05),
        )
    }

    def spec(self, plain: dict) -> EventSpec:
        return EventSpec(tuple(plain["events"]))

    def load(self, config: Config, progress: object = None) -> SequenceCorpus:
        data, users = config.data, collections.defaultdict(list)
        for path in data.path:
            try:
                for row in csv.DictReader(read_text(None, path, "characters").splitlines()):
                    if not row["event"]:
                        raise ValueError("a row has no event")
                    users[row["user"]].append((float(row["time"]), row["event"]))
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(f"{path} is no log of events: {error}") from error
        logs = [sorted(log) for log in users.values() if len(log) > 1]
        spec = EventSpec(tuple(sorted({event for log in logs for _, event in log})))
        a, b = (int(len(logs) * share) for share in (data.valid_fraction, data.test_fraction))
        return SequenceCorpus(data.path[0], spec, logs[a + b :], logs[:a], logs[a : a + b])

    def network(self, config: Config, spec: EventSpec, engine: str = "auto") -> EventModel:
        return EventModel(len(spec.events), config.model, engine=engine, detectors=config.detectors)


EVENTS = Events()
