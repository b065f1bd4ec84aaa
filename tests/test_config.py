"""Configs: into JSON and back, and what cannot work is refused by name."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

import tiny
from hmrnn.config import Config, DataConfig, ModelConfig, RegulariseConfig, TrainConfig, from_json, to_json
from hmrnn.config_use import unused
from hmrnn.errors import InputError
from hmrnn.presets import PRESETS, fit

RESULTS = Path(__file__).parent.parent / "results"


@pytest.mark.parametrize("name", PRESETS)
def test_presets_work_and_survive_json(name: str) -> None:
    config = PRESETS[name]
    config.check()
    assert from_json(to_json(config), Config, "here") == config


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_no_setting_is_infinite(value: float) -> None:
    """JSON has no such number: a run with one would be trained and could never be read again."""
    default, tried = Config(), 0
    for part in ("data", "model", "train", "regularise"):
        for field in dataclasses.fields(getattr(default, part)):
            if isinstance(default.setting(f"{part}.{field.name}"), float):
                changed = dataclasses.replace(getattr(default, part), **{field.name: value})
                with pytest.raises(InputError, match=field.name):
                    dataclasses.replace(default, **{part: changed}).check()
                tried += 1
    assert tried > 20


def test_one_symbol_cannot_be_validated_on() -> None:
    for symbols in (0, 2):
        Config(train=TrainConfig(validation_symbols=symbols)).check()
    with pytest.raises(InputError, match=r"train\.validation_symbols must be 0, for all, or at least 2; got 1"):
        Config(train=TrainConfig(validation_symbols=1)).check()


@pytest.mark.parametrize("rnn", ["hm-lstm", "lstm"])
def test_one_layer_has_nothing_between_layers(rnn: Any) -> None:
    assert "regularise.dropout_between" in unused(ModelConfig(rnn=rnn, num_layers=1))
    assert "regularise.dropout_between" not in unused(ModelConfig(rnn=rnn, num_layers=2))


def test_presets_are_the_papers_settings() -> None:
    ptb, wikipedia = PRESETS["ptb"], PRESETS["enwik8"]
    assert (ptb.model.embedding_size, ptb.model.hidden_size, ptb.model.num_layers, ptb.model.output_size) == (
        128, (512,), 3, 512,
    )  # fmt: skip
    t = ptb.train
    assert (t.batch_size, t.length, t.learning_rate, t.divide_rate_by, t.clip_norm) == (64, 100, 0.002, 50.0, 1.0)
    assert (t.slope_rate, t.slope_max, ptb.model.layer_norm, ptb.model.boundary) == (0.04, 5.0, True, "step")
    for config in (wikipedia, PRESETS["text8"]):
        assert (config.model.hidden_size, config.model.output_size) == ((1024,), 2048)
        assert (config.train.batch_size, config.train.learning_rate) == (128, 0.001)


BEST = {
    "ptb-best": "ptb-large/held-decay-seed1",
    "enwik8-best": "enwik8/held-dropped-seed1",
    "iamondb-best": "iamondb-weight-drop/hm-annealed-seed2",
}


@pytest.mark.parametrize(("name", "row"), BEST.items())
def test_presets_of_the_best_results_have_their_settings(name: str, row: str) -> None:
    assert not tiny.differences(RESULTS / row, PRESETS[name])


@pytest.mark.parametrize(("name", "row"), BEST.items())
def test_presets_of_the_best_results_are_of_the_best_hm_lstm(name: str, row: str) -> None:
    best = json.loads((RESULTS / row / "result.json").read_text())
    measure = "validation_bits" if "validation_bits" in best else "validation_nats"
    others = [json.loads(path.read_text()) for path in RESULTS.glob("*/*/result.json")]
    rivals = [r[measure] for r in others if r["data"] == best["data"] and "HM-LSTM" in r["model"]]
    assert best[measure] == min(rivals)


def test_every_recorded_config_can_be_loaded() -> None:
    recorded = list(RESULTS.rglob("*config.json"))
    assert len(recorded) > 100
    for path in recorded:
        from_json(path.read_bytes(), Config, str(path)).check()


def test_every_field_is_explained() -> None:
    """The docstrings under the fields are the help of the command line."""
    import inspect

    for kind in (DataConfig, ModelConfig, TrainConfig, RegulariseConfig):
        lines = inspect.getsource(kind).splitlines()
        for field in dataclasses.fields(kind):
            at = next(k for k, line in enumerate(lines) if line.startswith(f"    {field.name}:"))
            assert lines[at + 1].startswith('    """'), f"{kind.__name__}.{field.name} has no docstring"


