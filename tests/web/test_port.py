"""The port that the page is asked for."""

import pytest

import tiny


@pytest.mark.parametrize("port", ["80000", "-1"])
def test_a_port_that_is_none(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tiny.hmrnn("explore", "-m", "english-small", f"--port={port}") == 2
    assert "--port " in capsys.readouterr().err
