"""Flags of ``hmrnn train``: what a preset makes of them, and which are refused as they would do nothing."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny
from hmrnn.cli.target import train_arguments
from hmrnn.config import Config, Format, ModelConfig
from hmrnn.config_use import FORMATS_WITH, NETWORKS_WITH, STROKE_FORMATS, TEXT_FORMATS
from hmrnn.training.rundir import RunDirectory


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a text."""
    with tiny.story(tmp_path_factory.mktemp("work")) as work:
        yield work


@pytest.mark.parametrize(("flags", "rates"), [(["--model.num-layers", 2], (0.19,)), (["--model.rnn", "ln-lstm"], ())])
def test_rates_of_the_preset_follow_the_network(work: Path, flags: list[object], rates: tuple[float, ...]) -> None:
    """What a text of one's own is pulled to is for three layers; another network is trained all the same."""
    small = ["--model.hidden-size", 6, "--model.output-size", 6, "--train.length", 10, "--train.batch-size", 16]
    arguments = ["train", "story.txt", "--out", f"runs/followed-{len(rates)}", "--no-report", "--train.epochs"]
    assert tiny.hmrnn(*arguments, 1, *small, *flags) == 0
    assert tiny.hmrnn(*arguments, 2, "--resume") == 0
    config = RunDirectory(work / arguments[3]).config()
    assert config.train.detector_rates == config.regularise.rate_targets == rates
    assert config.regularise.surprise_weight == (0.3 if rates else 0)