WRONG: list[tuple[str, str, Any, str]] = [
    ("model", "num_layers", 0, "model.num_layers must be at least 1; got 0"),
    ("model", "embedding_size", -1, "model.embedding_size must be at least 1"),
    ("model", "output_size", 0, "model.output_size must be at least 1"),
    ("model", "hidden_size", (8, 0, 8), r"model.hidden_size\[1\] must be at least 1; got 0"),
    ("model", "hidden_size", (8, 8), r"must hold 1 or 3 sizes \(model.num_layers\); got \(8, 8\)"),
    ("model", "hidden_size", (), "must hold 1 or 3 sizes"),
    ("train", "epochs", 0, "train.epochs must be at least 1"),
    ("train", "batch_size", 0, "train.batch_size must be at least 1"),
    ("train", "length", -5, "train.length must be at least 1"),
    ("train", "patience", 0, "train.patience must be at least 1"),
    ("train", "accumulate", 0, "train.accumulate must be at least 1"),
    ("train", "accumulate", 7, "train.batch_size 64 must be a multiple of train.accumulate 7"),
    ("train", "log_every", 0, "train.log_every must be at least 1"),
    ("train", "learning_rate", -0.1, "train.learning_rate must be positive; got -0.1"),
    ("train", "learning_rate", 0.0, "train.learning_rate must be positive"),
    ("train", "learning_rate", math.nan, "train.learning_rate must be positive; got nan"),
    ("train", "slope_max", 0.0, "train.slope_max must be positive"),
    ("train", "divide_rate_by", 0.0, "train.divide_rate_by must be positive"),
    ("train", "clip_norm", -1.0, "train.clip_norm must not be negative"),
    ("train", "slope_rate", math.nan, "train.slope_rate must not be negative; got nan"),
    ("train", "min_improvement", -1.0, "train.min_improvement must not be negative"),
    ("train", "divisions", -1, "train.divisions must not be negative"),
    ("train", "validate_every", -1, "train.validate_every must not be negative"),
    ("train", "validation_symbols", -1, "train.validation_symbols must not be negative"),
    ("train", "threads", -1, "train.threads must not be negative"),
    ("train", "checkpoint_every", -1.0, "train.checkpoint_every must not be negative"),
    ("train", "cool_down", -0.5, "train.cool_down must not be negative; got -0.5"),
    ("train", "cool_down", 1.5, "train.cool_down is a share of all updates, at most 1; got 1.5"),
    ("train", "detector_feedback", -1.0, "train.detector_feedback must not be negative"),
    ("train", "seed", -1, "train.seed must lie between 0 and"),
    ("train", "seed", 2**64, "train.seed must lie between 0 and"),
    (
        "train",
        "detector_bias",
        (0.0, 1.0, 2.0),
        r"must hold one number for all detectors, 2, one each, or none; got \(0.0",
    ),
    ("train", "detector_bias", (math.nan,), r"train.detector_bias must hold one number .* got \(nan,\)"),
    ("regularise", "weight_drop", 1.0, "regularise.weight_drop must be at least 0 and less than 1; got 1.0"),
    ("regularise", "dropout_embedding", -0.1, "regularise.dropout_embedding must be at least 0 and less than 1"),
    (
        "regularise",
        "dropout_between",
        math.nan,
        "regularise.dropout_between must be at least 0 and less than 1; got nan",
    ),
    ("regularise", "dropout_output", 1.5, "regularise.dropout_output must be at least 0 and less than 1"),
    ("regularise", "zoneout", 1.0, "regularise.zoneout must be at least 0 and less than 1; got 1.0"),
    ("regularise", "zoneout", 1.5, "regularise.zoneout must be at least 0 and less than 1; got 1.5"),
    ("regularise", "zoneout", -0.1, "regularise.zoneout must be at least 0 and less than 1; got -0.1"),
    ("regularise", "zoneout", math.nan, "regularise.zoneout must be at least 0 and less than 1; got nan"),
    ("regularise", "average", 1.0, "regularise.average must be at least 0 and less than 1; got 1.0"),
    ("regularise", "weight_decay", -1.0, "regularise.weight_decay must not be negative"),
    ("regularise", "rate_weight", -1.0, "regularise.rate_weight must not be negative"),
    ("regularise", "rate_control", -1.0, "regularise.rate_control must be at least 0 and less than 1; got -1.0"),
    ("regularise", "rate_control", 1.0, "regularise.rate_control must be at least 0 and less than 1; got 1.0"),
    ("regularise", "rate_control", 0.1, "need regularise.rate_targets"),
    ("regularise", "surprise_weight", 0.1, "need regularise.rate_targets"),
    ("regularise", "surprise_weight", -0.1, "regularise.surprise_weight must not be negative"),
    ("train", "recurrent_gain", -0.1, "train.recurrent_gain must not be negative"),
    ("regularise", "rate_targets", (0.5,), r"rate_targets must hold 2 rates between 0 and 1, .* or none; got \(0.5,\)"),
    ("regularise", "rate_targets", (0.5, 1.5), r"rate_targets must hold 2 rates between 0 and 1, .* got \(0.5, 1.5\)"),
    ("train", "detector_rates", (0.5,), r"detector_rates must hold 2 rates between 0 and 1, .* or none; got \(0.5,\)"),
    ("data", "valid_fraction", 0.0, "must be positive and leave something for training; got 0.0 and 0.05"),
    ("data", "test_fraction", 0.95, "must be positive and leave something for training"),
    ("data", "valid_fraction", math.nan, "must be positive and leave something for training"),
]


