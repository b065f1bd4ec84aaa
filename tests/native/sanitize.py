"""Replays calls of the native library under AddressSanitizer, UBSan and ThreadSanitizer: ``make sanitize``.

Each case runs in the native engine and in the reference, which must agree. The calls of the library are recorded with
all memory that they read and write, and ``replay.cpp``, compiled together with the library, makes them again.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import random
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from torch import Tensor

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from against_reference import Case, Values, evaluate, make, worst  # noqa: E402
from hmrnn import HMLSTM  # noqa: E402
from hmrnn.config import DetectorConfig  # noqa: E402
from hmrnn.kinds.strokes.network import HandwritingModel  # noqa: E402
from hmrnn.kinds.strokes.settings import StrokeModelConfig  # noqa: E402
from hmrnn.kinds.strokes.window import Window  # noqa: E402
from hmrnn.kinds.text.network import LanguageModel  # noqa: E402
from hmrnn.kinds.text.words.segmental import (  # noqa: E402
    SegmentalHead,
    best_segmentation,
    sum_segmentations,
    windows,
)
from hmrnn.nn.context import Condition  # noqa: E402
from hmrnn.nn.predictor import Predictor  # noqa: E402
from hmrnn.ops import reference  # noqa: E402
from hmrnn.ops.native import engine, library, segmental, window  # noqa: E402
from hmrnn.reading.read import Reader  # noqa: E402
from hmrnn.reading.sample import draw, seeded  # noqa: E402

CASES = 40
OPTIONS: dict[str, tuple[Any, ...]] = {
    "sizes": ((5,), (17, 8, 33), (40, 16), (3, 20, 6, 9)), "T": (1, 2, 13, 30), "B": (1, 4, 9, 17),
    "input_size": (3, 19), "symbols": (0, 4, 200), "layer_norm": (False, True), "boundary": engine.ESTIMATORS,
    "on_copy": ("evaluate", "hold"), "flush": (False, True), "top_down": engine.GATES,
    "copy": (True, True, False), "forced": ("no", "no", "some", "all"), "straight_through": (False, True),
    "lengths": (False, True), "hidden": (0, 0, 5), "zoneout": ("no", "share", "masks"), "dropout": (False, True),
}  # fmt: skip
LARGEST_ERROR = {torch.float64: 1e-10, torch.float32: 1e-2}
SANITIZERS = {"address": "address,undefined", "thread": "thread"}
FLAGS = ["-std=c++17", "-pthread", "-O0", "-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]
_address = Tensor.data_ptr


class Recorder:
    """Stands in for the library: passes calls on, and writes down what replay.cpp needs to make them again."""

    def __init__(self, file: BinaryIO, largest_error: float) -> None:
        self.file, self.largest_error, self.code = file, largest_error, library.code
        self.storages: dict[int, tuple[int, object, type | None]] = {}  # by address: bytes, what keeps them, their kind
        self.blocks: dict[tuple[int, int], int] = {}  # numbers by address and size
        self.contents: dict[int, bytes] = {}  # of blocks, after the last call that was given them
        self.made: dict[int, int] = {}  # numbers of what calls made, by address
        self.numbers = itertools.count(1)
        # of the call that is being written down: blocks with address and size; and where floating-point numbers are
        self.given: dict[int, tuple[int, int]] = {}
        self.floats: list[tuple[int, int, int, type]] = []

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.code, name)
        function.restype = ctypes.c_void_p if name != "hm_free" else None

        def recorded(*given: Any) -> Any:
            return self.call(function, name, given)

        setattr(self, name, recorded)
        return recorded

    def data_ptr(self, a: Tensor) -> int:
        """Replaces ``Tensor.data_ptr``: the library may be given this address."""
        storage = a.untyped_storage()
        kind = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}.get(a.dtype)
        self.storages[storage.data_ptr()] = (storage.nbytes(), storage, kind)
        return _address(a)

    def write(self, *words: object, content: bytes = b"") -> None:
        self.file.write(" ".join(map(str, words)).encode() + b"\n" + content)

    def call(self, function: Any, name: str, values: tuple[Any, ...]) -> Any:
        self.given, self.floats = {}, []
        words = []
        for value in values:
            if isinstance(value, bytes):
                words.append(f"&{self.words(value, name)}")
            else:
                words.append(f"@{self.made[value.value]}" if isinstance(value, ctypes.c_void_p) else str(int(value)))
        result = function(*values)
        if result is not None and result not in self.made:
            self.made[result] = next(self.numbers)
        self.write("call", name, len(words), *words, self.made.get(result, 0))
        if name == "hm_free":
            del self.made[values[0].value]
        for block, address, size, kind in self.floats:
            expected = (block, 0, size, ctypes.sizeof(kind), self.largest_error)
            self.write("expect", *expected, content=ctypes.string_at(address, size))
        for block, (address, size) in self.given.items():
            self.contents[block] = ctypes.string_at(address, size)
        return result

    def words(self, content: bytes, name: str) -> int:
        """Write down numbers and addresses, and what is there."""
        block = next(self.numbers)
        self.write("block", block, len(content), name, content=content)
        for i, (to,) in enumerate(struct.iter_unpack("q", content)):
            bases = [base for base, (size, *_) in self.storages.items() if base and base <= to <= base + size]
            if bases:
                base = max(bases)
                size, _, kind = self.storages[base]
                target = self.memory(base, size, f"{name}[{i}]")
                if kind is not None:
                    self.floats.append((target, base, size, kind))
                self.write("point", block, 8 * i, target, to - base)
        return block

    def memory(self, address: int, size: int, name: str) -> int:
        content = ctypes.string_at(address, size)
        number = self.blocks.get((address, size), 0)
        if not number:
            number = self.blocks[address, size] = next(self.numbers)
            self.write("block", number, size, name, content=content)
        elif number not in self.given and self.contents[number] != content:
            self.write("fill", number, size, content=content)
        self.contents[number] = content
        self.given[number] = (address, size)
        return number


def at_once(case: Case, dtype: torch.dtype, seed: int, name: str) -> Values:
    """Forwards and backwards."""
    return evaluate({"native": engine, "reference": reference}[name].hmlstm, make(case, dtype, seed=seed), dtype)


def stepwise(case: Case, dtype: torch.dtype, seed: int, engine: str) -> Values:
    torch.manual_seed(seed)
    rnn = HMLSTM(
        case.input_size, case.sizes, len(case.sizes), layer_norm=case.layer_norm, on_copy=case.on_copy,
        flush=case.flush, top_down=case.top_down, copy=case.copy, detector_hidden=case.hidden, engine=engine,
        dtype=dtype,
    )  # fmt: skip
    state, values, halved = None, {}, dtype == torch.float32 and seed % 8 == 0
    for p in rnn.parameters() if halved else ():  # to what bfloat16 holds exactly
        p.data = p.data.bfloat16().float()
    for t, x in enumerate(torch.randn(case.T, case.B, case.input_size, dtype=dtype)):
        with torch.autocast("cpu", torch.bfloat16, enabled=halved and engine == "native"):
            state = rnn.step(x, state).state
        parts = {"h": state.h, "c": state.c, "z": (state.z,)}
        values |= {f"{name}.{l} at {t}": a for name, part in parts.items() for l, a in enumerate(part)}
    return values


def drawn(case: Case, dtype: torch.dtype, seed: int, name: str) -> Values:
    """Symbols, or points."""
    torch.manual_seed(seed)
    config = StrokeModelConfig(
        hidden_size=case.sizes, num_layers=len(case.sizes), layer_norm=case.layer_norm, flush=case.flush,
        top_down=case.top_down, copy=case.copy, output_size=case.input_size, embedding_size=case.input_size,
        mixtures=3, halt=case.lengths, window="soft" if case.straight_through and not case.symbols else "none",
        alphabet=("a", "b"), window_components=2,
    )  # fmt: skip
    detectors = DetectorConfig(on_copy=case.on_copy, hidden=case.hidden)
    kinds: Any = (HandwritingModel, {}), (partial(LanguageModel, case.symbols), {"top_k": 3, "top_p": 0.8})
    kind, how = kinds[case.symbols > 0]
    model: Predictor = kind(config, engine=name, detectors=detectors).to(dtype)
    model.apply(lambda part: [p.data.normal_(0, 0.5) for p in part.parameters(recurse=False)] and None)
    start = torch.ones(case.T, case.B, *model.step_shape).to(torch.int64 if case.symbols else dtype)
    lengths = torch.arange(case.B) % case.T
    told = Condition(text=torch.ones(case.B, 16, dtype=torch.int64)) if config.window == "soft" else None
    steps = draw(Reader(model, case.B, told), start, seeded(seed), lengths, **how)
    return {f"draw {t}": step[lengths <= t].double() for t, step in zip(range(40), steps)}


def segmented(case: Case, dtype: torch.dtype, seed: int, name: str) -> Values:
    """The scores of segments, the sums over all segmentations, and their gradients."""
    torch.manual_seed(seed)
    signs, size = case.symbols or 9, case.sizes[0]
    with pytest.MonkeyPatch.context() as patch:
        if name == "reference":
            patch.setattr(segmental, "takes", lambda a: False)
        head = SegmentalHead(signs, 3, longest=case.input_size, size=size, dropout=0.3 * case.dropout).to(dtype)
        context = torch.randn(case.T, case.B, 3, dtype=dtype, requires_grad=True)
        scores = head(context, windows(torch.randint(signs, (case.T, case.B)), case.input_size)).closed
        sums = sum_segmentations(scores)
        sums.total.sum().backward()
        ends = best_segmentation(scores)
    assert context.grad is not None
    values = {"total": sums.total, "posterior": sums.segments, "context": context.grad}
    values |= {f"gradient of {name}": p.grad for name, p in head.named_parameters() if p.grad is not None}
    return values | {"ends": torch.tensor([end for row in ends for end in row], dtype=torch.float64)}


def followed(case: Case, dtype: torch.dtype, seed: int, name: str) -> Values:
    """What a window over letters shows, and its gradients."""
    torch.manual_seed(seed)
    (size, *_), letters = case.sizes, case.symbols or 9
    w = Window(letters, size, case.input_size, 1 + seed % 3, 2.0, case.copy).to(dtype)
    x = torch.randn(case.T, case.B, 3, dtype=dtype, requires_grad=True)
    text = torch.randint(letters + 1, (case.B, 16))
    with pytest.MonkeyPatch.context() as patch:
        if name == "reference":
            patch.setattr(engine, "takes", lambda a: False)
        *outputs, place = w(x, text, w.start(case.B))
    torch.stack([a.sum() for a in (*outputs, *place[: seed % 5])]).sum().backward()
    assert x.grad is not None
    values = {str(i): a.detach() for i, a in enumerate((*outputs, *place))} | {"x": x.grad}
    return values | {f"gradient of {name}": p.grad for name, p in w.named_parameters() if p.grad is not None}


def record(path: Path, seed: int) -> None:
    """Run a random case in both engines, and write the calls of the native one into a file."""
    chance = random.Random(seed)
    case = Case(**{name: chance.choice(values) for name, values in OPTIONS.items()})
    dtype, threads = chance.choice(list(LARGEST_ERROR)), chance.choice((1, 2, 3, 4))
    run = {1: followed, 5: segmented}.get(seed % 8) or {0: stepwise, 2: drawn}.get(seed % 4, at_once)
    dtype = torch.float64 if run is drawn else dtype  # in float32 a draw at the edge between two may be the other
    with open(path, "wb") as file, pytest.MonkeyPatch.context() as patch:
        recorder = Recorder(file, LARGEST_ERROR[dtype])
        patch.setattr(Tensor, "data_ptr", lambda a: recorder.data_ptr(a))
        patch.setattr(library, "code", recorder)
        for module in (engine, window):
            patch.setattr(module, "threads", lambda *_: threads)
        got = run(case, dtype, seed, "native")
        gc.collect()  # what the library made is freed, which is recorded, too
    error, where = worst(got, run(case, dtype, seed, "reference"))
    assert error <= LARGEST_ERROR[dtype], f"case {seed}, {case}: {where} differs from the reference by {error}"


def replay(compiler: list[str], kind: str, level: str, recordings: list[Path]) -> str:
    """Compile the library with a sanitizer and make the recorded calls; what is wrong, or nothing."""
    began = time.monotonic()
    program = recordings[0].with_name(kind)
    sanitizer = f"-fsanitize={SANITIZERS[kind]}"
    compiled = [*compiler, *FLAGS, sanitizer, *library.builder().LEVELS[level], HERE / "replay.cpp", "-o", program]
    for command in (compiled, ["setarch", "--addr-no-randomize", program, *recordings]):
        ended = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if ended.returncode:
            return f"{sanitizer}, {level}: exit status {ended.returncode}\n{ended.stderr[:10_000]}"
    print(f"{sanitizer}, {level}: {ended.stdout.strip()} in {time.monotonic() - began:.0f} s", flush=True)
    return ""


def main() -> None:
    compiler = library.builder().compiler()
    if not compiler:
        sys.exit("make sanitize needs g++ or clang++")
    if reason := library.why_not():
        sys.exit(reason)
    folder = HERE.parents[1] / "build" / "sanitize"
    folder.mkdir(parents=True, exist_ok=True)
    recordings = [folder / f"case-{seed}" for seed in range(CASES)]
    for seed, path in enumerate(recordings):
        record(path, seed)
    levels = library._levels()
    with ThreadPoolExecutor() as pool:
        wrong = list(pool.map(replay, [compiler] * 2, SANITIZERS, (levels[0], levels[-1]), [recordings] * 2))
    sys.exit("\n".join(filter(None, wrong)) or 0)


if __name__ == "__main__":
    main()
