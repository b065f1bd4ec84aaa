"""The words of a column, by the executors of Spark: ``DataFrame.mapInPandas`` with a model that each loads once.

spark-submit examples/spark_segment.py MODEL TABLE.parquet OUT.parquet [COLUMN]

The executors need hmrnn, pandas and pyarrow, and must see MODEL: a bundled model, a folder, or ``hf://user/name``. Rows
keep their columns; those without words say why in the column ``error``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

SCHEMA = "words array<string>, ends array<bigint>, error string"


def segmenter(model: str, column: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What ``mapInPandas`` calls with the frames of a partition."""

    def segment(frames: Iterable[Any]) -> Iterator[Any]:
        import torch

        import hmrnn

        torch.set_num_threads(1)  # Spark runs as many tasks as there are processors
        loaded = hmrnn.load(model)
        for frame in frames:
            yield frame.assign(**loaded.segment_column(frame[column]))

    return segment


def main(model: str, table: str, out: str, column: str = "text") -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    frame = spark.read.parquet(table)
    schema = ", ".join([*(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema), SCHEMA])
    frame.mapInPandas(segmenter(model, column), schema).write.parquet(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
