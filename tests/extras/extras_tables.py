"""Columns of pandas and polars where lists of texts, labels and numbers are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline

import hmrnn
import tiny
from labelled import LABELS, NUMBERS, SMALL, TEXTS


@pytest.mark.parametrize("table", [pandas.DataFrame, polars.DataFrame])
def test_columns_are_as_good_as_lists(table: Any) -> None:
    frame = table({"text": TEXTS, "label": LABELS, "number": NUMBERS})
    for estimator, column, answers in ((hmrnn.HMClassifier, "label", LABELS), (hmrnn.HMRegressor, "number", NUMBERS)):
        found = estimator(**SMALL).fit(frame["text"], frame[column]).predict(frame["text"])
        assert np.array_equal(found, estimator(**SMALL).fit(TEXTS, answers).predict(TEXTS))
    model = hmrnn.load("novel-small")
    both = zip(model.segment_many(frame["text"]), model.segment_many(TEXTS))
    assert all(ours.ends(1) == theirs.ends(1) for ours, theirs in both)


@pytest.mark.parametrize("table", [pandas.DataFrame, polars.DataFrame])
def test_a_column_is_trained_on_and_segments_are_a_table(table: Any, tmp_path: Path) -> None:
    run = tiny.config(device="cpu")
    lines = tiny.text(500).split(" ")
    frame = table({"text": lines})
    wanted = hmrnn.train(run, data=lines)
    for data in (frame["text"], frame.to_dict("records") if table is pandas.DataFrame else frame.iter_rows(named=True)):
        model = hmrnn.train(run, data=data)
        assert all(map(torch.equal, model.network.parameters(), wanted.network.parameters()))
    found = hmrnn.load("novel-small").segment("The boats came back.")
    rows = table(found.rows())
    assert list(rows.columns) == ["level", "start", "end", "text", "probability"]
    assert list(rows["text"]) == [*found.segments(1), *found.segments(2)]


def test_segments_are_columns_of_the_table() -> None:
    model, texts = hmrnn.load("novel-small"), ["The boats came back.", None, "Nobody said a word."]
    words = [model.segment(text).words() if text else None for text in texts]
    frame = pandas.DataFrame({"text": texts}, index=[7, 8, 9])
    found = frame.assign(**model.segment_column(frame["text"]))
    assert found["words"].tolist() == words
    assert found["error"].isna().tolist() == [True, False, True]
    assert found.index.tolist() == [7, 8, 9]
    table = polars.DataFrame({"text": texts})
    table = table.hstack(polars.DataFrame(model.segment_column(table["text"])))
    assert table["words"].to_list() == words


@pytest.mark.parametrize("parts", [1, 3])
def test_the_example_for_spark_segments_frames(parts: int) -> None:
    example = tiny.script(tiny.ROOT / "examples" / "spark_segment.py")
    texts = ["The boats came back.", None, "Nobody said a word.", "", "It rained."]
    frame = pandas.DataFrame({"id": range(5), "said": texts})
    size = -(-5 // parts)
    made = [*example.segmenter("novel-small", "said")(frame[k : k + size] for k in range(0, 5, size))]
    assert len(made) == parts
    found = pandas.concat(made)
    assert found["id"].tolist() == [*range(5)]
    assert found["words"].tolist() == hmrnn.load("novel-small").segment_column(texts)["words"]


def test_series_of_an_index_that_does_not_begin_at_zero() -> None:
    frame = pandas.DataFrame({"text": TEXTS, "label": LABELS}, index=range(100, 116))[::-1]
    model = hmrnn.HMClassifier(**SMALL).fit(frame["text"], frame["label"])
    assert np.array_equal(model.predict(frame["text"]), model.predict(TEXTS[::-1]))


@pytest.mark.parametrize(("table", "name"), [(pandas.DataFrame, "pandas"), (polars.DataFrame, "polars")])
def test_a_table_of_one_column_is_that_column(table: Any, name: str) -> None:
    frame, model = table({"text": TEXTS, "number": NUMBERS}), hmrnn.HMClassifier(**SMALL)
    wanted = model.fit(TEXTS, LABELS).predict_proba(TEXTS)
    assert np.array_equal(model.fit(frame[["text"]], LABELS).predict_proba(frame[["text"]]), wanted)
    choose = ColumnTransformer([("text", "passthrough", ["text"])], verbose_feature_names_out=False)
    pipeline = make_pipeline(choose, model).set_output(transform=name).fit(frame, LABELS)
    assert np.array_equal(pipeline.predict_proba(frame), wanted)
