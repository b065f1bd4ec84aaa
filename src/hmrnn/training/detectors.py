"""Detectors that fall silent or fire always, and what to do about it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from hmrnn.training.task import Training

SILENT, ALWAYS = 0.002, 0.98
"""A detector whose rate over an epoch is below the first is silent; above the second it fires always."""
CONTROLLED = 250
"""Updates in which rate control may still bring back a silent detector, so that it is not worth a warning: on 60,000
characters of text the second one of the preset `text` fires at 0 to 0.006 up to update 200, and at 0.023 by 256."""


def changed_detectors(run: Training) -> list[dict[str, Any]]:
    """At the end of an epoch: the detectors that have fallen silent, fire always, or have recovered.

    None after the first epoch, unless it is the last: a detector that is silent there often starts by itself. With
    rate control none within CONTROLLED updates, either.
    """
    updates, _, *sums = run.mean(run.epoch).tolist()
    run.epoch.zero_()
    d, p = run.config.detectors, run.progress
    early = p.epoch == 1 or (d.rate_control > 0 and p.step < CONTROLLED)
    if updates == 0 or (early and p.epoch < run.config.train.epochs):
        return []
    given: Tensor | None = getattr(run.model, "given", None)  # (symbols, detectors), NaN where a detector decides
    free = [True] * len(sums) if given is None else given.isnan().all(0).tolist()
    before, rates = p.conditions or ["alive"] * len(sums), [total / updates for total in sums]
    p.conditions = [condition(*pair) if its else "alive" for its, *pair in zip(free, rates, before)]
    settable = len(sums) if run.model.rnn.settable else 0
    how = (settable, bool(d.rates), hasattr(run.model.rnn, "detector_biases"))
    return [
        {"layer": l, "condition": new, "rate": rate, "message": advice(l, rate, *how)}
        for l, (rate, old, new) in enumerate(zip(rates, before, p.conditions), start=1)
        if new != old
    ]


def condition(rate: float, before: str = "alive") -> str:
    """The condition of a detector with this rate over an epoch: "silent", "always" or "alive".

    A detector that was in trouble ``before`` is "alive" again only beyond twice the limit, so that it does not flicker.
    """
    if rate < SILENT * (1 + (before == "silent")):
        return "silent"
    return "always" if 1 - rate < (1 - ALWAYS) * (1 + (before == "always")) else "alive"


def advice(layer: int, rate: float, detectors: int, held: bool = False, moved: bool = True) -> str:
    """What a detector's condition means, and what to do about it; ``layer`` is counted from 1.

    ``detectors`` is how many can be given rates: 0 if a text gives the boundaries. ``held``: they have rates.
    ``moved``: rate control can move their biases.
    """
    now = condition(rate)
    if now == "alive":
        return f"the detector of layer {layer} finds segments again, at rate {rate:.4f}"
    what = {
        "silent": f"has fallen silent: at rate {rate:.4f} its segments hardly ever end, and layer {layer + 1} is idle",
        "always": f"fires always: at rate {rate:.4f} every step is a segment, and layer {layer + 1} reads all of them",
    }[now]
    rates = " ".join(["detectors.rates", *(f"{0.9 * (2 / 3) ** l:.2g}" for l in range(detectors)), ""])
    means = ("" if held else rates) + ("detectors.rate_control 0.5" if moved else "detectors.rate_weight 2")
    means = means if detectors else f"model.num_layers {layer}"
    return f"the detector of layer {layer} {what}; if that is the same after the next epoch, start again with {means}"
