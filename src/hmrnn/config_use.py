"""Which settings a run has a use for: some are for some networks alone, or some formats of data, or go with another."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hmrnn.config import Config, ModelConfig

STROKE_FORMATS = ("strokes", "iamondb", "handwritten")
"""The formats of pen strokes."""
TEXT_FORMATS = ("manual", "text", "ptb", "text8", "enwik8")
_DETECTING = ("hm-lstm", "hrnn")
NETWORKS_WITH: dict[str, tuple[str, ...]] = {
    "model.layer_norm": ("hm-lstm", "hrnn", "cw-rnn"),  # to choose: ln-lstm always has it
    "model.boundary": _DETECTING,
    "model.on_copy": _DETECTING,
    "model.flush": _DETECTING,
    "model.top_down": _DETECTING,
    "model.copy": _DETECTING,
    "model.modules": ("cw-rnn",),
    "model.time_constant": ("leaky",),
    "train.slope_rate": _DETECTING,
    "train.slope_max": _DETECTING,
    "train.recurrent_gain": ("hm-lstm", "hrnn", "ln-lstm"),
    "train.detector_feedback": _DETECTING,
    "train.detector_recurrence": _DETECTING,
    "train.detector_bias": ("hm-lstm",),
    "train.detector_rates": ("hm-lstm",),
    "regularise.zoneout": ("hm-lstm", "hrnn", "ln-lstm"),
    "regularise.rate_targets": ("hm-lstm",),
    "regularise.rate_weight": ("hm-lstm",),
    "regularise.rate_control": ("hm-lstm",),
    "regularise.surprise_weight": ("hm-lstm",),
    "regularise.surprise_kind": ("hm-lstm",),
    "regularise.surprise_lag": ("hm-lstm",),
    "regularise.surprise_margin": ("hm-lstm",),
}
"""The settings that not every network has, with those that have them."""
FORMATS_WITH: dict[str, tuple[str, ...]] = {
    "data.path": ("text", "ptb", "text8", "enwik8", "strokes", "iamondb"),
    "data.bytes": ("manual", "text"),
    "data.valid_fraction": ("manual", "text", *STROKE_FORMATS),
    "data.test_fraction": ("manual", "text", *STROKE_FORMATS),
    "data.unseen": TEXT_FORMATS,
    "data.remove_spaces": TEXT_FORMATS,
    "data.min_points": STROKE_FORMATS,
    "data.split": ("iamondb",),
    "data.split_seed": STROKE_FORMATS,
    "data.lines": ("handwritten",),
    "model.embedding_size": TEXT_FORMATS,
    "model.mixtures": STROKE_FORMATS,
    "train.length": TEXT_FORMATS,
    "train.validation_symbols": TEXT_FORMATS,
    "regularise.shift": TEXT_FORMATS,
    "regularise.dropout_embedding": TEXT_FORMATS,
}
"""The settings that not every format of data has a use for, with those that have."""


def unused(model: ModelConfig) -> dict[str, str]:
    """The settings that a network does not have, each with what it is for."""
    lacking = {name: having for name, having in NETWORKS_WITH.items() if model.rnn not in having}
    found = {name: f"model.rnn {' or '.join(having)}" for name, having in lacking.items()}
    if model.num_layers == 1:
        found["regularise.dropout_between"] = "networks of two or more layers"
    if model.num_layers == 1 and model.rnn in _DETECTING:
        about_detectors = (name for name, having in NETWORKS_WITH.items() if set(having) <= set(_DETECTING))
        found |= dict.fromkeys(about_detectors, "networks of two or more layers")
    if not model.layer_norm and model.rnn in _DETECTING:
        found["train.recurrent_gain"] = "networks with model.layer_norm"
    return found


def idle(config: Config) -> dict[str, str]:
    """The settings that do nothing beside the others, each with why and what to do, for one who asked for them."""
    form, t, r = config.data.format, config.train, config.regularise
    found = {
        name: f"is for data.format {' or '.join(having)}, not for {form}; leave it out"
        for name, having in FORMATS_WITH.items()
        if form not in having
    }
    if "data.path" in found:
        found["data.path"] = "names files, and these data are built in; train on files by hmrnn train FILE"
    if config.data.split == "official":
        of_the_paper = ("data.valid_fraction", "data.test_fraction", "data.split_seed")
        found |= dict.fromkeys(of_the_paper, "does nothing with --data.split official; leave one of them out")
    about_surprise = ("regularise.surprise_kind", "regularise.surprise_lag", "regularise.surprise_margin")
    pulls = "--regularise.rate-weight, --regularise.rate-control or --regularise.surprise-weight"
    for names, needed, given in (
        (("train.slope_max",), "--train.slope-rate", t.slope_rate),
        (("regularise.rate_weight",), "--regularise.rate-targets", r.rate_targets),
        (("regularise.rate_targets",), pulls, r.pulls),
        (about_surprise, "--regularise.surprise-weight", r.surprise_weight),
    ):
        if not given:
            found |= dict.fromkeys(names, f"does nothing without {needed}; give both, or leave it out")
    return found
