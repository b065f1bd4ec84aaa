"""Files of labels, tags and pairs, and what is said about files that are none."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from hmrnn.errors import InputError
from hmrnn.kinds.labels.answers.classes import Labels
from hmrnn.kinds.labels.files import parse
from hmrnn.kinds.labels.load import load_labelled
from hmrnn.kinds.labels.presets import PRESETS
from hmrnn.kinds.labels.sequences import columns, of_file, sequences
from hmrnn.kinds.labels.settings import LabelData
from refusals import refused

REST = "\t_" * 6
CONLLU = (
    f"# text = du #\n1-2\tdu#\t_\t_{REST}\n1\tdu\tdare\tVERB{REST}\n2\t#\t#\tSYM{REST}\n2.1\tnone\t_\tX{REST}\n\n"
    f"1\tel\tel\tDET{REST}\n"
)
GOOD: list[tuple[str, Any, str, list[Any], list[Any] | None]] = [
    ("a.tsv", "labels", "ab c\tx\nd\ty\n", ["ab c", "d"], ["x", "y"]),
    ("a.tsv", "labels", 'say "ab\tx\n', ['say "ab'], ["x"]),
    ("a.tsv", "labels", '"text"\t"label"\n"a ""b"" ""c"""\tx\n', ['a "b" "c"'], ["x"]),
    (
        "a.tsv",
        "labels",
        '"a\tx\nb"\ty\n"a" b "c"\tz\n"a"" b"c"\tz\n"""\tz\n""\tz\n',
        ['"a', 'b"', '"a" b "c"', '"a"" b"c"', '"""', '""'],
        ["x", "y", "z", "z", "z", "z"],
    ),
    ("a.tsv", "tags", '""""\tA\n"\tB\n"a\tC\n', [['"', '"', '"a']], [["A", "B", "C"]]),
    ("a.conll", "tags", '""""\tA\n', [['""""']], [["A"]]),
    ("a.csv", "labels", '"a, b",x\nd,y\n', ["a, b", "d"], ["x", "y"]),
    ("a.csv", "labels", "label,text\nx,ab\ny,d\n", ["ab", "d"], ["x", "y"]),
    ("a.csv", "labels", "review,label\nab,x\nd,y\n", ["ab", "d"], ["x", "y"]),
    ("a.csv", "labels", "text\nab\nd\n", ["ab", "d"], None),
    ("a.csv", "labels", "1,2.5,3,x\n0,1,2,y\n", [[1.0, 2.5, 3.0], [0.0, 1.0, 2.0]], ["x", "y"]),
    ("a.csv", "labels", "id,text,label\n1,ab,x\n2,d,y\n", ["ab", "d"], ["x", "y"]),
    ("a.csv", "labels", "id,text,date\n1,ab,x\n2,d,y\n", ["ab", "d"], None),
    ("a.csv", "labels", "text,label\nab,\nd, \n", ["ab", "d"], None),
    ("a.tsv", "labels", f"{'ab' * 70_000}\tx\n", ["ab" * 70_000], ["x"]),
    ("a.csv", "labels", "label,t0,t1\nx,1,2\ny,3,4\n", [[1.0, 2.0], [3.0, 4.0]], ["x", "y"]),
    (
        "a.csv",
        "labels",
        "Series,time,x,y,label\na,9h,1,2,u\nb,,3,4,v\na,,5,6,\n",
        [[[1, 2], [5, 6]], [[3, 4]]],
        ["u", "v"],
    ),
    ("a.csv", "labels", "series,x\na,1\na ,2\n", [[[1], [2]]], None),
    ("a.csv", "labels", "text,series,label\nab,1,x\nd,1,y\n", ["ab", "d"], ["x", "y"]),
    ("a.csv", "labels", "sequence,label\nACGT,x\n", ["ACGT"], ["x"]),
    ("a.tsv", "tags", "series\tx\ttag\na\t1\tu\na\t2\tv\nb\t3\tu\n", [[[1], [2]], [[3]]], [["u", "v"], ["u"]]),
    ("a.tsv", "tags", "series\tx\na\t1\na\t2\n", [[[1], [2]]], None),
    ("a.tsv", "tags", "series\tN\nof\tP\n", [["series", "of"]], [["N", "P"]]),
    ("a.jsonl", "labels", '{"text": "ab", "label": 1}\n\n{"text": "c", "label": 0}', ["ab", "c"], [1, 0]),
    ("a.jsonl.gz", "labels", '{"series": [[1, 2]], "label": "x"}', [[[1, 2]]], ["x"]),
    ("a.conll", "tags", "the D\ncat N\n\nsat V\n", [["the", "cat"], ["sat"]], [["D", "N"], ["V"]]),
    ("a.conll", "tags", "# text = the\nthe\tX\tD\n", [["the"]], [["D"]]),
    ("a.conll", "tags", "# O\n", [["#"]], [["O"]]),
    ("a.tsv", "tags", "Token\tPOS\tTag\nthe\tX\tD\ntoken\tY\ttag\n", [["the", "token"]], [["D", "tag"]]),
    ("a.conll", "tags", " 10\u00a0000  N\n", [["10\u00a0000"]], [["N"]]),
    ("a.conll", "tags", "of IN O\n# # B-NP\n", [["of", "#"]], [["O", "B-NP"]]),
    ("a.conllu", "tags", CONLLU, [["du", "#"], ["el"]], [["VERB", "SYM"], ["DET"]]),
    ("a.conll", "tags", "the\ncat\n", [["the", "cat"]], None),
    ("a.jsonl", "tags", '{"tokens": ["a"], "tags": ["D"]}', [["a"]], [["D"]]),
    ("a.tsv", "pairs", "cat\tkat\n", ["cat"], ["kat"]),
    ("a.jsonl", "pairs", '{"source": "cat", "target": ["K", "AE"]}', ["cat"], [["K", "AE"]]),
    ("a.jsonl", "labels", '{"text": "a\u2028b", "label": 1}\r\n', ["a\u2028b"], [1]),
    ("a.log", "labels", "a\u2028b\x0cc\r\nd\n", ["a\u2028b\x0cc", "d"], None),
    ("a.conll", "tags", "the\tD\r\ncat\tN\r\n", [["the", "cat"]], [["D", "N"]]),
    ("a.log", "labels", "ab\n\ncd\n", ["ab", "cd"], None),
    ("a.tsv", "numbers", "ab c\t1e3\nd\t-2\n", ["ab c", "d"], [1000.0, -2.0]),
    ("a.csv", "numbers", "review,number\nab,1.5\n", ["ab"], [1.5]),
    ("a.csv", "numbers", "1,2,0.5\n3,4,0.25\n", [[1.0, 2.0], [3.0, 4.0]], [0.5, 0.25]),
    ("a.csv", "numbers", "series,x,number\na,1,7\na,2,\nb,3,8\n", [[[1], [2]], [[3]]], [7.0, 8.0]),
    ("a.jsonl", "numbers", '{"text": "ab", "number": [1, 2.5]}', ["ab"], [[1, 2.5]]),
    ("a.csv", "numbers", "series,x,number\na,1,7\na,2,8\nb,3,9\n", [[[1], [2]], [[3]]], [[7.0, 8.0], [9.0]]),
]