@pytest.mark.parametrize(
    ("rnn", "flags", "wanted"),
    [
        ("lstm", "--model.boundary sample", "model.rnn hm-lstm or hrnn"),
        ("gru", "--model.on-copy hold", "model.rnn hm-lstm or hrnn"),
        ("leaky", "--train.slope-rate 0.1", "model.rnn hm-lstm or hrnn"),
        ("lstm", "--model.layer-norm", "model.rnn hm-lstm or hrnn or cw-rnn"),
        ("ln-lstm", "--model.no-layer-norm", "model.rnn hm-lstm or hrnn or cw-rnn"),
        ("cw-rnn", "--train.recurrent-gain 1", "model.rnn hm-lstm or hrnn or ln-lstm"),
        ("hm-lstm", "--train.recurrent-gain 1 --model.no-layer-norm", "networks with model.layer_norm"),
        ("hm-lstm", "--model.boundary sample --model.num-layers 1", "networks of two or more layers"),
        ("hm-lstm", "--train.slope-rate 0.1 --model.num-layers 1", "networks of two or more layers"),
        ("hm-lstm", "--model.modules 8", "model.rnn cw-rnn"),
        ("cw-rnn", "--model.time-constant 8", "model.rnn leaky"),
        ("lstm", "--regularise.rate-weight 0.1", "model.rnn hm-lstm"),
        ("lstm", "--regularise.rate-control 0.1", "model.rnn hm-lstm"),
        ("hrnn", "--regularise.rate-targets 0.5 0.1", "model.rnn hm-lstm"),
        ("gru", "--regularise.zoneout 0.1", "model.rnn hm-lstm or hrnn or ln-lstm"),
    ],
)
def test_a_flag_that_the_network_has_no_use_for(
    rnn: str, flags: str, wanted: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = f"hmrnn: {flags.split()[0]} is for {wanted}, not for this {rnn}; leave it out\n"
    for given in (flags, re.sub("-([a-z]+) ([0-9.a-z]+)$", r"_\1=\2", flags)):  # as in --train.slope_rate=0.1
        assert tiny.hmrnn("train", "story.txt", "--out", "runs/none", "--model.rnn", rnn, *given.split()) == 2
        assert capsys.readouterr().err == message
    assert not (work / "runs" / "none").exists()


FREE = "--regularise.rate-control 0 --regularise.surprise-weight 0"
PULLS = "--regularise.rate-weight, --regularise.rate-control or --regularise.surprise-weight"


@pytest.mark.parametrize(
    ("target", "flags", "why"),
    [
        ("ptb", "--regularise.rate-weight 0.1", "does nothing without --regularise.rate-targets"),
        (
            "story.txt",
            f"--regularise.rate-weight 0.1 {FREE} --regularise.rate-targets",
            "without --regularise.rate-targets",
        ),
        (
            "ptb",
            "--regularise.rate-targets 0.9 0.6 --regularise.rate-weight 0",
            f"does nothing without {PULLS}; give both",
        ),
        ("story.txt", f"--regularise.rate-targets 0.4 0.1 {FREE}", f"does nothing without {PULLS}"),
        (
            "ptb",
            "--regularise.surprise-lag 1",
            "does nothing without --regularise.surprise-weight; give both, or leave it",
        ),
        ("ptb", "--regularise.surprise-margin 1", "does nothing without --regularise.surprise-weight"),
        ("story.txt", f"--regularise.surprise-kind rise {FREE}", "does nothing without --regularise.surprise-weight"),
        ("story.txt", "--train.slope-max 3", "does nothing without --train.slope-rate; give both, or leave it out"),
        ("ptb", "--train.slope-max 3 --train.slope-rate 0", "does nothing without --train.slope-rate"),
        (
            "story.txt",
            "--model.mixtures 5",
            "is for data.format strokes or iamondb or handwritten, not for text; leave it",
        ),
        ("story.txt", "--data.lines 50", "is for data.format handwritten, not for text; leave it out"),
        ("enwik8", "--data.split official", "is for data.format iamondb, not for enwik8"),
        ("strokes", "--data.split official", "is for data.format iamondb, not for strokes"),
        ("ptb", "--data.min-points 50", "is for data.format strokes or iamondb or handwritten, not for ptb"),
        ("text8", "--data.split-seed 2", "is for data.format strokes or iamondb or handwritten, not for text8"),
        ("text8", "--data.valid-fraction 0.1", "not for text8; leave it out"),
        ("iamondb", "--data.bytes", "is for data.format manual or text, not for iamondb"),
        ("enwik8", "--data.bytes", "is for data.format manual or text, not for enwik8"),
        ("iamondb", "--data.split-seed 2 --data.split official", "does nothing with --data.split official"),
        ("handwritten", "--regularise.dropout-embedding 0.1", "not for handwritten; leave it out"),
        ("handwritten", "--data.unseen error", "not for handwritten; leave it out"),
        ("handwritten", "--data.remove-spaces", "not for handwritten; leave it out"),
        ("handwritten", "--model.embedding-size 8", "not for handwritten; leave it out"),
        ("iamondb", "--train.length 50", "not for iamondb; leave it out"),
        ("demo", "--data.path story.txt", "train on files by hmrnn train FILE"),
    ],
)
def test_a_flag_that_would_do_nothing(
    target: str, flags: str, why: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tiny.hmrnn("train", target, "--out", "runs/none", *flags.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"hmrnn: {flags.split()[0]} ")
    assert why in said
    assert said.count("\n") == 1
    assert not (work / "runs" / "none").exists()


@pytest.mark.parametrize(
    ("target", "flags"),
    [
        ("ptb", "--regularise.rate-weight 0 --regularise.surprise-lag 0 --regularise.surprise-margin 0"),
        ("ptb", "--regularise.rate-weight 0.1 --regularise.rate-targets 0.9 0.6 --train.slope-max 3"),
        ("story.txt", FREE),
        ("story.txt", "--train.slope-rate 0.1 --train.slope-max 3 --regularise.surprise-lag 1"),
        ("enwik8", "--data.unseen error"),
        ("iamondb", "--data.valid-fraction 0.1 --data.split-seed 2"),
        ("handwritten", "--data.lines 50 --data.min-points 5 --model.mixtures 5 --data.split-seed 2"),
        ("iamondb", "--data.split official --data.no-remove-spaces"),
        ("demo", "--data.format text --data.path story.txt"),
    ],
)
def test_a_flag_that_does_something_or_turns_something_off(target: str, flags: str, work: Path) -> None:
    arguments = train_arguments([target, *flags.split()])
    arguments.check()


@pytest.mark.parametrize(
    "flags",
    [
        "--model.rnn lstm --model.no-layer-norm --train.slope-rate 0 --regularise.rate-control 0",
        "--model.rnn ln-lstm --model.layer-norm --train.recurrent-gain 1 --regularise.zoneout 0.1",
        "--model.rnn cw-rnn --model.no-layer-norm --model.modules 8",
        "--model.rnn leaky --model.time-constant 8",
        "--model.rnn hrnn --model.boundary sample --model.on-copy hold --train.slope-rate 0.1",
        "--model.num-layers 2 --regularise.rate-weight 0.5 --train.detector-feedback 0.5 --train.recurrent-gain 0.5",
    ],
)
def test_a_flag_that_the_network_has_or_that_turns_something_off(flags: str, work: Path) -> None:
    arguments = train_arguments(["story.txt", *flags.split()])
    arguments.check()


def test_every_setting_that_not_all_networks_or_formats_have_is_one() -> None:
    config = Config()
    networks = set(typing.get_args(typing.get_type_hints(ModelConfig)["rnn"]))
    for name, having in NETWORKS_WITH.items():
        part, field = name.split(".")
        assert hasattr(getattr(config, part), field)
        assert set(having) < networks
    assert sorted(TEXT_FORMATS + STROKE_FORMATS) == sorted(typing.get_args(Format))
    for name, having in FORMATS_WITH.items():
        part, field = name.split(".")
        assert hasattr(getattr(config, part), field)
        assert set(having) < set(typing.get_args(Format))
