"""The command line: command name -> arguments -> function. Torch is imported only once a command runs."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import importlib
import io
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any, TypeVar

import tyro

from hmrnn import __version__
from hmrnn.cli.arguments import ARGUMENTS, DataArguments, GenerateArguments, TextArguments, TrainArguments
from hmrnn.config import Config
from hmrnn.config_use import idle, unused
from hmrnn.errors import InputError, did_you_mean
from hmrnn.presets import PRESETS, fit
from hmrnn.utils.signals import let_go_of_output

T = TypeVar("T")

HELP = """\
usage: hmrnn COMMAND [OPTIONS]     (hmrnn COMMAND --help lists the options)

  demo       train on a built-in text, show what was found
  train      train on demo, ptb, text8, enwik8, iamondb, handwritten, or text or strokes of your own; ptb-best,
             enwik8-best and iamondb-best have the settings of the best results
  evaluate   bits per character, or log-likelihood of handwriting, with what the layers did
  score      bits per character of a text, or of each of its lines
  segment    text in, its segments at every level out
  generate   go on from a prompt; or write by hand
  plot       the paper's figures 3, 4 and 5, timescales, and training curves
  explore    a page in the browser: segments as you type, and text as it is written
  export     a model to hand on: a directory that stands alone, in half precision if wished
  data       look at a corpus, or make text8 or prose from a Wikipedia dump
  bench      speed beside torch.nn.LSTM on this machine

  --version  print the version

Without -m, segment, generate, score, plot and evaluate --file use english-small, which comes with hmrnn; explore
also has handwriting-small.
"""


CIRCUMSTANCES = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENAMETOOLONG,
}  # fmt: skip
"""What is wrong with a disk or a folder, not with us."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command; exit status 0, 2 for what the user can mend, 130/143 after a signal."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    _open_streams()
    try:
        status = run(arguments)
        sys.stdout.flush()
    except InputError as error:
        print(f"hmrnn: {error}", file=sys.stderr)
        status = 2
    except BrokenPipeError:  # the reader of our output has gone (| head)
        let_go_of_output()
        status = 0
    except OSError as error:
        if error.errno not in CIRCUMSTANCES:
            raise
        try:
            sys.stdout.flush()
        except OSError:  # that was it, and what is left must not be tried again
            let_go_of_output()
        what = f" {error.filename}" if error.filename else ""
        print(f"hmrnn: cannot read or write{what}: {error.strerror}", file=sys.stderr)
        status = 2
    except KeyboardInterrupt:
        print("hmrnn: interrupted", file=sys.stderr)
        status = 130
    sys.exit(status)