@pytest.mark.parametrize(("name", "modality", "text", "sequences", "answers"), GOOD)
def test_formats(name: str, modality: Any, text: str, sequences: list[Any], answers: list[Any] | None) -> None:
    assert parse(text, name, modality)[:2] == (sequences, answers)


def test_a_tsv_of_csv_writer_reads_as_it_was_written() -> None:
    texts, into = ['"', 'say "ab"', '"ab" said', '"ab"', "'ab'", 'a""b'], io.StringIO()
    csv.writer(into, delimiter="\t").writerows([text, "x"] for text in texts)
    assert parse(into.getvalue(), "a.tsv", "labels").sequences == texts


def test_lines_of_tokens_and_of_numbers() -> None:
    assert parse(" a  dog\u00a0s\n", "standard input", "tags", tokens=True).sequences == [["a", "dog\u00a0s"]]
    assert parse("1, 2 3\n", "standard input", "labels", numbers=True).sequences == [[1.0, 2.0, 3.0]]
    assert parse("well, no,\nab\n", "a.tsv", "labels").sequences == ["well, no,", "ab"]
    with refused():
        parse("one\n", "standard input", "labels", numbers=True)


BAD: list[tuple[str, str, str, str]] = [
    ("a.tsv", "labels", "ab\tx\nc\n", "row 2"),
    ("a.tsv", "labels", "text\tlabel\nab\tx\nc\n", "row 3"),
    ("a.csv", "labels", "t0,t1,class\n1,2,x\n", "row 1"),
    ("a.tsv", "labels", "", ""),
    ("a.csv", "labels", "1,b,x\n", "row 1"),
    ("a.csv", "labels", '"text";"label"\r\nab;x\r\n', "row 1"),
    ("a.csv", "numbers", "series;time;u;number\na;0;0,5;1,5\n", "row 1"),
    ("a.tsv", "pairs", "source,target\na,b\n", "row 1"),
    ("a.csv", "pairs", "a,b,c\n", ""),
    ("a.csv", "labels", "text,label,label\na,x,y\n", "column label"),
    ("a.csv", "labels", "label,t0,label\nx,1,2\n", "column label"),
    ("a.csv", "labels", "series,label\n1 2,y\n", "column of"),
    ("a.csv", "labels", "series,x,label\na,1,u\na,2,v\n", "series a"),
    ("a.csv", "labels", "series,x,label\na,1,u\na,,u\n", "row 3"),
    ("a.csv", "labels", "series,x,label\na,1,u\n,2,u\n", "row 3"),
    ("a.csv", "labels", ",series,x,label\n0,a,1,u\n", "column 1"),
    ("a.csv", "labels", "series,x,label,label\na,1,u,v\n", "column series"),
    ("a.csv", "tags", "series,x,tag\na,1,u\na,2,\n", "series a"),
    ("a.csv", "labels", "text,label\na,x\nb,\n", "row 3"),
    ("a.csv", "pairs", "a,x\nb,\n", "row 2"),
    ("a.jsonl", "labels", "{", "line 1"),
    ("a.jsonl", "labels", '{"label": 1}', ""),
    ("a.jsonl", "labels", '{"text": "a", "label": 1}\n{"text": "b"}', ""),
    ("a.conll", "tags", "the D\ncat\n", ""),
    ("a.csv", "numbers", "text,score,number\na,x,y\n", ""),
    ("a.tsv", "numbers", "a\t1\nb\thigh\n", ""),
    ("a.csv", "numbers", "series,x,number\na,1,7\na,2,8\nb,3,\n", "series b"),
    ("a.conllu", "tags", "the D\n", "line 1"),
    ("a.conll", "tags", "\n\n", ""),
]


