"""Time of one update, end to end, for the networks of the frontier on enwik8: the x-axis of its second figure.

    python benchmarks/updates.py enwik8 --device cuda --out updates-h200

Trains each network of the figure on the first bytes of the file, with the settings of the recorded runs, one after
another, and takes the fastest speed that the run logged after its first updates.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "results"))
from reproduce import config_of  # the settings of recorded runs, for networks of other sizes
from table import runs

from hmrnn.cli.train import run_to_end
from hmrnn.training.rundir import RunDirectory
from machine import commit, hardware

LSTM, PENDING = runs("enwik8-frontier")["ln-lstm-512-seed1"], runs("enwik8-cell")["pending-seed1"]
ROWS = {f"ln-lstm-{size}": (LSTM, (size,), 2 * size) for size in (256, 384, 512, 768, 1024)}
ROWS |= {f"hm-{low}": (PENDING, (low, high, high), high) for low, high in ((384, 512), (576, 768), (960, 1280))}
ROWS |= {name: (runs("enwik8-cell")[f"{name}-seed1"], (768, 1024, 1024), 1024) for name in ("pending", "both", "dense")}
"""By the names in the figure: a recorded run, the sizes of the layers, that of the output."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="enwik8")
    parser.add_argument("--bytes", type=int, default=3_600_000, help="how much of it to read")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--out", default="updates", help="path of the JSON file, without its ending")
    args = parser.parse_args()
    found = {"commit": commit(), "hardware": hardware(args.device), "precision": args.precision, "rows": {}}
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "enwik8"
        part.write_bytes(Path(args.file).read_bytes()[: args.bytes])
        for row, (old, sizes, output) in ROWS.items():
            run = Path(folder) / row
            config = config_of(old, [str(part)], device=args.device, precision=args.precision, epochs=1, log_every=25)
            model = dataclasses.replace(config.model, hidden_size=sizes, output_size=output)
            run_to_end(dataclasses.replace(config, model=model), RunDirectory(run), again="", report=False)
            lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            speeds = [line["symbols_per_second"] for line in lines if line["event"] == "train"]
            found["rows"][row] = {"symbols_per_second": max(speeds[2:])}
            print(row, found["rows"][row], flush=True)
            Path(f"{args.out}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
