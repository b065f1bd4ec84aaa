"""Files of labelled sequences: .tsv, .csv, .jsonl, and .conll for tags."""

from __future__ import annotations

import csv
import io
import json
import re
import reprlib
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hmrnn.errors import InputError, convert
from hmrnn.kinds.labels.answers import ANSWERS
from hmrnn.kinds.labels.sequences import columns, names_in, sequences

SEQUENCE = ("text", "tokens", "series", "source")
"""The fields of a JSON object that may hold the sequence."""
STEPS = "series"
"""The column of a table with a row per step of a series: which series the row belongs to."""
TOKEN, TAG = ("token", "tokens", "word", "words", "form"), ("tag", "tags", "label", "labels")
"""The names of columns of tokens and tags."""


class Steps(list[list[float]]):
    """A series from a table with a row per step; ``columns`` are the names of its channels."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        super().__init__()
        self.columns = columns


class Labelled(NamedTuple):
    """Sequences as users give them, and their answers; None where a file to be predicted has none."""

    sequences: list[Any]
    answers: list[Any] | None
    maybe_header: bool = False
    """Whether the first row of the table that they are from may name its columns, but by names that are not known."""


def check_no_header(source: str, labels: list[str], classes: Collection[str] | None = None) -> None:
    """InputError if the first label, no number, is likely the name of a column.

    It is if no other label occurs once, or, where the ``classes`` are known, if no other is none of them.
    """
    counts = Counter(labels)
    odd = [label for label, count in counts.items() if (count == 1 if classes is None else label not in classes)]
    number = re.fullmatch(r"[-+]?[\d.]+", labels[0].strip())
    if odd == labels[:1] and counts[labels[0]] == 1 and len(labels) > (2 if classes is None else 1) and not number:
        raise InputError(
            f"{source}: only its first row has the label {labels[0]!r}, so it seems to name the columns; name them "
            "text and label, or, if it is a label, give it a second sequence"
        )


def decoded(data: bytes, source: str) -> str:
    """The text of a file, without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte, offset = error.object[error.start], error.start
        to_do = convert(byte, offset)
        raise InputError(f"{source} is not UTF-8 text: byte 0x{byte:02x} at offset {offset}; {to_do}") from error


def parse(text: str, name: str, modality: str, *, tokens: bool = False, numbers: bool = False) -> Labelled:
    """The sequences in the text of a file, whose format its name tells.

    A file of another ending holds one sequence per line, without answers: a text, or with ``tokens`` words between
    spaces, or with ``numbers`` the steps of a series of one channel.
    """
    ending = _ending(name)
    if ending in (".jsonl", ".ndjson"):
        return _json_lines(text, name, modality)
    if modality == "tags" and ending == ".conllu":
        return _conllu(text, name)
    if modality != "pairs" and ending in (".tsv", ".csv"):
        rows = _rows(text, name, ending, modality)
        if _has_steps(rows, may_be_tokens=modality == "tags" and ending == ".tsv"):
            return _steps(rows, name, modality)
    if modality == "tags" and ending in (".conll", ".bio", ".iob", ".tsv", ".txt"):
        return _conll(text, name)
    if ending in (".tsv", ".csv"):
        return _table(_rows(text, name, ending, modality), name, modality)
    lines = [line for line in _lines(text) if line.strip()]
    if numbers:
        return Labelled([_series(re.split(r"[,\s]+", line.strip()), f"{name}, line {k}")
                         for k, line in enumerate(lines, start=1)], None)  # fmt: skip
    return Labelled([_words(line) for line in lines] if tokens else lines, None)


def parse_series(text: str, name: str, channels: tuple[str, ...] = ()) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """The series in the text of a file, each (time, channels), and the names of their channels, if they have any.

    A table has a row per step, of one series or, with a column ``series``, of several; its first row may name the
    columns, of which those of ``channels`` are taken or, without it, all but ``time``. A file of another ending holds a
    series of one channel: a number per line, or else a series per line.
    """
    ending = _ending(name)
    if ending in (".tsv", ".csv"):
        rows = _rows(text, name, ending, "series")
        if all(map(_is_number, rows[0])):  # no names
            head = [f"channel {k}" for k in range(1, len(rows[0]) + 1)]
            found = list(map(list, _steps([head, *rows], name, "series", start=1).sequences))
        else:
            found = _steps(rows, name, "series").sequences
    elif ending in (".jsonl", ".ndjson"):
        found = _json_lines(text, name, "series").sequences
    else:
        found = parse(text, name, "series", numbers=True).sequences
        if all(len(one) == 1 for one in found):
            found = [list(chain.from_iterable(found))] if found else []
    if not found:
        raise InputError(f"{name} holds no sequences; expected {ANSWERS['series'].formats}")
    where = names_in(name).X
    series = [one for one in sequences(found, where, channels=channels) if isinstance(one, np.ndarray)]
    if not series:
        raise InputError(f"{where[0]} must be a series of numbers; got {reprlib.repr(found[0])}")
    return series, columns(found[0])