@pytest.mark.parametrize(("part", "field", "value", "message"), WRONG)
def test_impossible_values(part: str, field: str, value: Any, message: str) -> None:
    config = Config()
    config.check()
    changed = dataclasses.replace(getattr(config, part), **{field: value})
    with pytest.raises(InputError, match=message) as info:
        dataclasses.replace(config, **{part: changed}).check()
    assert "\n" not in str(info.value)


def test_biases_are_given_or_found() -> None:
    train = TrainConfig(detector_rates=(0.5, 0.5), detector_bias=(0.1,))
    with pytest.raises(InputError, match=r"detector_rates finds the biases that train\.detector_bias gives"):
        Config(train=train).check()


def test_json_that_does_not_fit() -> None:
    for data in (b"", b"[1]", b'{"train": {"epochs": 1.5}}', b'{"model": {"boundary": "maybe"}}', b"\xff"):
        with pytest.raises(InputError, match=r"^here is damaged, or of another version of hmrnn: ") as info:
            from_json(data, Config, "here")
        assert "\n" not in str(info.value)


def test_a_setting_that_there_is_not() -> None:
    """It is not passed over: a name mistyped, or one of a newer version, would give another model without a word."""
    for data, name in ((b'{"model": {"hiden_size": [4]}}', "model.hiden_size"), (b'{"modle": {}}', "modle")):
        with pytest.raises(InputError, match=rf"^here is damaged, or of a newer version of hmrnn: .* setting {name}$"):
            from_json(data, Config, "here")


@pytest.mark.parametrize("what", [{"shift": True}, {"surprise_kind": "expected"}])
def test_some_settings_are_for_text(what: dict[str, Any]) -> None:
    strokes = dataclasses.replace(PRESETS["iamondb"], regularise=RegulariseConfig(**what))
    with pytest.raises(InputError, match=rf"regularise\.{next(iter(what))}.* is for text"):
        strokes.check()


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
    config = fit(dataclasses.replace(preset, model=dataclasses.replace(preset.model, **model)), preset)
    config.check()
    assert config.train.detector_rates == config.regularise.rate_targets == rates
    assert (config.regularise.rate_control > 0) == (config.regularise.surprise_weight > 0) == (rates != ())


