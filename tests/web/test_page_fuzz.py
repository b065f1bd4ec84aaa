"""Damaged requests from a fixed seed: an answer of the interface, or one line that says what is wrong."""

from __future__ import annotations

import dataclasses

import page_fuzz
from pages import opened

import attack
from hmrnn.web.limits import Limits
from hmrnn.web.shelf import Shelf


def test_damaged_requests_get_an_answer_of_the_interface(shelf: Shelf) -> None:
    limits = dataclasses.replace(Limits(), text=100, length=20, points=20, body=4000)
    with opened(shelf, limits) as client:
        outcome = attack.attack(page_fuzz.requests(client), 200, seed=1)
    assert outcome.taken > 20
    assert outcome.refused > 40
    assert len(outcome.reasons) > 10
