"""Networks in a directory of their own, as those of Hugging Face are; the Hub itself: tests/extras."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import hmrnn
from refusals import refused

NETWORKS: list[tuple[Any, dict[str, Any]]] = [
    (hmrnn.HMLSTM, {"hidden_size": (4, 6), "num_layers": 2, "layer_norm": True, "flush": False, "top_down": "pending"}),
    (hmrnn.HMLSTM, {"hidden_size": 4, "num_layers": 2, "boundary": "gumbel", "bidirectional": True}),
    (hmrnn.nn.LSTM, {"hidden_size": 4, "num_layers": 2, "bidirectional": True, "bias": False, "zoneout": 0.2}),
]


@pytest.mark.parametrize(("kind", "options"), NETWORKS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_network_comes_back(kind: Any, options: dict[str, Any], dtype: torch.dtype, tmp_path: Path) -> None:
    rnn, x = kind(3, dtype=dtype, **options), torch.randn(5, 2, 3, dtype=dtype)
    folder = rnn.save_pretrained(tmp_path / "mine", license="mit")
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors", "README.md"}
    assert load_file(folder / "model.safetensors").keys() == rnn.state_dict().keys()
    assert (folder / "README.md").read_text().startswith("---\nlibrary_name: hmrnn\nlicense: mit\n")
    found = kind.from_pretrained(folder, engine="reference")
    assert (type(found), found.engine, found.training) == (type(rnn), "reference", False)
    rnn.eval().engine = "reference"
    assert repr(found) == repr(rnn)
    torch.testing.assert_close(found(x)[1], rnn(x)[1], rtol=0, atol=0)


def test_what_does_not_fit_is_refused_in_a_line(tmp_path: Path) -> None:
    whole = hmrnn.HMLSTM(3, 4, 2).save_pretrained(tmp_path / "mine")
    with refused():
        hmrnn.nn.LSTM.from_pretrained(whole)
    with refused():
        hmrnn.HMLSTM.from_pretrained(whole, hidden_size=5)
    config, weights = (whole / "config.json").read_bytes(), (whole / "model.safetensors").read_bytes()
    for wrong in (b"[]", b"{", b"{}", json.dumps({**json.loads(config), "num_layers": "two"}).encode(), b"\xff"):
        (whole / "config.json").write_bytes(wrong)
        with refused():
            hmrnn.HMLSTM.from_pretrained(whole)
    (whole / "config.json").write_bytes(config)
    for wrong in (b"", b"\x80pickle", weights[:-3]):
        (whole / "model.safetensors").write_bytes(wrong)
        with refused():
            hmrnn.HMLSTM.from_pretrained(whole)
    (whole / "model.safetensors").unlink()
    with refused():
        hmrnn.HMLSTM.from_pretrained(whole)