def _ending(name: str) -> str:
    """The ending of a file's name that tells its format; that of a packed file is the one before."""
    return Path(re.sub(r"\.(xz|gz|bz2)$", "", name)).suffix.lower()


def _lines(text: str) -> list[str]:
    """The lines of a file; str.splitlines would also end one at U+2028 or a form feed within a text."""
    return re.split(r"\r\n|\n|\r", text)


def _words(line: str) -> list[str]:
    """The words between spaces or tabs; str.split would also cut at a no-break space, as in a number."""
    return re.split("[ \t]+", line.strip(" \t"))


def _series(cells: Sequence[str], where: str) -> list[float]:
    try:
        return [float(cell) for cell in cells]
    except ValueError as error:
        raise InputError(f"{where}: expected the numbers of a series of one channel; {error}") from error


def _json_lines(text: str, name: str, modality: str) -> Labelled:
    sequences, answers = [], []
    for number, line in enumerate(_lines(text), start=1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name}, line {number} is not a JSON object, as every line must be: {error}") from error
        found = [field for field in SEQUENCE if isinstance(given, dict) and field in given]
        if len(found) != 1:
            raise InputError(f"{name}, line {number} must be an object with one of {', '.join(SEQUENCE)}")
        sequences.append(given[found[0]])
        if (answer := ANSWERS[modality].field) in given and modality != "series":
            answers.append(given[answer])
    return _together(sequences, answers, name, modality)


def _together(sequences: list[Any], answers: list[Any], name: str, modality: str) -> Labelled:
    if answers and len(answers) != len(sequences):
        raise InputError(
            f"{name} holds {len(sequences)} sequences and {len(answers)} answers; give one for each, or none"
        )
    if not sequences:
        raise InputError(f"{name} holds no sequences; expected {ANSWERS[modality].formats}")
    if modality == "numbers":
        answers = [_number(answer, k, name) for k, answer in enumerate(answers)]
    return Labelled(sequences, answers or None)


def _number(answer: Any, k: int, name: str) -> Any:
    """The number in a cell of a table, or those in a list of cells; others as given, to be checked later."""
    if isinstance(answer, list):
        return [_number(one, k, name) for one in answer]
    if isinstance(answer, str) and not _is_number(answer):
        header = "" if k else "; the first row may name the columns: text and number, or series and number"
        raise InputError(f"{names_in(name).y[k]} must be a number; got {answer!r}{header}")
    return float(answer) if isinstance(answer, str) else answer


def _conll(text: str, name: str) -> Labelled:
    """A token and its tag per line, the first and the last column; an empty line ends a sentence.

    A first line that names these columns is left out.
    """
    sentences: list[list[tuple[str, ...]]] = [[]]
    for number, line in enumerate(_lines(text), start=1):
        columns = line.split("\t") if "\t" in line else _words(line)
        columns = [_unquoted(cell) for cell in columns] if _ending(name) == ".tsv" else columns
        named = number == 1 and columns[0].strip().lower() in TOKEN and columns[-1].strip().lower() in TAG
        if not line.strip() or columns[0] == "-DOCSTART-" or named:
            sentences.append([])
        elif sentences[-1] or not (columns[0] == "#" and len(columns) > 2):  # a comment before a sentence
            if not columns[0].strip() or not columns[-1].strip():
                raise InputError(f"{name}, line {number} must hold a token and its tag; got {line!r}")
            sentences[-1].append((columns[0], *columns[1:][-1:]))
    kept = [sentence for sentence in sentences if sentence]
    sizes = {len(row) for sentence in kept for row in sentence}
    if sizes == {1, 2}:
        raise InputError(f"{name} holds tokens with a tag and tokens without; give one for each, or none")
    tags = [[row[1] for row in sentence] for sentence in kept] if sizes == {2} else []
    return _together([[row[0] for row in sentence] for sentence in kept], tags, name, "tags")


