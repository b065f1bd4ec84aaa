"""Configs: into JSON and back, and what cannot work is refused by name."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, get_args

import msgspec
import numpy as np
import pytest

import tiny
from hmrnn import kind
from hmrnn.config import Config, DetectorConfig
from hmrnn.config.changes import fit, replaced
from hmrnn.config.checks import settings_of
from hmrnn.config.json import from_json, to_json
from hmrnn.kinds.text.settings import TextData
from refusals import refused

PRESETS = kind.presets()


@pytest.mark.parametrize("name", PRESETS)
def test_presets_work_and_survive_json(name: str) -> None:
    config = PRESETS[name]
    config.check()
    assert from_json(to_json(config), Config, "here") == config


def test_presets_are_the_papers_settings() -> None:
    ptb, wikipedia = PRESETS["ptb"], PRESETS["enwik8"]
    assert (ptb.model.embedding_size, ptb.model.hidden_size, ptb.model.num_layers, ptb.model.output_size) == (
        128, (512,), 3, 512,
    )  # fmt: skip
    t = ptb.train
    assert (t.batch_size, t.length, t.learning_rate, t.divide_rate_by, t.clip_norm) == (64, 100, 0.002, 50.0, 1.0)
    assert (ptb.detectors.slope, ptb.model.layer_norm, ptb.detectors.estimator) == ((0.04, 5.0), True, "step")
    for config in (wikipedia, PRESETS["text8"]):
        assert (config.model.hidden_size, config.model.output_size) == ((1024,), 2048)
        assert (config.train.batch_size, config.train.learning_rate) == (128, 0.001)


BEST = {
    "ptb-best": ("ptb-large", "held-decay-seed1"),
    "enwik8-best": ("enwik8", "held-best-heavy-seed1"),
    "iamondb-best": ("iamondb-weight-drop", "hm-annealed-seed2"),
}
FILES = [path.stem for path in (tiny.ROOT / "results").glob("*.jsonl")]


@tiny.needs_results
@pytest.mark.parametrize(("name", "row"), BEST.items())
def test_presets_of_the_best_results_are_of_the_best_hm_lstm(name: str, row: tuple[str, str]) -> None:
    file, run = row
    best = tiny.recorded(file)[run]
    assert tiny.differences(best["config"], PRESETS[name]) == {"train.recurrent_gain"}  # 0.3, which is the default
    measure = "validation_bits" if "validation_bits" in best else "validation_nats"
    others = [run for file in FILES for run in tiny.recorded(file).values() if run.get("data") == best["data"]]
    assert best[measure] == min(run[measure] for run in others if "HM-LSTM" in run["model"])


@tiny.needs_results
def test_recorded_configs_load_and_keep_every_setting() -> None:
    recorded = [run["config"] for file in FILES for run in tiny.recorded(file).values() if "config" in run]
    assert len(recorded) > 100
    for one in recorded:
        config = from_json(json.dumps(one).encode(), Config, "here")
        config.check()
        loaded = json.loads(to_json(config))
        for part, settings in one.items():
            assert settings == {field: loaded[part][field] for field in settings}


def test_every_field_is_explained() -> None:
    """The docstrings under the fields are the help of the command line."""
    for preset in PRESETS.values():
        for setting in settings_of(Config, preset):
            assert setting.doc, setting.name


def beyond(kind: Any) -> list[Any]:
    """Values that the bounds in a type forbid. JSON has no infinity: a run with one could never be read again."""
    bounds = [one for one in getattr(kind, "__metadata__", ()) if isinstance(one, msgspec.Meta)]
    least = [one.ge - 1 for one in bounds if one.ge is not None] + [one.gt for one in bounds if one.gt is not None]
    most = [2 * one.le + 1 for one in bounds if one.le is not None] + [one.lt for one in bounds if one.lt is not None]
    return [*least, *most, *([math.inf, math.nan] if get_args(kind)[:1] == (float,) else [])]


BOUNDED = {one.name: found for one in settings_of(Config, tiny.DEFAULT) if (found := beyond(one.kind))}
WRONG: dict[str, tuple[Any, ...]] = {
    "model.hidden_size": ((8, 0, 8), (8, 8), ()),
    "train.epochs": (0, 2.5),
    "train.accumulate": (7,),
    "train.learning_rate": (np.float64(0.1), None),
    "train.adam_rate": (0.5,),
    "train.validation_symbols": (1,),
    "train.recurrent_gain": (-0.1, math.inf, "1"),
    "detectors.slope": ((0.1, 0.0), (math.nan, 5.0), (1.0, math.inf), (1.0,)),
    "detectors.temperature": ((1.0, 0.0),),
    "detectors.hidden": (10**400,),
    "detectors.bounds": ((0.0, -1.0), (1.0, math.nan)),
    "detectors.bias": ((0.0, 1.0, 2.0), (math.nan,)),
    "detectors.start_at_rates": (True,),
    "detectors.rate_control": (0.1,),
    "detectors.pull_weight": (0.1,),
    "detectors.rates": ((0.5,), (0.5, 1.5), [0.3, 0.1]),
    "detectors.pull_to": ("surprise",),
    "detectors.pull_delay": (True,),
    "model.flush": ("no",),
    "data.path": ("book.txt",),
    "data.bytes": (True,),
    "data.valid_fraction": (0.95,),
    "data.test_fraction": (0.95,),
}


@pytest.mark.parametrize("setting", BOUNDED | WRONG)
def test_impossible_values(setting: str) -> None:
    config = dataclasses.replace(tiny.DEFAULT, data=TextData(format="ptb"))
    config.check()
    for value in (*BOUNDED.get(setting, ()), *WRONG.get(setting, ())):
        with refused() as caught:
            replaced(config, {setting: value}).check()
        assert setting in str(caught.value)


def test_biases_are_given_or_found() -> None:
    detectors = DetectorConfig(rates=(0.5, 0.5), start_at_rates=True, bias=(0.1,))
    with refused("detectors.start_at_rates"):
        dataclasses.replace(tiny.DEFAULT, detectors=detectors).check()


def test_further_symbols_of_bytes_are_bytes() -> None:
    data = TextData(format="manual", bytes=True, symbols="\xff")
    dataclasses.replace(tiny.DEFAULT, data=data).check()
    with refused("data.symbols"):
        dataclasses.replace(tiny.DEFAULT, data=dataclasses.replace(data, symbols="a\u0100")).check()


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", ""),
        (b"[1]", ""),
        (b'{"train": {"epochs": 1.5}}', ""),
        (b'{"detectors": {"estimator": "maybe"}}', ""),
        (b'{"train": []}', ""),
        (b"\xff", ""),
        (b'{"data": {"format": "text"}, "model": {"rnn": "mamba"}}', "model.rnn"),
        # not passed over: a name mistyped, or one of a newer version, would give another model without a word
        (b'{"data": {"format": "text"}, "model": {"hiden_size": [4]}}', "model.hiden_size"),
        (b'{"data": {"format": "text"}, "modle": {}}', "modle"),
    ],
)
def test_json_that_does_not_fit_is_located(data: bytes, named: str) -> None:
    with refused(named) as caught:
        from_json(data, Config, "here")
    assert "here" in str(caught.value)


def test_sections_are_those_of_the_kind_of_data() -> None:
    for changed in (
        dataclasses.replace(tiny.DEFAULT, data=PRESETS["strokes"].data),
        dataclasses.replace(tiny.DEFAULT, data=TextData(format="labels")),  # type: ignore[arg-type]
        dataclasses.replace(tiny.DEFAULT, data=TextData(format="nonsense")),  # type: ignore[arg-type]
    ):
        with refused("data.format"):
            changed.check()


@pytest.mark.parametrize("model", [{"rnn": "lstm"}, {"top_down": "none"}])
def test_the_output_reads_all_layers_where_the_first_would_be_alone(model: dict[str, Any]) -> None:
    with refused("model.output_layers"):
        tiny.changed(tiny.DEFAULT, output_layers="first", **model).check()


@pytest.mark.parametrize("name", ["manual", "novel"])
def test_built_in_data_have_no_files(name: Any) -> None:
    with refused("data.path"):
        dataclasses.replace(tiny.DEFAULT, data=TextData(format=name, path=("book.txt",))).check()


@pytest.mark.parametrize("model", [{"rnn": "lstm"}, {"rnn": "hrnn"}, {"num_layers": 1}])
def test_networks_that_find_no_boundaries_take_no_rates(model: dict[str, Any]) -> None:
    """The rates are not asked for first, and then refused."""
    for what in ({"rates": (0.3, 0.1)}, {"bias": (0.1,)}, {"rate_control": 0.1}, {"pull_weight": 0.1}):
        with refused(f"detectors.{next(iter(what))}"):
            tiny.changed(tiny.DEFAULT, **model, **what).check()
    schedules = tiny.changed(tiny.DEFAULT, **model, slope=(0.1, 2.0), bounds=(0.5, 0.5))
    if model == {"rnn": "hrnn"}:
        schedules.check()
        return
    with refused("detectors.slope"):
        schedules.check()


def test_boundaries_that_are_given_are_not_learned() -> None:
    with refused("detectors.estimator"):
        tiny.changed(tiny.DEFAULT, rnn="hrnn", estimator="reinforce").check()


@pytest.mark.parametrize(
    ("model", "rates"),
    [
        ({}, (0.19, 0.05)),
        ({"num_layers": 2}, (0.19,)),
        ({"num_layers": 4}, (0.19, 0.05, 0.0132)),
        ({"num_layers": 1}, ()),
        ({"rnn": "ln-lstm"}, ()),
        ({"rnn": "hrnn"}, ()),
    ],
    ids=str,
)
def test_rates_of_a_preset_follow_the_network(model: dict[str, Any], rates: tuple[float, ...]) -> None:
    preset = PRESETS["text"]
    fitted = fit(tiny.changed(preset, **model), preset)
    fitted.check()
    detectors = fitted.detectors
    assert detectors.rates == rates
    assert detectors.start_at_rates == (detectors.rate_control > 0) == (detectors.pull_weight > 0) == (rates != ())


def test_an_h_net_keeps_the_first_rate_of_a_preset_and_holds_it_by_the_prior() -> None:
    preset = PRESETS["text"]
    fitted = fit(tiny.changed(preset, rnn="h-net"), preset)
    fitted.check()
    d = fitted.detectors
    assert (d.rates, d.rate_weight) == (preset.detectors.rates[:1], 1.0)
    assert (d.rate_control, d.pull_weight, d.start_at_rates, d.on_copy) == (0.0, 0.0, False, "evaluate")
    free = preset.changed({"model.rnn": "h-net", "detectors.rate_weight": 0.0})
    assert free.detectors.rate_weight == 0
    for what in ({"slope": (0.1, 2.0)}, {"hidden": 3}, {"rate_control": 0.1}, {"on_copy": "hold"}):
        with refused(f"detectors.{next(iter(what))}"):
            tiny.changed(fitted, **what).check()


def test_adam_trains_the_output_of_a_reservoir() -> None:
    preset = tiny.changed(PRESETS["text"], optimizer="muon", adam_rate=0.5)
    fitted = fit(tiny.changed(preset, rnn="echo-state"), preset)
    fitted.check()
    assert (fitted.train.optimizer, fit(preset, preset).train.optimizer) == ("adam", "muon")


def test_rates_that_were_asked_for_stay() -> None:
    preset = PRESETS["text"]
    asked = tiny.changed(preset, rates=(0.4, 0.1))
    assert fit(asked, preset) == asked
    with refused("detectors.rates"):
        fit(tiny.changed(asked, num_layers=2), preset).check()
    free = fit(tiny.changed(preset, rates=()), preset)
    free.check()
    assert free.detectors.pull_weight == 0
    with refused("detectors.pull_weight"):
        fit(tiny.changed(preset, rates=(), pull_weight=0.4), preset).check()


@pytest.mark.parametrize(
    ("rnn", "what"),
    [("lstm", {"flush": False}), ("gru", {"modules": 2}), ("hm-lstm", {"delay": 3}), ("skip", {"kernel": 3})],
)
def test_settings_of_another_network_are_refused_and_those_of_a_preset_left_out(rnn: str, what: dict[str, Any]) -> None:
    with refused(f"model.{next(iter(what))}"):
        tiny.changed(tiny.DEFAULT, rnn=rnn, **what).check()
    for name in PRESETS.keys() - {"pairs"}:  # it attends to segments
        PRESETS[name].changed({"model.rnn": rnn}).check()


@pytest.mark.parametrize("name", PRESETS)
def test_the_rates_of_a_preset_fit_it(name: str) -> None:
    assert fit(PRESETS[name], PRESETS[name]) == PRESETS[name]
