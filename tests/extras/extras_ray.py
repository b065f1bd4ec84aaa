"""Files of lines and Parquet, segmented by workers of Ray; and the example for Spark. ``make test-ray`` runs them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

import hmrnn
import tiny
from hmrnn import InputError
from hmrnn.kinds.text.cluster import segment_corpus


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def results(out: Path) -> dict[str, list[Any]]:
    """All rows in the order of the files."""
    return pa.concat_tables(pq.read_table(path) for path in sorted(out.glob("*.parquet"))).to_pydict()


def test_rows_keep_their_order_and_bad_ones_their_place(tmp_path: Path) -> None:
    lines = [b"The boats came back.", b"", b"caf\xe9", b"A word in a long line of words.", b"the end"]
    (tmp_path / "a.txt").write_bytes(b"\n".join(lines * 9))
    values = ["It rained.", None, "Nobody came.", "", "The town slept."]
    pq.write_table(pa.table({"id": range(5), "said": values}), tmp_path / "b.parquet", row_group_size=2)
    model = hmrnn.load("novel-small")
    files = [str(tmp_path / "a.txt")]
    assert tiny.hmrnn("segment", "-m", "novel-small", "--ray", *files, "--out", tmp_path / "lines") == 0
    done = [*segment_corpus("novel-small", files, tmp_path / "parts", part=100, workers=2)]
    assert len(done) == len([*(tmp_path / "parts").glob("*.parquet")]) > 5
    assert sum(part["rows"] for part in done) == 45
    assert sum(part["bad"] for part in done) == 18
    for out in ("lines", "parts"):
        found = results(tmp_path / out)
        assert found["text"] == [line.decode("utf-8", "backslashreplace") for line in lines * 9]
        assert [error is None for error in found["error"]] == [True, False, False, True, True] * 9
        assert found["words"][3] == model.segment("A word in a long line of words.").words()
        assert found["ends"][0] == model.segment("The boats came back.").ends(1)
        assert found["words"][1:3] == found["ends"][1:3] == [None, None]
    how = ("--ray", tmp_path / "b.parquet", "--column", "said", "--workers", 2, "--out", tmp_path / "said")
    assert tiny.hmrnn("segment", "-m", "novel-small", *how) == 0
    found = results(tmp_path / "said")
    assert (found["id"], found["said"]) == ([*range(5)], values)
    assert found["words"][4] == model.segment("The town slept.").words()
    assert [error is None for error in found["error"]] == [True, False, True, False, True]


def test_a_killed_worker_costs_nothing_and_a_job_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(tiny.text(6000).replace(" the", "\n"))
    files, out = [str(tmp_path / "a.txt")], tmp_path / "found"
    job = segment_corpus("novel-small", files, out, part=200, workers=2)
    killed = next(job)["process"]
    os.kill(killed, signal.SIGKILL)
    done = [*job]
    assert len(done) + 1 == len([*out.glob("*.parquet")])
    whole = results(out)
    assert whole["text"] == (tmp_path / "a.txt").read_text().splitlines()
    assert whole["words"] == hmrnn.load("novel-small").segment_column(whole["text"])["words"]
    paths = sorted(out.glob("*.parquet"))
    for path in paths[1:4]:
        path.unlink()
    kept = paths[0].stat().st_mtime_ns
    again = [*segment_corpus("novel-small", files, out, part=200, workers=2)]
    assert {part["target"] for part in again} == {*map(str, paths[1:4])}
    assert results(out) == whole
    assert paths[0].stat().st_mtime_ns == kept
    with pytest.raises(InputError):  # what is there is of another model
        next(segment_corpus("english-small", files, out, part=200))


def test_the_example_runs_on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="no Spark here: make test-ray SPARK=pyspark, with Java")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    texts = ["The boats came back.", None, "", "It rained."]
    pq.write_table(pa.table({"id": range(4), "text": texts}), tmp_path / "in.parquet")
    tiny.script(tiny.ROOT / "examples" / "spark_segment.py").main(
        "novel-small", str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet")
    )
    found = pq.read_table(tmp_path / "out.parquet").sort_by("id").to_pydict()
    assert found["text"] == texts
    assert found["words"] == hmrnn.load("novel-small").segment_column(texts)["words"]


def test_what_is_no_table_of_texts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"text": ["a"], "words": [1]}), tmp_path / "taken.parquet")
    pq.write_table(pa.table({"other": ["a"]}), tmp_path / "other.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 is not all")
    for name in ("taken", "other", "bad"):
        assert tiny.hmrnn("segment", "--ray", tmp_path / f"{name}.parquet", "--out", tmp_path / "out") == 2
        assert f"{name}.parquet" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
