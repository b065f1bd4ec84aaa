"""An engine against the reference: outputs, final state and every gradient, on the same random inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from hmrnn.ops import LayerWeights, Options, Result, State, Symbols, Variant, reference
from hmrnn.ops.estimators import BOUNDARIES, DRAWN, ON_COPY
from hmrnn.ops.interface import TOP_DOWN
from literal import random_state, random_weights

Engine = Callable[..., Result]
Values = dict[str, Tensor]


@dataclasses.dataclass(frozen=True)
class Case:
    """What to run, apart from the engine and its type."""

    sizes: tuple[int, ...] = (5, 3, 4)
    T: int = 4
    B: int = 2
    input_size: int = 3
    layer_norm: bool = False
    boundary: str = "step"
    on_copy: str = "evaluate"
    flush: bool = True
    top_down: str = "boundary"
    copy: bool = True
    forced: str = "no"  # "all", or "some" with NaN for the others
    straight_through: bool = False
    lengths: bool = False
    symbols: int = 0
    detector: float = 1.0  # scale of the detectors' rows
    hidden: int = 0  # units of the detectors' hidden layer
    zoneout: str = "no"  # "masks", or "share" of every unit
    dropout: bool = False  # gates see some units of the layer below, in each sequence others
    learn_slope: bool = False
    gain: float = 1.0  # scale of the gains of contributions: at 1 a long sequence is chaotic, and no rounding is small

    @property
    def variant(self) -> Variant:
        given: Any = (self.boundary, self.on_copy, self.flush, self.top_down, self.copy, self.hidden)
        return Variant(*given)

    def __str__(self) -> str:
        changed = [f.name for f in dataclasses.fields(self) if getattr(self, f.name) != f.default]
        return " ".join(f"{name}={getattr(self, name)}".replace(" ", "") for name in changed) or "plain"


SIZE = st.sampled_from([1, 2, 3, 5, 8, 16, 17, 33])  # with and without whole vectors of every width


def cases(**others: st.SearchStrategy[Any]) -> st.SearchStrategy[Case]:
    """Networks and inputs of every kind; ``others`` say from where a field is drawn instead."""
    drawn: dict[str, st.SearchStrategy[Any]] = {
        "sizes": st.lists(SIZE, min_size=1, max_size=4).map(tuple),
        "T": st.sampled_from([1, 2, 5, 20]),
        "B": st.sampled_from([1, 2, 5, 9, 13, 65]),
        "input_size": SIZE,
        "boundary": st.sampled_from(BOUNDARIES),
        "on_copy": st.sampled_from(ON_COPY),
        "top_down": st.sampled_from(TOP_DOWN),
        "copy": st.sampled_from([True, True, False]),
        "forced": st.sampled_from(["no", "some", "all"]),
        "symbols": st.sampled_from([0, 4, 300]),
        "hidden": st.sampled_from([0, 0, 4]),
        "zoneout": st.sampled_from(["no", "share", "masks"]),
    }
    drawn |= {name: st.booleans() for name in ("layer_norm", "flush", "straight_through", "lengths", "dropout")}
    # the norm of one number is 0, its gradient rounding
    return st.builds(Case, **drawn | others).filter(lambda case: not case.layer_norm or min(case.sizes) > 1)


@dataclasses.dataclass
class Inputs:
    """Random float64 inputs of a case, representable in ``dtype``."""

    case: Case
    source: Tensor
    indices: Tensor | None
    weights: list[LayerWeights]
    state: State
    lengths: Tensor | None
    forced: Tensor | None
    noise: Tensor | None
    kept: list[Tensor] | None = None
    seen: list[Tensor] | None = None
    slope: float = 1.7


def make(case: Case, dtype: torch.dtype = torch.float32, device: str = "cpu", seed: int = 0) -> Inputs:
    torch.manual_seed(seed)
    T, B, D = case.T, case.B, len(case.sizes) - 1

    def rounded(a: Tensor | None) -> Any:
        return None if a is None else a.to(dtype).to(device, torch.float64)

    forced = None
    if case.forced != "no":
        kinds = torch.tensor([0, 1, torch.nan] if case.forced == "some" else [0, 1], dtype=torch.float64)
        forced = kinds[torch.randint(len(kinds), (T, B, D))].to(device)
    indices = torch.randint(case.symbols, (T, B)).to(device) if case.symbols else None
    source = torch.randn(case.symbols, case.input_size) if case.symbols else torch.randn(T, B, case.input_size)
    state = random_state(case.sizes, B)
    weights = random_weights(
        case.input_size,
        case.sizes,
        case.layer_norm,
        case.detector,
        top_down=case.top_down != "none",
        detector_hidden=case.hidden,
    )
    for w in weights:
        for gain in (w.gain_U, w.gain_V, w.gain_W):
            if gain is not None:
                gain.mul_(case.gain)
    return Inputs(
        case,
        rounded(source),
        indices,
        [LayerWeights(*map(rounded, w)) for w in weights],
        State(
            tuple(rounded(h.tanh()) for h in state.h),
            tuple(map(rounded, state.c)),
            state.z.to(device),
            # open where z is 1, and in some sequences where z is 0
            torch.maximum(state.z, (torch.arange(B)[:, None] % 3 == 0).double()).to(device)
            if case.top_down == "pending" and not case.flush and case.copy
            else None,
        ),
        torch.randint(1, T + 1, (B,)).to(device) if case.lengths else None,
        forced,
        torch.rand(T, B, D, dtype=torch.float64).float().to(device).double() if case.boundary in DRAWN else None,
        [(torch.rand(T, B, H) < 0.4).to(device) for H in case.sizes] if case.zoneout == "masks" else None,
        [1.5 * (torch.rand(B, H) < 0.6).to(device).double() for H in case.sizes[:-1]] if case.dropout else None,
    )


def evaluate(engine: Engine, given: Inputs, dtype: torch.dtype, gradients: bool = True, **changes: Any) -> Values:
    """All outputs, and the gradients of a random linear function of them."""
    case = given.case

    def leaf(a: Tensor | None) -> Any:
        return None if a is None else a.to(dtype, copy=True).requires_grad_(gradients)

    source, weights = leaf(given.source), [LayerWeights(*map(leaf, w)) for w in given.weights]
    state = State(*(tuple(map(leaf, part)) for part in given.state[:2]), *map(leaf, given.state[2:]))
    forced = leaf(given.forced)
    slope = torch.tensor(given.slope, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    slope.requires_grad_(gradients and case.learn_slope)
    result = engine(
        source if given.indices is None else Symbols(given.indices, source),
        weights,
        state,
        Options(
            case.variant,
            slope.to(source.device),
            temperature=0.7,
            zoneout=0.0 if case.zoneout == "no" else 0.25,
            straight_through=case.straight_through,
        ),
        lengths=given.lengths,
        boundaries=forced,
        noise=None if given.noise is None else given.noise.to(slope.dtype),
        **({} if given.kept is None else {"kept": given.kept}),
        **({} if given.seen is None else {"seen": [a.to(slope.dtype) for a in given.seen]}),
    )
    values = {f"hidden.{l}": a for l, a in enumerate(result.hidden)}
    values |= {"boundaries": result.boundaries, "probabilities": result.probabilities, "state.z": result.state.z}
    values |= {f"state.h.{l}": a for l, a in enumerate(result.state.h)}
    values |= {f"state.c.{l}": a for l, a in enumerate(result.state.c)}
    if result.state.pending is not None:
        values["state.pending"] = result.state.pending
    if not gradients:
        return values
    generator = torch.Generator().manual_seed(1)
    loss = torch.zeros((), dtype=torch.float64, device=source.device)
    for a in values.values():
        loss = loss + (a.double() * torch.randn(a.shape, dtype=torch.float64, generator=generator).to(a.device)).sum()
    loss.backward()
    leaves = {"source": source, "z before": state.z, "forced": forced, "pending before": state.pending}
    leaves |= {"slope": slope} if case.learn_slope else {}
    leaves |= {f"h before.{l}": a for l, a in enumerate(state.h)}
    leaves |= {f"c before.{l}": a for l, a in enumerate(state.c)}
    leaves |= {f"{name}.{l}": a for l, w in enumerate(weights) for name, a in w._asdict().items()}
    for name, a in leaves.items():
        if a is not None:
            values[f"gradient of {name}"] = torch.zeros_like(a) if a.grad is None else a.grad
    return {name: a.detach() for name, a in values.items()}


def errors(got: Values, expected: Values) -> dict[str, float]:
    """‖got - expected‖ / ‖expected‖, name by name (absolute where nothing is expected)."""
    assert got.keys() == expected.keys()
    result = {}
    for name, want in expected.items():
        assert got[name].shape == want.shape, name
        scale = want.double().norm().item()
        result[name] = (got[name].double() - want.double()).norm().item() / (scale if scale > 1e-6 else 1.0)
    return result


def worst(got: Values, expected: Values) -> tuple[float, str]:
    """The largest error and where it is; NaN counts as the largest."""
    found = errors(got, expected)
    name = max(found, key=lambda name: float("inf") if found[name] != found[name] else found[name])
    return found[name], name


def expected(given: Inputs, gradients: bool = True) -> Values:
    return evaluate(reference.hmlstm, given, torch.float64, gradients)
