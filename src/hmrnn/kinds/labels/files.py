"""Files of labelled sequences: .tsv, .csv, .jsonl, and .conll for tags."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hmrnn.errors import InputError
from hmrnn.kinds.labels.answers import ANSWERS

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


class Record(NamedTuple):
    """A sequence of a file."""

    where: str
    """Its place in the file, such as "line 3"."""
    sequence: Any
    answer: Any = None
    """None if it has none."""


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


def parse(
    text: str, name: str, modality: str, *, tokens: bool = False, numbers: bool = False, each: bool = False
) -> Labelled:
    """The sequences in the text of a file, whose format its name tells.

    A file of another ending holds one sequence per line, without answers: a text, or with ``tokens`` words between
    spaces, or with ``numbers``, as where series are forecast, the steps of a series of one channel. In a table with a
    row per step the rows have an answer ``each``; without it, they may have one for their series.
    """
    ending, table, unnamed = _ending(name), list[list[str]](), False
    if ending in (".tsv", ".csv"):
        table = _rows(text, name, ending, modality)
    may_be_tokens = modality == "tags" and ending == ".tsv"
    found: Iterable[Record]
    if ending in (".jsonl", ".ndjson"):
        found = _json_lines(text, name, modality)
    elif table and (modality == "series" or (modality != "pairs" and _has_steps(table, may_be_tokens))):
        found = _steps(table, name, modality, each)
    elif may_be_tokens or (modality == "tags" and ending in (".conllu", ".conll", ".bio", ".iob", ".txt")):
        found = _sentences(text, name)
    elif table:
        named = [cell.strip().lower() for cell in table[0]]
        unnamed = len(named) == 2 and not {*SEQUENCE, ANSWERS[modality].field} & {*named}
        found = _table(table, named, name, modality)
    else:
        read: Any = _numbers if numbers or modality == "series" else _words if tokens else lambda line, _: line
        lines = [line for line in _lines(text) if line.strip()]
        found = [Record(f"line {k}", read(line, f"{name}, line {k}")) for k, line in enumerate(lines, start=1)]
        if modality == "series" and lines and all(len(one.sequence) == 1 for one in found):
            found = [Record("", [one.sequence[0] for one in found])]
    return _together(found, name, modality)._replace(maybe_header=unnamed)


def _ending(name: str) -> str:
    """The ending of a file's name that tells its format; that of a packed file is the one before."""
    return Path(re.sub(r"\.(xz|gz|bz2)$", "", name)).suffix.lower()


def _lines(text: str) -> list[str]:
    """The lines of a file; str.splitlines would also end one at U+2028 or a form feed within a text."""
    return re.split(r"\r\n|\n|\r", text)


def _words(line: str, where: str = "") -> list[str]:
    """The words between spaces or tabs; str.split would also cut at a no-break space, as in a number."""
    return re.split("[ \t]+", line.strip(" \t"))


def _numbers(line: str | Sequence[str], where: str, columns: Sequence[str] = ()) -> list[float]:
    """The numbers of a line, or of cells; of a row with several channels those of ``columns``."""
    cells = re.split(r"[,\s]+", line.strip()) if isinstance(line, str) else line
    wrong = next((k for k, cell in enumerate(cells) if not _is_number(cell)), None)
    if wrong is None:
        return [float(cell) for cell in cells]
    if columns:
        raise InputError(
            f"{where}: column {columns[wrong]} must hold numbers; got {cells[wrong]!r}; fill it or leave the column "
            "out (only series, time and the answer may hold words)"
        )
    raise InputError(
        f"{where}: expected the numbers of a series of one channel; got {cells[wrong]!r}; the first row of a table may "
        "name its columns: text, or series (a row per step), and the answer"
    )