def _conllu(text: str, name: str) -> Labelled:
    """The words and universal part-of-speech tags (UPOS) of a Universal Dependencies file."""
    sentences: list[list[tuple[str, str]]] = [[]]
    for number, line in enumerate(_lines(text), start=1):
        columns = line.split("\t")
        if not line.strip():
            sentences.append([])
        elif not line.startswith("#"):
            if len(columns) != 10 or not columns[1]:
                raise InputError(f"{name}, line {number} must hold the 10 columns of CoNLL-U; got {len(columns)}")
            if columns[0].isdecimal():  # neither a range of words nor an empty node
                sentences[-1].append((columns[1], columns[3]))
    kept = [sentence for sentence in sentences if sentence]
    return _together([[word for word, _ in one] for one in kept], [[tag for _, tag in one] for one in kept],
                     name, "tags")  # fmt: skip


def _rows(text: str, name: str, ending: str, modality: str) -> list[list[str]]:
    """The rows of a table that are not empty."""
    tabs = ending == ".tsv"
    how: Any = {"quoting": csv.QUOTE_NONE if tabs else csv.QUOTE_MINIMAL, "delimiter": "\t" if tabs else ","}
    usual = csv.field_size_limit(len(text) + 1)
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), **how) if row]
        rows = [[_unquoted(cell) for cell in row] for row in rows] if tabs else rows
    except csv.Error as error:
        raise InputError(f"{name} is no table: {error}") from error
    finally:
        csv.field_size_limit(usual)
    if not rows:
        raise InputError(f"{name} holds no sequences; expected {ANSWERS[modality].formats}")
    names = {cell.strip(' "').lower() for cell in re.split("[,;\t]", rows[0][0])}
    known = names & {*SEQUENCE, *(one.field for one in ANSWERS.values())} or (
        modality == "series" and not _is_number(rows[-1][0])
    )
    if len(rows[0]) == 1 and len(names) > 1 and known:
        wanted = "tabs" if tabs else "commas, and in numbers points"
        raise InputError(f"{name}, row 1 is one column, {rows[0][0]!r}; between columns a {ending} has {wanted}")
    return rows


def _unquoted(cell: str) -> str:
    """A cell of a .tsv without the quotes around it, if there are such, and all within are doubled.

    Others may begin with a quote that is part of the text, so a cell in quotes has no tab and no line end.
    """
    within = cell[1:-1]
    quoted = within and cell[0] == cell[-1] == '"' and '"' not in within.replace('""', "")
    return within.replace('""', '"') if quoted else cell


def _has_steps(rows: list[list[str]], may_be_tokens: bool) -> bool:
    """Whether a table has a row per step of a series: its first row names a column STEPS, and none of texts.

    If the rows ``may_be_tokens`` and their tags, "series" may be the first token.
    """
    named = [cell.strip().lower() for cell in rows[0]]
    if STEPS not in named or "text" in named:
        return False
    return not may_be_tokens or any(cell in TAG for cell in named) or any(_is_number(c) for r in rows[1:2] for c in r)


