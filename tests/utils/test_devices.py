"""Devices: those of this machine, and an InputError for all others, whoever is asked."""

from __future__ import annotations

import pytest
import torch

import hmrnn
import tiny_strokes
from hmrnn.utils.devices import choose_device, find_device
from refusals import refused

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["nonsense", "meta", "cuda:x", "mps"])
def test_devices_that_are_none(name: str) -> None:
    with refused():
        choose_device(name)


def test_what_names_no_device() -> None:
    for given in (None, 1.5, torch.device("meta")):
        with refused("device"):
            find_device(given)


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[torch.device] = []
    assert choose_device("cpu") == find_device(CPU) == CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == CPU
    with refused("device"):
        choose_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert choose_device("auto") == torch.device("cuda:1")
    assert choose_device("cuda:0") == torch.device("cuda:0")
    assert current == [torch.device("cuda:1"), torch.device("cuda:0")]
    assert find_device("auto") == torch.device("cuda")  # the current one; a library leaves that as it is
    assert len(current) == 2
    for ask in (choose_device, find_device):
        with refused("device"):
            ask("cuda:2")
    monkeypatch.setenv("LOCAL_RANK", "3")
    with refused("device"):
        choose_device("cuda")


@pytest.mark.parametrize("device", ["gpu", "cuda"])
def test_a_model_says_what_it_cannot_use(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with refused("device"):
        hmrnn.load("english-small", device=device)
    for model in (hmrnn.load("english-small", device="auto"), tiny_strokes.model()):
        with refused("device"):
            model.to(device)
        assert model.to(CPU) is model
