"""Time of one update, end to end, for the networks of the frontier on enwik8: the x-axis of its second figure.

    python benchmarks/updates.py enwik8 --device cuda --out updates-h200

Trains each row of ``enwik8-frontier`` and ``enwik8-cell`` that the figure shows on the first bytes of the file, one
after another, and takes the fastest speed that the run logged after its first updates.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "results"))
from reproduce import command  # the rows that results/ has are trained with these flags
from table_rows import TABLES

from hmrnn.cli.bench import commit, hardware
from hmrnn.cli.main import run as hmrnn

LSTMS = [("enwik8-frontier", f"ln-lstm-{size}") for size in (256, 384, 512, 768, 1024)]
HIERARCHIES = [("enwik8-frontier", "hm-384"), ("enwik8-frontier", "hm-576"), ("enwik8-cell", "pending")]
HIERARCHIES += [("enwik8-frontier", "hm-960"), ("enwik8-cell", "both"), ("enwik8-cell", "dense")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="enwik8")
    parser.add_argument("--bytes", type=int, default=3_600_000, help="how much of it to read")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--more", default="", help="further flags of hmrnn train, as one string")
    parser.add_argument("--out", default="updates", help="path of the JSON file, without its ending")
    args = parser.parse_args()
    found = {"commit": commit(), "hardware": hardware(args.device), "precision": args.precision, "rows": {}}
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "enwik8"
        part.write_bytes(Path(args.file).read_bytes()[: args.bytes])
        for table, row in LSTMS + HIERARCHIES:
            run = Path(folder) / row
            options = argparse.Namespace(
                path=[str(part)], device=args.device, precision=args.precision,
                more=f"--train.epochs 1 --train.log-every 25 --no-report --out {run} {args.more}",
            )  # fmt: skip
            hmrnn(command(TABLES[table], TABLES[table].rows[row], 1, options))
            lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            speeds = [line["symbols_per_second"] for line in lines if line["event"] == "train"]
            found["rows"][row] = {"symbols_per_second": max(speeds[2:])}
            print(row, found["rows"][row], flush=True)
            Path(f"{args.out}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