def _open_streams() -> None:
    """A command without standard streams runs as with empty ones, and any sign can be written to any output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (till the end)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def run(arguments: list[str]) -> int:
    """Find the command, parse its arguments, call it."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"hmrnn {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in ARGUMENTS:
        raise InputError(
            f"unknown command {name!r}; expected one of {', '.join(ARGUMENTS)} (see hmrnn --help)"
            f"{did_you_mean(name, ARGUMENTS)}"
        )
    values: tuple[Any, ...] = (
        _train_arguments(rest) if name == "train" else (parse(ARGUMENTS[name], rest, f"hmrnn {name}"),)
    )
    check(values[-1])
    commands = importlib.import_module("hmrnn.cli.commands")
    return getattr(commands, name)(*values)


def check(arguments: Any) -> None:
    """InputError on what is wrong with the arguments of a command, as far as it is known without torch."""
    arguments.check()
    if isinstance(arguments, DataArguments) and not (arguments.text8_from or arguments.prose_from):
        preset_for(arguments.name)


def preset_for(target: str) -> tuple[str, Config]:
    """The name and the config of a preset, or those for text or strokes of one's own."""
    if target in PRESETS:
        return target, PRESETS[target]
    if not os.path.exists(target):
        raise InputError(
            f"{target!r} is neither a preset ({', '.join(PRESETS)}) nor a file or directory that exists"
            f"{did_you_mean(target, PRESETS, files=True)}"
        )
    preset = PRESETS[_kind(target)]
    data = dataclasses.replace(preset.data, path=(target,))
    return Path(target).resolve().stem, dataclasses.replace(preset, data=data)


def _kind(path: str) -> str:
    """What a file or a folder holds by its name, or by the names in it: "text" or "strokes"."""
    from hmrnn.data.strokes.iamondb import is_iamondb

    names = [path] if not os.path.isdir(path) else [name for _, _, found in os.walk(path) for name in found]
    endings = {Path(re.sub(r"\.(xz|gz|bz2)$", "", name)).suffix for name in names}
    if ".npz" in endings or (os.path.isdir(path) and endings & {".json", ".csv"} and ".txt" not in endings):
        return "strokes"
    if endings & {".json", ".csv"} and not os.path.isdir(path):
        raise InputError(
            f"{path} may hold strokes or text: write strokes or text in its place, and the file after --data.path "
            "(of hmrnn data: --path); other time series are for hmrnn.HMSegmenter, in Python"
        )
    if os.path.isdir(path) and is_iamondb(names):
        raise InputError(
            f"{path} holds lines of IAM-OnDB; read them with hmrnn train iamondb --data.path {shlex.quote(path)} "
            f"(or hmrnn data iamondb --path {shlex.quote(path)})"
        )
    return "text"


def _train_arguments(rest: list[str]) -> tuple[str, TrainArguments]:
    if not rest or rest[0].startswith("-"):
        if rest and rest[0] in ("-h", "--help"):
            print(
                f"usage: hmrnn train PRESET|PATH [OPTIONS]; PRESET is one of {', '.join(PRESETS)}; PATH is a text "
                "file, a folder of them, or strokes (.npz); the options, with the defaults of ptb:\n"
            )
            parse(TrainArguments, ["--help"], "hmrnn train ptb", _with_run_flags(PRESETS["ptb"]))
        raise InputError(
            f"hmrnn train needs a preset ({', '.join(PRESETS)}) or a file of text or strokes as its first argument"
        )
    target, flags = rest[0], rest[1:]
    name, config = preset_for(target)
    first = parse(TrainArguments, flags, f"hmrnn train {target}", _with_run_flags(config))
    asked = {flag.partition("=")[0].removeprefix("--").replace("-", "_") for flag in flags}
    first = fit(first, config, asked)
    out = first.out or f"runs/{name}"
    if first.resume:  # flags change the run's own config, not the preset
        from hmrnn.training.rundir import RunDirectory

        stored = RunDirectory(Path(out)).config()
        if stored.data.format != config.data.format:
            raise InputError(f"the run in {out} reads {stored.data.format}, not {target}; choose another --out")
        if config.data.path:  # the file named now, in case it has moved
            stored = dataclasses.replace(stored, data=dataclasses.replace(stored.data, path=config.data.path))
        first = parse(TrainArguments, flags, f"hmrnn train {target}", _with_run_flags(stored))
    _check_asked(first, asked)
    return target, dataclasses.replace(first, out=out)


def _check_asked(config: Config, asked: set[str]) -> None:
    """InputError if a flag sets what the network does not have or what does nothing; turning it off is allowed."""
    rnn = config.model.rnn
    lacking = {name: f"is for {what}, not for this {rnn}; leave it out" for name, what in unused(config.model).items()}
    for name, why in (idle(config) | lacking).items():
        part, _, field = name.partition(".")
        value = config.setting(name)
        off = name == "model.layer_norm" and rnn == "ln-lstm"  # which always has it, so only "off" sets something
        flag = f"{part}.no_{field}" if value is False else name
        if bool(value) != off and flag in asked:
            raise InputError(f"--{flag.replace('_', '-')} {why}")


def _with_run_flags(config: Config) -> TrainArguments:
    return TrainArguments(config.data, config.model, config.train, config.regularise)


def parse(kind: type[T], arguments: list[str], program: str, default: T | None = None) -> T:
    """Arguments as a ``kind``; what tyro explains in a box becomes one line."""
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured):
            if default is None:
                return tyro.cli(kind, args=arguments, prog=program)
            return tyro.cli(kind, args=arguments, prog=program, default=default)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        message = _one_line(captured.getvalue())
        if issubclass(kind, TextArguments | GenerateArguments):
            _check_quotes(message, program)
        raise InputError(f"{message} (see {program} --help)") from stop


def _one_line(box: str) -> str:
    """The first paragraph of tyro's message, and the name it suggests if it has one."""
    box = re.sub(r"\x1b\[[0-9;]*m", "", box)  # colours, on a terminal
    lines = [line.strip("│╭╮╰╯ ") for line in box.splitlines()]
    paragraphs: list[list[str]] = [[]]
    for line in lines[1:]:
        if set(line) in ({"─"}, {"-"}):
            paragraphs.append([])
        elif line:
            paragraphs[-1].append(line)
    paragraphs = [paragraph for paragraph in paragraphs if paragraph]
    message = " ".join(paragraphs[0])
    for paragraph in paragraphs[1:]:
        if paragraph[0].startswith("Perhaps you meant") and len(paragraph) > 1:
            message += f"; did you mean {paragraph[1].split()[0].rstrip(',')}?"
            break
    return re.sub(r"Expected one of \(([^()]*)\)", _choices, message)


def _choices(listed: re.Match[str]) -> str:
    """tyro's list of values in the same order every time, without the None that stands for a flag left out."""
    values = set(re.findall("'([^']*)'", listed[1])) - {"None"}
    return f"Expected one of {', '.join(sorted(values))}"


def _check_quotes(message: str, program: str) -> None:
    """InputError that says more, if what is wrong is a text without quotes: its first word is taken for all of it."""
    words = message.removeprefix("Unrecognized options: ").split(", ")
    if message.startswith("Unrecognized options: ") and not any(re.match("--?[a-zA-Z]", word) for word in words):
        shown = " ".join(words[:3]) + " ..." * (len(words) > 3)
        raise InputError(
            f'a text of several words must be in quotes, as in {program} "two words"; after the first came: {shown}'
        )
