"""The gradients of weights and inputs in the cuda engine: one matrix product per matrix, after the backward pass.

With layer norm a contribution is gate · gain · x̂ with x̂ = (M a - mean) / deviation, and the backward pass logs d, the
gradient of the sum of contributions. The gradient of M a is gate / deviation · (gain · d - m - k x̂), where m and k are
means over the gates. With a' = gate / deviation · a and P = Σ d a'ᵀ, summed over time and batch, the gradient of M is

    gain · P - Σ (m - k · mean / deviation) a' - M Σ (k / deviation) a a'ᵀ

and that of the gain is the diagonal of M Pᵀ minus Σ gate · mean / deviation · d. So only d and a have to be logged.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.ops.cuda.layer import OF_STATS, Layer, copy_all, product
from hmrnn.ops.cuda.plan import Plan

TILE = {"ROWS": 16, "BLOCK": 128, "num_warps": 4}


def weight_gradients(plan: Plan, wanted: Sequence[Mapping[str, torch.dtype]]) -> list[dict[str, Tensor]]:
    """For each layer the gradients named in ``wanted``, in the given dtypes. Overwrites some logs of the plan."""
    layers = [LayerGradients(plan, layer, names) for layer, names in zip(plan.layers, wanted)]
    found = [layer.gradients() for layer in layers]
    return [{name: of[name].to(dtype) for name, dtype in names.items()} for of, names in zip(found, wanted)]


def source_gradient(plan: Plan, dtype: torch.dtype) -> Tensor:
    """The gradient of x (T, B, size) or of the embedding."""
    spec, first = plan.spec, plan.layers[0]
    ds = first.ds.flatten(0, 1) if plan.ds_x is None else plan.ds_x[:, : first.gates]
    d_x = product(ds, plan.W_x, spec.new(len(ds), spec.input_size, dtype=torch.float32))
    if first.D1 is not None:
        product(first.d_units.flatten(0, 1), first.D1[:, first.unit_span("W")], d_x, add=True)
    elif spec.detectors > 0:
        d_x.addcmul_(plan.d_s_z[: spec.steps].flatten(0, 1)[:, :1], first.detector["W"])
    d_x = d_x.view(spec.steps, spec.batch, -1).to(dtype)
    if plan.index is None:
        return d_x
    return torch.ops.aten.embedding_dense_backward(d_x, plan.index, spec.symbols, -1, False)


class LayerGradients:
    """The gradients of one layer's weights, in float32."""

    def __init__(self, plan: Plan, layer: Layer, wanted: Mapping[str, torch.dtype]) -> None:
        self.plan, self.layer, self.spec, self.kernels = plan, layer, plan.spec, plan.kernels_gradients
        self.rows = self.spec.steps * self.spec.batch
        self.found: dict[str, Tensor] = {}
        self.names = [name for name in layer.reads if name in wanted or f"gain_{name}" in wanted]

        # all sums over rows, each in parallel chunks
        widths = {"b": layer.gates * (4 if self.spec.norm else 1), "d_c": layer.H, "d_c·x̂": layer.H}
        widths |= {f"{kind} {name}": layer.input_sizes[name] for kind in ("detector", "means") for name in self.names}
        ends = list(itertools.accumulate(widths.values()))
        self.at = {key: slice(end - width, end) for (key, width), end in zip(widths.items(), ends)}
        self.sums = self.spec.new(self.spec.chunks, ends[-1], dtype=torch.float32)
        self._column_sums(layer.ds, "b", layer.stats)
        if self.spec.norm:
            assert layer.c_log is not None
            self._column_sums(layer.d_hidden, "d_c")
            self._column_sums(layer.c_log[1:], "d_c·x̂")  # which the backward pass has left there

    def gradients(self) -> dict[str, Tensor]:
        """The gradients by name. Overwrites logs of other layers, so all layers must have been constructed before."""
        layer, found = self.layer, self.found
        grams = {name: self._product(name) for name in self.names}
        total = self.sums.sum(0)
        sums = {key: total[span] for key, span in self.at.items()}
        found["b"] = sums["b"][: layer.gates]
        if self.spec.norm:
            found |= {"bias_c": sums["d_c"], "gain_c": sums["d_c·x̂"]}
            for name, gram in grams.items():
                assert gram is not None
                self._apply_gain(name, gram, sums)
        if layer.D1 is not None:
            self._hidden_detector()
        elif not layer.top:
            of_bias = self.plan.d_s_z[: self.spec.steps, :, layer.l].sum()
            found["b"] = torch.cat([found["b"], of_bias[None]])
            copy_all((found[name][-1], sums[f"detector {name}"]) for name in self.names)
        return found

    def _hidden_detector(self) -> None:
        """The gradients of D1, d1, D2 and d2."""
        layer, plan, T = self.layer, self.plan, self.spec.steps
        assert layer.D1 is not None
        assert layer.unit_log is not None
        ds_z = plan.d_s_z[:T, :, layer.l].flatten()
        d, hidden = layer.d_units.flatten(0, 1), layer.unit_log.flatten(0, 1)
        D1 = torch.empty_like(layer.D1, dtype=torch.float32)
        for name, read in layer.reads.items():
            gate, now = self._gate(name), int(name == "W")
            a = plan.x if read is None else plan.layers[read].h[now : T + now]
            left = d if gate is None else (d * gate[:T, :, 0].flatten()[:, None]).to(d.dtype)
            D1[:, layer.unit_span(name)] = product(left.t(), a.flatten(0, 1), D1.new_empty(layer.units, a.shape[-1]))
        self.found |= {"D1": D1, "d1": d.float().sum(0), "D2": (ds_z @ F.gelu(hidden))[None], "d2": ds_z.sum()[None]}

    def _column_sums(self, d: Tensor, key: str, stats: Tensor | None = None) -> None:
        """Sum d (T, B, ·) over steps and batch."""
        width = d.shape[2]
        self.kernels.column_sums[(-(-width // TILE["BLOCK"]), self.spec.chunks)](
            d, d.stride(1), self.rows, self.sums[:, self.at[key]], self.sums.stride(0), stats,
            gate_V=self._gate("V"), gate_W=self._gate("W"), gate_step=self.spec.detectors, WIDTH=width,
            TOP_DOWN="V" in self.layer.reads, **TILE,
        )  # fmt: skip

    def _gate(self, name: str) -> Tensor | None:
        """The gate that multiplies a matrix's contribution, (T, B, ·); None if there is none."""
        plan, l = self.plan, self.layer.l
        if name == "V" and plan.gate is not None and not self.layer.top:
            return plan.gate[:, :, l:]
        return plan.z[1:, :, l - 1 :] if name == "W" and l > 0 and self.spec.variant.copy else None

    def _product(self, name: str) -> Tensor | None:
        """Compute P, the product of ds with a', into ``found``; returns -Σ (k / deviation) a a'ᵀ with layer norm."""
        plan, layer, spec = self.plan, self.layer, self.spec
        read, now = layer.reads[name], int(name == "W")
        gate = self._gate(name)
        weighted = gram_left = seen = None
        if read is None:
            a = plan.x
            if spec.norm:
                weighted, gram_left = torch.empty_like(a), torch.empty_like(a)
        else:
            other = plan.layers[read]
            a = other.h[now : spec.steps + now]
            seen = other.seen if name == "W" else None
            if spec.norm or gate is not None or seen is not None:
                weighted, gram_left = other.d_hidden, other.c_log if spec.norm else None  # no longer needed
        arguments: dict[str, Any] = {"d_detector": None, "stats": None}
        if not layer.top and not layer.units:
            arguments["d_detector"] = plan.d_s_z[:, :, layer.l :]
        if layer.stats is not None:
            arguments["stats"] = layer.stats[:, :, OF_STATS[name] :]
        width = layer.input_sizes[name]
        if weighted is not None or arguments["d_detector"] is not None:
            self.kernels.weigh[(-(-width // TILE["BLOCK"]), spec.chunks)](
                a, self.rows, gate, spec.detectors, seen=seen, B=spec.batch, weighted=weighted, gram_left=gram_left,
                sums=self.sums[:, self.at[f"detector {name}"]], means=self.sums[:, self.at[f"means {name}"]],
                sums_row=self.sums.stride(0), WIDTH=width, **arguments, **TILE,
            )  # fmt: skip
        right = (a if weighted is None else weighted).flatten(0, 1)
        self.found[name] = spec.new(layer.rows, width, dtype=torch.float32)
        product(layer.ds.flatten(0, 1).t(), right, self.found[name][: layer.gates])
        return None if gram_left is None else torch.mm(gram_left[: spec.steps].flatten(0, 1).t(), right)

    def _apply_gain(self, name: str, gram: Tensor, sums: Mapping[str, Tensor]) -> None:
        layer, plan, width = self.layer, self.plan, self.layer.input_sizes[name]
        matrix = plan.W_x if layer.reads[name] is None else layer.packed(name, plan.layers)
        p = self.found[name][: layer.gates]
        first = (1 + "UVW".index(name)) * layer.gates
        self.found[f"gain_{name}"] = d_gain = self.spec.new(layer.gates, dtype=torch.float32)
        rows = 4
        self.kernels.apply_gain[(-(-layer.gates // rows),)](
            p, matrix, layer.extras[f"gain_{name}"], sums[f"means {name}"], sums["b"][first:], d_gain,
            GATES=layer.gates, WIDTH=width, ROWS=rows, **plan.kernels.block(width),
        )  # fmt: skip
        product(matrix, gram, p, add=True)