@pytest.mark.parametrize(("name", "kind", "text", "place"), BAD)
def test_wrong_files_are_named(name: str, kind: str, text: str, place: str) -> None:
    with pytest.raises(InputError, match=f"{name}.*{place}"):
        parse(text, name, kind)


@pytest.mark.parametrize(
    ("kind", "lines", "named"),
    [
        ("labels", [{"text": "ab", "label": "y[0]"}, {"text": "", "label": "x"}], "sequence 2 of a\\1.jsonl"),
        ("labels", [{"text": "ab", "label": "y[0]"}] * 2, "'y[0]'"),
        (
            "labels",
            [{"text": "a", "label": "X[1]"}, {"text": "b", "label": []}],
            "the answer to sequence 2 of a\\1.jsonl",
        ),
        ("tags", [{"tokens": ["a", "b"], "tags": ["A"]}], "sequence 1 of a\\1.jsonl"),
        ("tags", [{"tokens": ["a", "b"], "tags": ["A", None]}], "item 2 of the answer to sequence 1"),
        ("pairs", [{"source": "ab", "target": "c"}, {"source": "ab", "target": [1.0]}], "the answer to sequence 2"),
    ],
)
def test_errors_name_the_sequence_of_the_file(kind: Any, lines: list[Any], named: str, tmp_path: Path) -> None:
    """The file, not the arguments of Python, and texts that look like those stay as they are."""
    path = tmp_path / "a\\1.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError, match=re.escape(named)):
        load_labelled(LabelData(format=kind, path=(str(path),)))


def test_corpus_of_files(tmp_path: Path) -> None:
    one, other = tmp_path / "one.tsv.gz", tmp_path / "other.jsonl"
    one.write_bytes(gzip.compress("".join(f"{'ab' * k}\tx\n" for k in range(1, 11)).encode()))
    other.write_text("".join(f'{{"text": "{"cd" * k}", "label": "y"}}\n' for k in range(1, 11)))
    config = LabelData(format="labels", path=(str(one), str(other)), valid_fraction=0.2)
    corpus = load_labelled(config)
    assert (len(corpus.train), len(corpus.valid)) == (16, 4)
    assert corpus.spec.answer == Labels(("x", "y"))
    assert corpus.name == "one.tsv.gz, other.jsonl"
    with refused("data.path"):
        load_labelled(LabelData(format="tags"))
    (tmp_path / "none.txt").write_text("a\nb\n")
    (tmp_path / "named.csv").write_text("review,sentiment\n" + "good,x\nbad,y\n" * 10)
    (tmp_path / "bytes.tsv").write_bytes(b"\xff\tx\n")
    wrong = {".": tmp_path.name, "none.txt": "label", "named.csv": "'sentiment'", "bytes.tsv": "0xff"}
    for name, named in wrong.items():
        with pytest.raises(InputError, match=named):
            load_labelled(LabelData(format="labels", path=(str(tmp_path / name),)))
    # a label that occurs once, first: below a header, of a series, and a number
    for first, row in (("text,label\nodd,rare", "a"), ("1,2,rare", "3,4"), ("odd,5", "a")):
        (tmp_path / "first.csv").write_text(f"{first}\n" + f"{row},x\n{row},y\n" * 10)
        corpus = load_labelled(LabelData(format="labels", path=(str(tmp_path / "first.csv"),)))
        assert corpus.spec.answer.size == 3


