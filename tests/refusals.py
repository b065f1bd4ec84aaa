"""Blocks in which something must be refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hmrnn import InputError


@contextmanager
def refused(name: str = "", kind: type[InputError] = InputError) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """InputError within the block, in one line; about this setting or argument, if it is named."""
    with pytest.raises(kind) as caught:
        yield caught
    said = str(caught.value)
    assert "\n" not in said
    assert not name or caught.value.setting == name or re.match(rf"{re.escape(name)}(?!\w)", said), said
