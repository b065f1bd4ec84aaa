"""Whatever is wrong: one line that says what was expected, exit status 2, and nothing created or changed."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from complaints import BEST, FLAGS, complaint, tree

import tiny
from hmrnn import checkpoint
from hmrnn.training.rundir import RunDirectory

TRAINING: dict[str, tuple[str, str]] = {
    # files
    "missing": ("train nowhere.txt", "'nowhere.txt' is neither a preset (demo, "),
    "missing, by flag": ("train text --data.path nowhere", "there is no file nowhere"),
    "no file": ("train ptb", "format ptb needs data; give the directory of ptb.char.train.txt as --data.path"),
    "empty": ("train empty.txt", "empty.txt is empty"),
    "too short": (
        "train short.txt",
        "short.txt is too short: it must hold at least 3557 symbols, so that the training ",
    ),
    "too short for the batch": (
        "train brief.txt --train.batch-size 64",
        "must hold at least 7113 symbols, so that the training part has 6401, one more than --train.batch-size times",
    ),
    "too short for its parts": (
        "train short.txt --train.batch-size 1 --train.length 3",
        "short.txt is too short: it must hold at least 40 symbols, so that training, validation and test have 2",
    ),
    "too short to show": ("data short.txt", "short.txt is too short: it must hold at least 40 symbols"),
    "other series": ("train series.csv", "as in labels series.csv (labels, tags, pairs, numbers, series, text"),
    "archive": ("train texts.tar.gz", "texts.tar.gz is an archive of files; unpack it and name the folder or its"),
    "IAM-OnDB without its sets": (
        "data iamondb --path iam --split official",
        "add them to --path, or set --split to paper",
    ),
    "IAM-OnDB without its place": ("data iamondb", "give lineStrokes-all.tar.gz, a folder or an archive as --path"),
    "binary": ("train binary.txt", "binary.txt is not UTF-8 text"),
    "not UTF-8": (
        "train latin1.txt",
        "(invalid continuation byte); convert it to UTF-8, as by iconv -f WINDOWS",
    ),
    "folder without text": ("train folder", "folder is a directory without .txt files"),
    # words that mean nothing
    "no command": ("frobnicate", "unknown command 'frobnicate'; expected one of demo, train, "),
    "no preset": ("train", "hmrnn train needs a file or a preset first, as in hmrnn train book.txt (see its --help)"),
    "flag for a preset": ("train --train.epochs 3", "hmrnn train needs a file or a preset first"),
    "flag of a section": ("train story.txt --seed 3", "unknown option --seed; did you mean --train.seed?"),
    "unknown preset": ("train ptbb", "'ptbb' is neither a preset"),
    "format for a preset": (
        "train lines story.txt",
        "; it is a format, for --data.format lines of hmrnn train",
    ),
    "misspelt preset": ("train enwki8", "that exists; did you mean enwik8?"),
    "misspelt file": ("train stroy.txt", "that exists; did you mean story.txt?"),
    "no such command": ("report -m runs/story", "(see hmrnn --help); hmrnn train writes report.html at its end"),
    "short command": ("gen -m runs/story", "; did you mean generate?"),
    "misspelt command": ("evalute -m runs/story", "(see hmrnn --help); did you mean evaluate?"),
    "unknown flag": ("train story.txt --train.speed 3", "unknown option --train.speed; did you mean --train.seed?"),
    "misspelt flag": ("train story.txt --model.hiden-size 3", "did you mean --model.hidden-size?"),
    "stray word": ("train story.txt again", "there is no file again, or it cannot be reached"),
    "unknown flag elsewhere": ("demo --slow", "unknown option --slow (see hmrnn demo --help)"),
    # impossible values
    "no layers": ("train story.txt --model.num-layers 0", "--model.num-layers must be at least 1; got 0"),
    "negative rate": ("train story.txt --train.learning-rate -1", "--train.learning-rate must be positive; got -1.0"),
    "sizes": ("train story.txt --model.hidden-size 8 9", "must hold 1 or 3 sizes (--model.num-layers); got (8, 9)"),
    "no sizes": ("train story.txt --model.hidden-size", "--model.hidden-size must hold 1 or 3 sizes"),
    "choice": (
        "train story.txt --detectors.estimator never",
        "expected one of step, sample, soft, gumbel, reinforce; got",
    ),
    "not a number": ("train story.txt --train.epochs many", "--train.epochs: expected a whole number; got 'many'"),
    "no value": ("train story.txt --train.epochs", "--train.epochs: expected one argument"),
    "fractions": ("train story.txt --data.valid-fraction 0.99", "leave something for training; got 0.99 and 0.05"),
    "seed": ("train story.txt --train.seed -4", "train.seed must lie between 0 and"),
    "engine": ("train brief.txt --train.length 3 --train.engine steam", "engine must be one of auto, "),
    "device": ("train brief.txt --train.device abacus", "the device must be auto, cpu, cuda or cuda:N; got 'abacus'"),
    "parts": ("train story.txt --train.accumulate 5", "batch-size 32 must be a multiple of --train.accumulate 5"),
    # directories
    "a run is there": ("train story.txt", "runs/story already holds a run: continue it by --resume, replace it by"),
    "not a run": ("train story.txt --out folder", "folder exists and is not a run directory; choose another directory"),
    "not a run, to overwrite": ("train story.txt --out folder --overwrite", "exists and is not a run directory"),
    "a file": ("train story.txt --out empty.txt", "empty.txt exists and is not a run directory"),
    "nothing to resume": ("train story.txt --out runs/new --resume", "there is no run to resume in runs/new"),
    "resumed too early": ("train story.txt --out runs/fresh --resume", "stopped before its first checkpoint"),
    "resume and overwrite": ("train story.txt --resume --overwrite", "a run cannot be both resumed and overwritten"),
    "another model": ("train story.txt --resume --model.num-layers 2 --model.hidden-size 8", "cannot change --model."),
    "another rate": ("train story.txt --resume --train.learning-rate 1", "it cannot change --train.learning-rate"),
    "another text": ("train other.txt --out runs/story --resume", "data are not those this run began with"),
    "without spaces": ("train words story.txt --out runs/story --resume", "its spaces, not as words; choose another"),
    "another preset": ("train demo --out runs/story --resume", "the run in runs/story reads text, not demo"),
    "demo over a run": (
        "demo --out runs/story",
        "runs/story holds another run, no demo of this version; choose another --out",
    ),
    "a fresh demo over a run": (
        "demo --fresh --out runs/story",
        "runs/story holds another run, no demo of this version",
    ),
    "data twice": (
        "train story.txt --data.path story.txt",
        "the data was given twice: story.txt and --data.path story",
    ),
    "data twice, by name": ("train text story.txt --data.path story.txt", "the data was given twice: story.txt and"),
    "a negative width": ("segment -m runs/story abc --width -5", "--width must be 0 or more; got -5"),
    "no repeats": ("bench --repeats 0", "--repeats must be at least 1; got 0"),
    "threads below 0": ("bench --threads -1", "--threads must be at least 0; got -1"),
    "more threads than can be": ("bench --threads 1025", "--threads must be at most 1024; got 1025"),
    "threads past 64 bits": (
        "bench --threads 9223372036854775808",
        "--threads: must be at most 9223372036854775807 in",
    ),
    "training with too many threads": (
        "train story.txt --train.threads 2147483647",
        "--train.threads must be at most 1024; got 2147483647",
    ),
    "no modes": ("bench --modes", "--modes needs one or more of train, forward and stream"),
    "nameless tables": ("bench --out .", "--out must be the path of files, without their endings; got '.'"),
    "demo over a folder": ("demo --out folder", "folder exists and is not a run directory"),
}


@pytest.mark.parametrize(("command", "message"), TRAINING.values(), ids=TRAINING)
def test_training(work: Path, capsys: pytest.CaptureFixture[str], command: str, message: str) -> None:
    assert message in complaint(work, capsys, *command.split(" "))


USING: dict[str, tuple[str, str]] = {
    "no model": ("evaluate", "comes without its corpus: name a text by --file"),
    "nothing there": ("segment -m runs/nowhere abc", "no checkpoint at runs/nowhere: expected a run directory, a"),
    "misspelt model": (
        "segment -m english-smal abc",
        "(english-small, handwriting-small, novel-small); did you mean english-small?",
    ),
    "endless model": (f"segment -m {'x' * 300} abc", "no checkpoint at xxx"),
    "misspelt run": ("segment -m runs/stroy abc", "novel-small); did you mean runs/story?"),
    "not a run": ("evaluate -m folder", "folder holds no checkpoint"),
    "a file": ("generate -m empty.txt", "no checkpoint at empty.txt"),
    "not trained yet": ("generate -m runs/fresh", "runs/fresh holds no checkpoint"),
    "device": ("segment -m runs/story abc --device abacus", "the device must be auto, cpu, cuda or cuda:N"),
    "unseen symbols": (
        "segment -m runs/story abXc --unknown refuse",
        "1 symbol that training never showed: 'X' (U+0058) at position 2",
    ),
    "unseen in a prompt": ("generate -m runs/story abXc --unknown refuse", "never showed: 'X' (U+0058) at position 2"),
    "nothing on standard input": ("segment -m runs/story", "there is nothing to segment: the text is empty"),
    "text twice": ("segment -m runs/story abc --file story.txt", "give a text or --file, not both"),
    "no quotes": (
        "segment -m runs/story abc de fgh --json a - b",
        'several words must be in quotes, as in hmrnn segment "two words"; after the first came: de fgh a ...',
    ),
    "no quotes around a prompt": (
        "generate abc de",
        'in quotes, as in hmrnn generate "two words"; after the first came: de',
    ),
    "no quotes and an unknown flag": ("score abc de --bogus", "unknown option --bogus (see hmrnn score"),
    "two files": ("data story.txt --path other.txt", "the data was given twice: story.txt and --path other.txt"),
    "an archive of labels": ("data labels story.txt --archive made.npz", "--archive is for pen strokes"),
    "two corpora": ("data text story.txt --path other.txt", "the data was given twice: story.txt and --path other.txt"),
    "no such file": ("segment -m runs/story --file nowhere.txt", "there is no file nowhere.txt, or it cannot be"),
    "misspelt file": ("score --file stroy.txt", "check the path; did you mean story.txt?"),
    "a folder without streams": ("segment -m runs/story abc --out found", "--out is for --stream; give both"),
    "resumed without streams": ("segment -m runs/story abc --resume", "--resume is for --stream; give both"),
    "file not UTF-8": ("segment -m runs/story --file latin1.txt", "latin1.txt is not UTF-8 text"),
    "picture": (
        "segment -m runs/story --file picture.png",
        "picture.png is not UTF-8 text: byte 0x89 at offset 0 (invalid start byte); convert it to UTF-8",
    ),
    "evaluate a picture": (
        "evaluate -m runs/story --file picture.png",
        "or read it as bytes (data.bytes)",
    ),
    "width": ("segment -m runs/story abc --width -3", "width must"),
    "length": ("generate -m runs/story --length -1", "length must not be negative; got -1"),
    "an endless length": (
        "generate -m runs/story --length 4611686018427387905",
        "length must be at most 46116860184273879",
    ),
    "a length past 64 bits": (
        "generate --length 9223372036854775808",
        "--length: must be at most 9223372036854775807 in",
    ),
    "a length of 5,000 digits": (f"generate --length {'9' * 5000}", "--length: expected a whole number; got '999"),
    "samples past the memory": ("generate -m runs/story --samples 4611686018427387904", "samples must be at most "),
    "samples too long": ("generate -m runs/story --samples 2 --length 9999999999", "length must be at most "),
    "lines past the memory": ("generate -m handwriting-small --samples 9999999999", "samples must be at most "),
    "points past the memory": ("generate -m handwriting-small --length 9999999999", "points must be at most "),
    "temperature": ("generate -m runs/story --temperature -1", "temperature must be 0 or more; got -1.0"),
    "top-k": ("generate -m runs/story --top-k 0", "top_k must be at least 1; got 0"),
    "top-p": ("generate -m runs/story --top-p 2", "top_p must lie above 0"),
    "split": ("evaluate -m runs/story --split dev", "--split: expected one of train, valid, test; got 'dev'"),
    "evaluate no file": ("evaluate -m runs/story --file nowhere.txt", "there is no file nowhere.txt"),
    "evaluate empty": ("evaluate -m runs/story --file empty.txt", "empty.txt is empty"),
    "evaluate other symbols": (
        "evaluate -m runs/story --file other.txt",
        "the text holds 8 symbols that training never showed: 'C' (U+0043) at position 0",
    ),
    "evaluate another corpus": ("evaluate -m runs/story --path other.txt", "the corpus has another vocabulary"),
    "evaluate symbols": ("evaluate -m runs/story --symbols -9", "--symbols must not be negative; got -9"),
    "evaluate one symbol": ("evaluate -m runs/story --symbols 1", "must hold at least 2 symbols; got 1"),
    "evaluate streams": ("evaluate -m runs/story --streams 0", "streams must be at least 1"),
    "a folder of strokes": ("plot -m handwriting-small --file /", "/ is a folder, and no file of strokes"),
    "figure": (
        "plot -m runs/story abc --figure 6",
        "expected one of 3, 4, 5, segments, timescales, curves; got '6'",
    ),
    "figure of a text": (
        "plot abc --figure 9",
        "got '9' (see hmrnn plot --help)",
    ),
    "figure's suffix": ("plot -m runs/story abc --out f.bmp", "a figure is written as .png, .svg, .pdf; got 'f.bmp'"),
    "figure's folder": ("plot -m runs/story abc --out no/f.png", "the folder of --out no/f.png does not exist"),
    "figure's levels": ("plot -m handwriting-small --levels 9", "--levels must lie between 1 and 2; got 9"),
    "curves of what": ("plot -m folder --figure curves", "metrics.jsonl cannot be read"),
    "no corpus": ("data nowhere.txt", "'nowhere.txt' is neither a preset"),
}


@pytest.mark.parametrize(("command", "message"), USING.values(), ids=USING)
def test_using(work: Path, capsys: pytest.CaptureFixture[str], command: str, message: str) -> None:
    assert message in complaint(work, capsys, *command.split(" "))


def test_a_terminal_with_nothing_typed(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    for arguments in (("segment", "-m", "runs/story"), ("segment",), ("score",), ("plot",)):
        said = complaint(work, capsys, *arguments)
        assert said == "no text: give one as an argument, by --file, or on standard input"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("train story.txt --bogus", "unknown option --bogus (see "),
        ("evaluate -m runs/story --jsn", "unknown option --jsn; did you mean --json? (see "),
        ("score abc de", 'a text of several words must be in quotes, as in hmrnn score "two words"; '),
    ],
)
def test_a_terminal_with_colours(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, expected: str
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    said = complaint(work, capsys, *command.split(" "))
    assert said.startswith(expected)
    assert "\x1b" not in said


def test_standard_input_that_is_not_utf8(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc\xe9"), encoding="utf-8"))
    assert "standard input is not UTF-8 text" in complaint(work, capsys, "segment", "-m", "runs/story")


def edit(name: str, old: str, new: str) -> Callable[[Path], object]:
    def apply(run: Path) -> None:
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new))

    return apply


CHECKPOINTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda best: shutil.rmtree(best), ""),
    "truncated": (lambda best: os.truncate(best / "model.safetensors", 99), "model.safetensors is damaged: its size"),
    "version": (edit("manifest.json", '"format": 1', '"format": 2'), "format 2, this hmrnn reads format 1"),
    "vocabulary": (edit("vocabulary.json", '"h"', '"z"'), "vocabulary.json is damaged"),
}


COMMANDS = ("evaluate", "segment abc", "generate", "plot abc")


@pytest.mark.parametrize(("name", "command"), list(zip(CHECKPOINTS, COMMANDS, strict=True)))
def test_checkpoints(work: Path, capsys: pytest.CaptureFixture[str], name: str, command: str) -> None:
    """All commands load them by the same function."""
    damage, message = CHECKPOINTS[name]
    damage(work / BEST)
    what = BEST if message == "" else "runs/story"
    said = complaint(work, capsys, *command.split(), "-m", what)
    assert message in said if message else said.startswith(f"no checkpoint at {BEST}")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda last: os.truncate(last / "training.safetensors", 9), "training.safetensors is damaged: its size"),
        (edit("manifest.json", '"format": 1', '"format": 2'), "format 2, this hmrnn reads format 1"),
        (lambda last: shutil.rmtree(last), "stopped before its first checkpoint"),
    ],
)
def test_resuming_from_a_bad_checkpoint(
    work: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], object], message: str
) -> None:
    damage(work / "runs" / "story" / "last-00000005")
    before = tree(work)
    assert tiny.hmrnn("train", "story.txt", "--resume") == 2
    assert message in capsys.readouterr().err
    assert tree(work) == before


def test_resuming_after_the_text_has_changed(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same symbols, the same length: only the checksum can tell."""
    (work / "story.txt").write_text((work / "story.txt").read_text()[::-1])
    assert "not those this run began with" in complaint(work, capsys, "train", "story.txt", "--resume")