def _json_lines(text: str, name: str, modality: str) -> Iterator[Record]:
    for number, line in enumerate(_lines(text), start=1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            (sequence,) = [given[field] for field in SEQUENCE if field in given]
        except (ValueError, TypeError, RecursionError) as error:
            why = f": {error}" if isinstance(error, json.JSONDecodeError) else ""
            raise InputError(
                f"{name}, line {number} must be an object with one of {', '.join(SEQUENCE)}{why}"
            ) from error
        answer = None if modality == "series" else given.get(ANSWERS[modality].field)
        yield Record(f"line {number}", sequence, answer)


def _together(records: Iterable[Record], name: str, modality: str) -> Labelled:
    """Sequences that all have an answer, or none."""
    found, answer = list(records), ANSWERS[modality]
    if not found:
        raise InputError(f"{name} holds no sequences; expected {answer.formats}")
    missing = [one.where for one in found if one.answer is None]
    if 0 < len(missing) < len(found):
        raise InputError(f"{name}, {missing[0]} has no {answer.field}; give one for each, or none")
    right = [_number(one.answer, f"{name}, {one.where}") if modality == "numbers" else one.answer for one in found]
    return Labelled([one.sequence for one in found], None if missing else right)


def _number(answer: Any, where: str) -> Any:
    """The number in a cell of a table, or those in a list of cells; others as given, to be checked later."""
    if isinstance(answer, list):
        return [_number(one, where) for one in answer]
    if isinstance(answer, str) and not _is_number(answer):
        raise InputError(
            f"{where} must have a number as its answer; got {answer!r}; the first row may name the columns: text and "
            "number, or series and number"
        )
    return float(answer) if isinstance(answer, str) else answer


def _sentences(text: str, name: str) -> Iterator[Record]:
    """A token and its tag per line, in columns; an empty line ends a sentence."""
    sentence: list[tuple[str, ...]] = []
    for number, line in enumerate([*_lines(text), ""], start=1):
        if line.strip() and not line.startswith("-DOCSTART-"):
            found = _of_conllu(line) if _ending(name) == ".conllu" else _of_conll(line, name, number, not sentence)
            if found and not (found[0].strip() and found[-1].strip()):
                raise InputError(f"{name}, line {number} must hold a token and its tag, of CoNLL-U in 10 columns")
            sentence += [found] if found else []
        elif sentence:
            tags = [tag for _, *tagged in sentence for tag in tagged]
            if 0 < len(tags) < len(sentence):
                raise InputError(f"{name} holds tokens with a tag and tokens without; give one for each, or none")
            yield Record(f"the sentence before line {number}", [token for token, *_ in sentence], tags or None)
            sentence = []


def _of_conll(line: str, name: str, number: int, starts: bool) -> tuple[str, ...]:
    """The first and the last column; nothing of a comment before a sentence, or a first line that names the columns."""
    columns = line.split("\t") if "\t" in line else _words(line)
    columns = [_unquoted(cell) for cell in columns] if _ending(name) == ".tsv" else columns
    named = number == 1 and columns[0].strip().lower() in TOKEN and columns[-1].strip().lower() in TAG
    comment = starts and columns[0] == "#" and len(columns) > 2
    return () if named or comment else (columns[0], *columns[1:][-1:])


def _of_conllu(line: str) -> tuple[str, ...]:
    """The word and its universal part-of-speech tag (UPOS); nothing of a comment, a range or an empty node."""
    columns = line.split("\t")
    if line.startswith("#") or (len(columns) == 10 and not columns[0].isdecimal()):
        return ()
    return (columns[1], columns[3]) if len(columns) == 10 else ("",)


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


def _check_even(rows: list[list[str]], name: str) -> None:
    wrong = next((k for k, row in enumerate(rows) if len(row) != len(rows[0])), None)
    if wrong is not None:
        raise InputError(f"{name}, row {wrong + 1} has {len(rows[wrong])} columns, and the first has {len(rows[0])}")


def _steps(rows: list[list[str]], name: str, modality: str, each: bool) -> Iterator[Record]:
    """A row per step: the series it belongs to, a column per channel, and the label of the series or a tag.

    Steps are in the order of their rows; a column ``time`` is left out. Without a column STEPS, all are of one series,
    whose channels to forecast need no names.
    """
    _check_even(rows, name)
    headed = modality != "series" or not all(map(_is_number, rows[0]))
    titles = [cell.strip() if headed else f"channel {k}" for k, cell in enumerate(rows[0], start=1)]
    named = [title.lower() for title in titles]
    if "" in named:
        raise InputError(
            f"{name}: column {named.index('') + 1} has no name; give it one, or leave it out if it counts the rows, "
            "as by DataFrame.to_csv(index=False)"
        )
    field = ANSWERS[modality].field
    allowed: tuple[str, ...] = TAG if modality == "tags" else (field,) if modality != "series" else ()
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
    columns = tuple(titles[k] for k in channels)
    series: dict[str, Steps] = {}
    cells: dict[str, list[str]] = {}
    for number, row in enumerate(rows[headed:], start=1 + headed):
        where = f"{name}, row {number}"
        if not (key := "all" if place is None else row[place].strip()):
            raise InputError(f"{where} does not say to which series it belongs")
        steps = series.setdefault(key, Steps(columns if headed else ()))
        steps.append(_numbers([row[k] for k in channels], where, columns))
        cells.setdefault(key, []).append("" if answer is None else row[answer].strip())
    given = {key: [cell for cell in found if cell] for key, found in cells.items()}
    several = next((key for key, found in given.items() if len(set(found)) > 1), "")
    each = each or modality == "tags" or (modality == "numbers" and bool(several))
    for key, found in given.items():
        if each and 0 < len(found) < len(series[key]):
            raise InputError(f"{name}: series {key} needs a {allowed[0]} at every step, or none")
        if several and not each:
            first, second = list(dict.fromkeys(given[several]))[:2]
            raise InputError(f"{name}: series {several} must have one {field}; got {first} and {second}")
        yield Record(f"series {key}", series[key], (found if each else found[0]) if found else None)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _table(rows: list[list[str]], named: list[str], name: str, modality: str) -> Iterator[Record]:
    """A sequence and its answer per row; of more columns all but the last are a series. The first row may name them."""
    field, width = ANSWERS[modality].field, len(named)
    if twice := [cell for cell in (*SEQUENCE, field) if named.count(cell) > 1]:
        raise InputError(f"{name} has more than one column {twice[0]}; rename all but one")
    first = next((named.index(cell) for cell in SEQUENCE if cell in named), None)
    answer = named.index(field) if field in named and width > 1 else None
    headed = first is not None or answer is not None
    if first is not None and named[first] in ("tokens", "series"):
        raise InputError(f"{name} is a table, which holds texts; give {named[first]} in a .jsonl file")
    if width < 3:
        first = first or 0 if answer is None else 1 - answer
        answer = 1 - first if width == 2 else None
    elif not headed:
        if modality == "pairs":
            raise InputError(f"{name} must have two columns; got {width}")
        answer = width - 1
    _check_even(rows, name)
    for number, row in enumerate(rows[headed:], start=1 + headed):
        found = row[answer] if answer is not None and row[answer].strip() else None
        rest = (cell for k, cell in enumerate(row) if k != answer)
        yield Record(
            f"row {number}", row[first] if first is not None else _numbers([*rest], f"{name}, row {number}"), found
        )
