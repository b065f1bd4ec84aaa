"""Puts the page, onnxruntime-web and two bundled models into a folder that any static file server can serve."""

import gzip
import json
import shutil
import sys
from pathlib import Path

import onnx

from hmrnn.pretrained.onnx import write_step

HERE = Path(__file__).parent


def build(folder):
    """Build in ``folder``, into which npm has installed onnxruntime-web; the folder with the page."""
    site, library = folder / "site", folder / "node_modules" / "onnxruntime-web" / "dist"
    site.mkdir(exist_ok=True)
    for path in (HERE / "index.html", HERE / "page.js", HERE / "model.js", library / "ort.wasm.bundle.min.mjs"):
        shutil.copy(path, site)
    pack(library / "ort-wasm-simd-threaded.wasm", site)
    for name in ("english-small", "writing-small"):
        path = write_step(name, folder / f"{name}.onnx")
        pack(path, site)
        model = onnx.load(path)
        sizes = {a.name: a.type.tensor_type.shape.dim for a in model.graph.input}
        about = {each.key: json.loads(each.value) for each in model.metadata_props}
        about["state"] = {name: size[1].dim_value for name, size in sizes.items() if "." in name}
        (site / f"{name}.json").write_text(json.dumps(about))
    return site


def pack(path, site):
    """A file for the browser to unpack, as few static file servers pack what they send."""
    (site / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))


if __name__ == "__main__":
    site = build(Path(sys.argv[1]))
    print(f"{site}: {sum(path.stat().st_size for path in site.iterdir()) / 1e6:.1f} MB")