def test_a_run_that_is_being_written(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = RunDirectory(Path("runs/story"))
    with here.open():
        for flag in ("--resume", "--overwrite"):
            said = complaint(work, capsys, "train", "story.txt", flag, *([] if flag == "--resume" else FLAGS))
            assert said.startswith("another process is writing to runs/story")


def test_damaged_metrics(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open("runs/story/metrics.jsonl", "a") as file:
        file.write('{"event": "tra')
    said = complaint(work, capsys, "plot", "-m", "runs/story", "--figure", "curves")
    assert "metrics.jsonl is damaged in line " in said
    assert "; mend or remove that line" in said


def test_a_corpus_whose_vocabulary_is_another(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint whose files agree with each other but not with the corpus it names."""
    saved = checkpoint.read(Path(BEST))
    vocabulary = type(saved.reads)("characters", tuple("ABCDEFGHI"))
    shutil.rmtree(BEST)
    checkpoint.write(Path(BEST), saved._replace(reads=vocabulary))
    assert "the corpus has another vocabulary (9 symbols)" in complaint(work, capsys, "evaluate", "-m", "runs/story")


def test_a_process_of_its_own(work: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hmrnn", "train", "nowhere.txt"]
    done = subprocess.run(command, capture_output=True, text=True, env=tiny.environment(tmp_path / "cache"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("hmrnn: 'nowhere.txt' is neither a preset")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_away(work: Path, tmp_path: Path) -> None:
    """`hmrnn ... | head` is no error."""
    command = f"{sys.executable} -m hmrnn generate -m runs/story --length 3000 | head -c 10"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        env=tiny.environment(tmp_path / "cache"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout) == 10


def test_json_of_a_run_is_plain(work: Path) -> None:
    stored = json.loads((work / "runs" / "story" / "config.json").read_text())
    assert stored["model"]["hidden_size"] == [6, 5, 4]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("segment abc --streams 4", "--streams is for --stream; give both"),
        ("segment abc --warmup 0", "--warmup is for --stream; give both"),
        ("segment --stream a.txt --out o --json", "--json has no effect with --stream"),
        ("segment --stream a.txt --out o --width 3", "--width has no effect with --stream"),
        ("segment --stream a.txt --out o --line 2", "--line has no effect with --stream"),
        ("segment abc --line 1", "--line is for handwriting, and this is a model of text"),
        ("plot abc --line 1", "--line is for handwriting"),
        ("plot abc --levels 1 --figure 3", "--levels is for handwriting"),
        ("plot abc --figure curves", "a text has no effect with --figure curves"),
        ("plot --figure curves --unknown skip", "--unknown has no effect with --figure curves"),
    ],
)
def test_flags_that_would_do_nothing(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny.saved_model(tmp_path / "model")
    (tmp_path / "a.txt").write_text("abc")
    name, *rest = command.split()
    assert tiny.hmrnn(name, "-m", "model", *rest) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "model"]


@pytest.mark.parametrize(
    "command",
    [
        "train loop", "train text loop", "train story.txt --from loop", "train story.txt --out loop",
        "train story.txt --data.cache loop", "data loop", "data iamondb --path loop", "data labels loop",
        "segment -m loop abc", "segment -m runs/story --file loop", "segment -m runs/story --stream loop --out x",
        "evaluate -m runs/story --file loop", "plot -m handwriting-small --file loop", "predict -m loop",
        "generate -m handwriting-small --prime loop", "export -m runs/story --out loop", "bench --out loop/x",
    ],
)  # fmt: skip
def test_a_link_to_itself_is_called_one(work: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    (work / "loop").symlink_to("loop")
    said = complaint(work, capsys, *command.split(" "))
    assert "did you mean" not in said
    if "--out" not in command and "cache" not in command:
        assert "loop is a link in a loop of links" in said
