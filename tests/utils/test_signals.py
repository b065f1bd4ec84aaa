"""Requests to stop."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

BUSY = """
from hmrnn.utils.signals import asked_to_stop
with asked_to_stop() as asked:
    print("begun", flush=True)
    {work}
    print(asked, flush=True)
"""


def stopped(work: str, times: int) -> tuple[int, str]:
    """The exit status and the output of a process that gets so many SIGTERMs while it works."""
    command = [sys.executable, "-c", BUSY.format(work=work)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        for _ in range(times):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        return process.wait(60), process.stdout.read()


def test_the_first_sigterm_is_noted() -> None:
    assert stopped("import time; time.sleep(1)", 1) == (0, "['SIGTERM']\n")


@pytest.mark.parametrize("work", ["sum(range(10**13))", "import time; time.sleep(60)"])
def test_the_second_sigterm_ends_a_process_at_once(work: str) -> None:
    """In a call during which no handler in Python can run, and elsewhere."""
    began = time.monotonic()
    assert stopped(work, 2) == (-signal.SIGTERM, "")
    assert time.monotonic() - began < 30
