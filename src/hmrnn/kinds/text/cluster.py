"""Texts in files of lines or in Parquet -> the words of each row, by the workers of Ray on one machine or many.

The files are cut into parts, whose results are files of their own: one that is there is not made again, so that a job
that was interrupted, or lost a worker, goes on from there. Every machine must see the files and the folder of results.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hmrnn.errors import InputError, installed
from hmrnn.kinds.text.model import TextModel
from hmrnn.utils.files import replacing, write

PART = 1 << 24
"""Bytes of a part of a text file; of a Parquet file a part is a row group."""
ADDED = ("words", "ends", "error")
JOB = "job.json"


def segment_corpus(
    source: str,
    files: Sequence[str],
    out: Path,
    *,
    column: str = "text",
    workers: int | None = None,
    device: str = "cpu",
    part: int = PART,
) -> Iterator[dict[str, Any]]:
    """Segment the rows of files by a model, whose name or path is ``source``; yields what was done, part by part.

    Results are ``out/000000-NAME.parquet`` and so on, in the order of the rows: the columns of the file, or ``column``
    with the line of a text file, and those of ``TextModel.segment_column``. ``workers`` are as many as there are
    processors, or GPUs, if not given; on a cluster set RAY_ADDRESS.
    """
    data, pa, pq = (installed(name, "segment --ray", "ray") for name in ("ray.data", "pyarrow", "pyarrow.parquet"))
    import ray

    parts: list[dict[str, Any]] = []
    for path in (Path(file).expanduser().resolve() for file in files):
        if path.suffix == ".parquet":
            try:
                groups, names = pq.read_metadata(path).num_row_groups, pq.read_schema(path).names
            except pa.ArrowInvalid:
                groups, names = 0, []
            if {column, *ADDED} & {*names} != {column}:
                raise InputError(f"{path} must be Parquet with a column {column}, and none of {', '.join(ADDED)}")
            places = [(group, group + 1) for group in range(groups)]
        else:
            size = path.stat().st_size
            places = [(start, min(start + part, size)) for start in range(0, size, part)]
        parts += [{"path": str(path), "start": start, "end": end} for start, end in places]
    for number, each in enumerate(parts):
        each["target"] = str(out.expanduser().resolve() / f"{number:06d}-{Path(each['path']).name}.parquet")
    _same_job(out, {"model": source, "column": column, "parts": parts})
    todo = [each for each in parts if not Path(each["target"]).exists()]
    if not todo:
        return
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    data.DataContext.get_current().enable_progress_bars = False
    resource = "CPU" if device == "cpu" else "GPU"
    most = min(len(todo), workers or int(ray.cluster_resources().get(resource, 1)))
    yield from (
        data.from_items(todo, override_num_blocks=len(todo))
        .map_batches(
            Worker,
            fn_constructor_args=(source, column, device),
            batch_size=1,
            compute=data.ActorPoolStrategy(size=most),
            num_cpus=1,
            num_gpus=float(resource == "GPU"),
        )
        .iter_rows()
    )


class Worker:
    """Segments parts, with a model that is loaded once."""

    def __init__(self, source: str, column: str, device: str) -> None:
        import torch

        from hmrnn.pretrained.load import load

        torch.set_num_threads(1)
        self.model: TextModel = load(source, device=device)
        self.column = column

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        done = self.segment(**{name: values.tolist()[0] for name, values in batch.items()})
        return {name: [value] for name, value in done.items()}

    def segment(self, path: str, start: int, end: int, target: str) -> dict[str, Any]:
        """Write the results of a part, whole or not at all; what was done."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if path.endswith(".parquet"):
            table = pq.ParquetFile(path).read_row_group(start)
            texts = table[self.column].to_pylist()
        else:
            texts = [_decoded(line) for line in _lines(path, start, end)]
            shown = [text if isinstance(text, str) else text.decode("utf-8", "backslashreplace") for text in texts]
            table = pa.table({self.column: pa.array(shown, pa.string())})
        found = self.model.segment_column(texts)
        for name, kind in zip(ADDED, (pa.list_(pa.string()), pa.list_(pa.int64()), pa.string())):
            table = table.append_column(name, pa.array(found[name], kind))
        with replacing(Path(target)) as file:
            pq.write_table(table, file)
        bad = len(texts) - found["error"].count(None)
        return {"target": target, "rows": len(texts), "bad": bad, "process": os.getpid()}


def _lines(path: str, start: int, end: int) -> list[bytes]:
    """The lines that begin in a part of a file, without their ends."""
    lines = []
    with open(path, "rb") as file:
        if start:
            file.seek(start - 1)
            file.readline()  # the end of one that began before
        while file.tell() < end and (line := file.readline()):
            lines.append(line.rstrip(b"\r\n"))
    return lines


def _decoded(line: bytes) -> str | bytes:
    """A line as text, or as it is if it is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line


def _same_job(out: Path, job: dict[str, Any]) -> None:
    """Note what the results in ``out`` are made of; InputError if those that are there are of something else."""
    out.mkdir(parents=True, exist_ok=True)
    note = json.dumps(job, indent=1).encode()
    if not (out / JOB).exists() and not any(out.iterdir()):
        write(out / JOB, note)
    elif not (out / JOB).exists() or (out / JOB).read_bytes() != note:
        raise InputError(f"{out} holds something else than results of these files by this model; choose another folder")