@pytest.mark.parametrize("kind", PRESETS)
def test_all_but_a_few_may_be_held_out(kind: str) -> None:
    """Nothing is kept for a test."""
    config = PRESETS[kind]
    dataclasses.replace(config, data=dataclasses.replace(config.data, valid_fraction=0.97)).check()
    with pytest.raises(InputError) as error:
        dataclasses.replace(config, data=dataclasses.replace(config.data, valid_fraction=1.0)).check()
    assert error.value.setting == "data.valid_fraction"


def test_the_first_pair_is_shown_where_it_may_be_a_header(tmp_path: Path) -> None:
    for header, shown in (("english\tfrench\n", "; first pair 'english' -> 'french'"), ("source\ttarget\n", "")):
        (tmp_path / "a.tsv").write_text(header + "cat\tchat\ndog\tchien\n")
        corpus = load_labelled(LabelData(format="pairs", path=(str(tmp_path / "a.tsv"),), valid_fraction=0.5))
        assert corpus.describe().endswith(f"symbols to write{shown}")


@pytest.mark.parametrize(
    ("name", "text", "found", "channels"),
    [
        ("a.csv", "load,temp\n1,2\n3,4\n", [[[1, 2], [3, 4]]], ("load", "temp")),
        ("a.csv", "load\r\n1\r\n3\r\n", [[[1], [3]]], ("load",)),
        ("a.tsv", "1\t2\n3\t4\n", [[[1, 2], [3, 4]]], ()),
        ("a.csv", "series,time,x\nu,9,1\nv,9,2\nu,8,3\n", [[[1], [3]], [[2]]], ("x",)),
        ("a.csv", "time,x\n2020,1\n2021,2\n", [[[1], [2]]], ("x",)),
        ("a.jsonl", '{"series": [1, 2]}\n{"series": [3, 4, 5]}\n', [[[1], [2]], [[3], [4], [5]]], ()),
        ("a.jsonl", '{"series": [[1, 2], [3, 4]]}\n', [[[1, 2], [3, 4]]], ()),
        ("a.csv", "a (x; y)\n1\n2\n", [[[1], [2]]], ("a (x; y)",)),
        ("a.txt", "1\n2.5\n-3\n", [[[1], [2.5], [-3]]], ()),
        ("a.txt", "1 2\n3, 4 5\n", [[[1], [2]], [[3], [4], [5]]], ()),
    ],
)
def test_series_in_files(name: str, text: str, found: list[Any], channels: tuple[str, ...]) -> None:
    given = parse(text, name, "series").sequences
    assert [one.tolist() for one in sequences(given, series=True)] == found
    assert columns(given[0]) == channels


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.csv", "load\n1\nhigh\n", "row 3.* load .*'high'"),
        ("a.csv", "date,load\n1 May,1\n", " date "),
        ("a.csv", "load,temp\n1\n", "row 2"),
        ("a.csv", "1,2\n3,x\n", "row 2"),
        ("a.csv", ",load\n0,1\n", "column 1"),
        ("a.csv", "time\n1\n", ""),
        ("a.csv", "series,x,series\n1,2,3\n", "series"),
        ("a.csv", "load;temp\n1;2\n", "row 1"),
        ("a.csv", "x\n1\nnan\n", "sequence 1"),
        ("a.txt", "", ""),
        ("a.txt", "one two\n", "line 1"),
        ("a.jsonl", '{"text": "ab"}\n', "sequence 1"),
        ("a.jsonl", '{"series": [[[1], [2]], [[3], [4]]]}\n', "sequence 1"),
        ("a.jsonl", '{"series": [1, 2]}\n{"series": [[1, 2]]}\n', "sequence 2"),
    ],
)
def test_files_without_series(name: str, text: str, place: str) -> None:
    with pytest.raises(InputError, match=f"a\\..*{place}|{place}.*a\\."), of_file(name):
        sequences(parse(text, name, "series").sequences, series=True)