def test_rates_that_were_asked_for_stay() -> None:
    preset = PRESETS["text"]
    asked = dataclasses.replace(preset, regularise=dataclasses.replace(preset.regularise, rate_targets=(0.4, 0.1)))
    assert fit(asked, preset).regularise == asked.regularise
    fewer = dataclasses.replace(asked, model=dataclasses.replace(preset.model, num_layers=2))
    with pytest.raises(InputError, match=r"rate_targets must hold 1 rates"):
        fit(fewer, preset).check()
    same = dataclasses.replace(preset, model=dataclasses.replace(preset.model, num_layers=4))
    for name in ("train.detector_rates", "regularise.rate_targets"):
        with pytest.raises(InputError, match=rf"{name} must hold 3 rates"):
            fit(same, preset, {name}).check()
    lstm = dataclasses.replace(preset, model=dataclasses.replace(preset.model, rnn="lstm"))
    with pytest.raises(InputError, match=r"surprise_weight is 0.3, which is for .* hm-lstm, not for this lstm"):
        fit(lstm, preset, {"regularise.surprise_weight"}).check()


@pytest.mark.parametrize("name", PRESETS)
def test_targets_that_nothing_pulls_to_are_left_out(name: str) -> None:
    preset = PRESETS[name]
    free = dataclasses.replace(preset.regularise, rate_weight=0.0, rate_control=0.0, surprise_weight=0.0)
    config = dataclasses.replace(preset, regularise=free)
    assert fit(config, preset).regularise == dataclasses.replace(free, rate_targets=())
    assert fit(config, preset, {"regularise.rate_targets"}).regularise == free
    config.check()  # older runs have such, and can be loaded


@pytest.mark.parametrize("name", ["rate_control", "surprise_weight"])
@pytest.mark.parametrize("model", [ModelConfig(rnn="lstm"), ModelConfig(rnn="hrnn"), ModelConfig(num_layers=1)])
def test_rates_are_not_asked_of_a_network_that_takes_none(name: str, model: ModelConfig) -> None:
    """To ask for rates first, and then to refuse them, would be of no help."""
    with pytest.raises(InputError, match=rf"{name} is 0.1, which is for .*, not for this {model.rnn}; leave it out"):
        Config(model=model, regularise=RegulariseConfig(**{name: 0.1})).check()


def test_a_bias_takes_the_place_of_rates_to_start_at() -> None:
    preset = PRESETS["text"]
    biased = dataclasses.replace(preset, train=dataclasses.replace(preset.train, detector_bias=(0.0, -0.5)))
    config = fit(biased, preset)
    config.check()
    assert config.train.detector_rates == ()
    assert config.regularise == preset.regularise


@pytest.mark.parametrize("name", PRESETS)
def test_the_rates_of_a_preset_fit_it(name: str) -> None:
    assert fit(PRESETS[name], PRESETS[name]) == PRESETS[name]


@pytest.mark.parametrize("name", PRESETS)
def test_the_gain_of_a_preset_follows_the_network(name: str) -> None:
    preset = PRESETS[name]
    assert preset.train.recurrent_gain == 0.3
    for rnn, gain in (("ln-lstm", 1.0), ("hrnn", 0.3), ("lstm", 0.3)):
        config = dataclasses.replace(preset, model=dataclasses.replace(preset.model, rnn=rnn))
        assert fit(config, preset).train.recurrent_gain == gain
        assert fit(config, preset, {"train.recurrent_gain"}).train.recurrent_gain == 0.3
    asked = dataclasses.replace(config, train=dataclasses.replace(preset.train, recurrent_gain=0.5))
    assert fit(asked, preset).train.recurrent_gain == 0.5


def test_a_recorded_gain_is_kept() -> None:
    recorded = (RESULTS / "ptb-gains/ln-lstm-gain-0.1-seed1/config.json").read_bytes()
    assert from_json(recorded, Config, "here").train.recurrent_gain == 0.1