def _steps(rows: list[list[str]], name: str, modality: str, start: int = 2) -> Labelled:
    """A row per step: the series it belongs to, a column per channel, and the label of the series or a tag.

    Steps are in the order of their rows, of which that below the names is counted as ``start``; a column ``time`` is
    left out. Without a column STEPS, all are of one series.
    """
    named = [cell.strip().lower() for cell in rows[0]]
    if "" in named:
        raise InputError(
            f"{name}: column {named.index('') + 1} has no name; give it one, or leave it out if it counts the rows, "
            "as by DataFrame.to_csv(index=False)"
        )
    allowed: tuple[str, ...] = TAG if modality == "tags" else (ANSWERS[modality].field,) if modality != "series" else ()
    known = [k for k, column in enumerate(named) if column in (STEPS, *allowed)]
    if len(known) > 2 or named.count(STEPS) > 1:
        raise InputError(
            f"{name} must have one column {' and one '.join((STEPS, *allowed[:1]))}; got {', '.join(named)}"
        )
    place = named.index(STEPS) if STEPS in named else None
    answer = next((k for k in known if k != place), None)
    channels = [k for k, column in enumerate(named) if k not in (place, answer) and column != "time"]
    if not channels:
        raise InputError(
            f"{name} has a row per step, but no column of numbers; a whole series fits in a line of a .jsonl file"
        )
    titles = tuple(rows[0][k].strip() for k in channels)
    series: dict[str, Steps] = {}
    answers: dict[str, list[str]] = {}
    for number, row in enumerate(rows[1:], start=start):
        if len(row) != len(named):
            raise InputError(f"{name}, row {number} has {len(row)} columns, and the first has {len(named)}")
        wrong = next((k for k in channels if not _is_number(row[k])), None)
        if wrong is not None:
            raise InputError(
                f"{name}, row {number}: column {named[wrong]} must hold numbers; got {row[wrong]!r}; fill it or leave "
                "the column out (only series, time and the answer may hold words)"
            )
        key = "all" if place is None else row[place].strip()
        if not key:
            raise InputError(f"{name}, row {number} does not say to which series it belongs")
        series.setdefault(key, Steps(titles)).append([float(row[k]) for k in channels])
        if answer is not None and row[answer].strip():
            answers.setdefault(key, []).append(row[answer].strip())
    several = next((key for key, found in answers.items() if len(set(found)) > 1), None)
    if modality == "tags" or (modality == "numbers" and several is not None):  # one for each step
        short = next((key for key in series if answers and len(answers.get(key, ())) != len(series[key])), None)
        if short is not None:
            why = "or none has any" if modality == "tags" else f"as series {several} has several"
            raise InputError(f"{name}: series {short} needs a {allowed[0]} at every step, {why}")
        return _together(list(series.values()), [answers[key] for key in series if answers], name, modality)
    if several is not None:
        first, second = list(dict.fromkeys(answers[several]))[:2]
        raise InputError(f"{name}: series {several} must have one {ANSWERS[modality].field}; got {first} and {second}")
    return _together(list(series.values()), [answers[key][0] for key in series if key in answers], name, modality)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _table(rows: list[list[str]], name: str, modality: str) -> Labelled:
    """A sequence and its answer per line; of more columns all but the last are a series. A first line may name them."""
    named = [cell.strip().lower() for cell in rows[0]]
    first, last, number = 0, len(named) - 1, 1  # number of the first row that is no header
    header = [named.index(cell) for cell in SEQUENCE if cell in named]
    if len(named) == 2 and not header and ANSWERS[modality].field in named:
        header = [1 - named.index(ANSWERS[modality].field)]
    twice = [cell for cell in (*SEQUENCE, ANSWERS[modality].field) if named.count(cell) > 1]
    if twice:
        raise InputError(f"{name} has more than one column {twice[0]}; rename all but one")
    if header:
        if named[header[0]] in ("tokens", "series"):
            raise InputError(f"{name} is a table, which holds texts; give {named[header[0]]} in a .jsonl file")
        first = header[0]
        last = (
            named.index(ANSWERS[modality].field)
            if ANSWERS[modality].field in named
            else 1 - first
            if len(named) == 2
            else 0
        )
        rows, number = rows[1:], 2
    wrong = [k for k, row in enumerate(rows) if len(row) != len(named)]
    if wrong:
        raise InputError(
            f"{name}, row {wrong[0] + number} has {len(rows[wrong[0]])} columns, and the first has {len(named)}"
        )
    if len(named) == 1 or (len(named) > 2 and header and ANSWERS[modality].field not in named):
        return _together([row[first] for row in rows], [], name, modality)
    if len(named) == 2 or header:
        found = _together([row[first] for row in rows], _column(rows, last, name, number, modality), name, modality)
        return found._replace(maybe_header=not header)
    if modality == "pairs":
        raise InputError(f"{name} must have two columns; got {len(named)}")
    if ANSWERS[modality].field in named:
        last, rows, number = named.index(ANSWERS[modality].field), rows[1:], 2
    try:
        series = [_series([*row[:last], *row[last + 1 :]], f"{name}, row {k}") for k, row in enumerate(rows, number)]
    except InputError as error:
        raise InputError(
            f"{error}; the first row may name the columns: text and {ANSWERS[modality].field}, series and "
            f"{ANSWERS[modality].field} (a row per step), or {ANSWERS[modality].field} alone"
        ) from error
    return _together(series, _column(rows, last, name, number, modality), name, modality)


def _column(rows: Sequence[list[str]], column: int, name: str, first: int, modality: str) -> list[str]:
    """The answers in a column of a table whose rows are counted from ``first``; none if all its cells are empty."""
    empty = [k for k, row in enumerate(rows, first) if not row[column].strip()]
    if empty and len(empty) < len(rows):
        raise InputError(f"{name}, row {empty[0]} has no {ANSWERS[modality].field}; give one for each, or none")
    return [] if empty else [row[column] for row in rows]
