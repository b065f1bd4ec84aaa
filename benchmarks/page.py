"""How long a visitor of ``hmrnn explore`` waits: a text is sent to a server, and sent again with a symbol more.

    python benchmarks/page.py --lengths 100,500,2000 --out page
    python benchmarks/page.py --model runs/book

Times are what a client on this machine sees: from the request to the first part of the answer, and to its end.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import machine
from hmrnn.cli.display import print_table

TEXT = Path(__file__).parents[1] / "tests" / "held_out.txt"


def ask(port: int, text: str) -> tuple[float, float, int]:
    """Seconds to the first part of the answer and to its end, and how many symbols it is about."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    began = time.perf_counter()
    connection.request("POST", "/api/text/read", json.dumps({"text": text}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    first_line = answer.readline()
    first = time.perf_counter() - began
    last_line = (answer.read().splitlines() or [first_line])[-1]
    whole = time.perf_counter() - began
    if answer.status != 200:
        raise SystemExit(f"the server answered {answer.status}: {first_line.decode()}")
    return first, whole, int(json.loads(last_line)["count"])


def measure(port: int, length: int, starts: range) -> dict[str, Any]:
    """Medians over texts that begin at ``starts``; then one symbol is added to each.

    The server remembers how a text begins, so no two may begin at the same place.
    """
    source = TEXT.read_text(encoding="utf-8")
    source *= 1 + (length + starts.stop) // len(source)
    times: dict[str, list[float]] = {"first_s": [], "whole_s": [], "one_more_s": []}
    for k in starts:
        text = source[k : k + length + 1]
        first, whole, count = ask(port, text[:-1])
        assert count == length, f"the answer is about {count} symbols of {length}"
        _, one_more, _ = ask(port, text)
        for name, seconds in zip(times, (first, whole, one_more)):
            times[name].append(seconds)
    return {"symbols": length} | {name: statistics.median(values) for name, values in times.items()} | {"all": times}


def _until_it_listens(port: int) -> None:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise SystemExit("the server does not listen")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="english-small", help="a run, or a model that comes with hmrnn")
    parser.add_argument("--lengths", default="100,500,2000", help="symbols, separated by commas")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, help="also write OUT.json")
    args = parser.parse_args()
    environment = machine.environment("cpu") | {"model": args.model, "repeats": args.repeats}
    command = [sys.executable, "-m", "hmrnn", "explore", "-m", args.model, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", server.stdout.readline() + server.stdout.readline())
            if found is None:
                raise SystemExit("the server did not start")
            port = int(found.group(1))
            _until_it_listens(port)
            ask(port, TEXT.read_text(encoding="utf-8")[-30:])  # the first answer takes longer
            measured = [
                measure(port, int(length), range(k * args.repeats, (k + 1) * args.repeats))
                for k, length in enumerate(args.lengths.split(","))
            ]
        finally:
            server.terminate()
    header = ("symbols", "first part, ms", "all of it, ms", "a symbol more, ms")
    names = ("first_s", "whole_s", "one_more_s")
    rows = [(f"{m['symbols']:,}", *(f"{1e3 * m[name]:.0f}" for name in names)) for m in measured]
    print_table(", ".join(f"{key} {value}" for key, value in environment.items()), header, rows)
    if args.out is not None:
        content = {"environment": environment, "measured": measured}
        args.out.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
