"""``hmrnn shell``: completion for shells and the man page, from the same dataclasses as the flags."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable

from hmrnn import __version__, kind
from hmrnn.cli.arguments import ARGUMENTS, ShellArguments, TrainArguments, arguments_of, usual
from hmrnn.cli.parse import parser_of

STATUS = {
    "0": "Done.",
    "1": "A defect of hmrnn, with a traceback; please report it.",
    "2": "Something you can fix: one line says what was expected.",
    "130, 143": "Stopped by SIGINT or SIGTERM; training has saved everything.",
}
"""The exit statuses, for the man page."""
BASH = """\
_hmrnn() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words=
    if [ "$COMP_CWORD" -eq 1 ]; then
        words=@COMMANDS@
    else
        case "$command $before" in
@VALUES@
        *) case "$command $word" in
@FLAGS@
            esac ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _hmrnn hmrnn
"""
ZSH = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"


def run(arguments: ShellArguments) -> int:
    print({"bash": bash, "zsh": lambda: ZSH + bash(), "fish": fish, "man": man}[arguments.what](), end="")
    return 0


def parsers(explain: bool = False) -> dict[str, argparse.ArgumentParser]:
    """The parser of each command; that of ``train`` is for the usual kind of data."""
    run = {"train": TrainArguments(kind.presets()[usual().name])}
    return {one: parser_of(arguments_of(one), f"hmrnn {one}", run.get(one), explain=explain) for one in ARGUMENTS}


def first_words(parser: argparse.ArgumentParser) -> list[str]:
    """The words that may come right after a command."""
    places = [action for action in parser._actions if not action.option_strings]
    choices = [str(word) for action in places for word in action.choices or ()]
    return choices + [*kind.presets()] * any("PRESET" in str(action.metavar) for action in places)


def bash() -> str:
    values, flags = [], []
    for name, parser in parsers().items():
        known = parser._option_string_actions
        for flag, action in known.items():
            if action.choices:
                values.append(f"        '{name} {flag}') words={quoted(action.choices)} ;;")
        flags.append(f'            "{name} -"*) words={quoted(known)} ;;')
        if words := first_words(parser):
            flags.append(f'            "{name} "*) words={quoted(words)} ;;')
    script = BASH.replace("@COMMANDS@", quoted(ARGUMENTS)).replace("@VALUES@", "\n".join(values))
    return script.replace("@FLAGS@", "\n".join(flags))


def fish() -> str:
    lines = []
    for name, parser in parsers(explain=True).items():
        lines.append(f"complete -c hmrnn -n __fish_use_subcommand -f -a {name} -d {about(parser.description)}")
        start = f"complete -c hmrnn -n '__fish_seen_subcommand_from {name}'"
        if words := first_words(parser):
            lines.append(f"{start} -a {quoted(words)}")
        for flag, action in parser._option_string_actions.items():
            takes = f"-x -a {quoted(action.choices)}" if action.choices else "-r" if action.nargs != 0 else ""
            of = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            lines.append(f"{start} {of} {takes} -d {about(action.help)}")
    return "\n".join(lines) + "\n"


def man() -> str:
    lines = [f'.TH HMRNN 1 "" "hmrnn {__version__}"', ".SH NAME", "hmrnn \\- hierarchical multiscale LSTM"]
    lines += [".SH SYNOPSIS", ".B hmrnn", ".I COMMAND", "[OPTIONS]", ".SH COMMANDS"]
    for name, parser in parsers(explain=True).items():
        what, *examples = (parser.description or "").split("\n  ")
        lines += [f".SS hmrnn {name}", escaped(what), ".PP", ".nf", *map(escaped, examples), ".fi"]
        for action in parser._actions:
            names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
            lines += [".TP", f".B {escaped(names)}", escaped((action.help or "").replace("%%", "%"))]
    lines += [".SH EXIT STATUS"]
    for status, meaning in STATUS.items():
        lines += [".TP", f".B {status}", meaning]
    return "\n".join(lines) + "\n"


def quoted(words: Iterable[object]) -> str:
    """Words as one word of a shell."""
    return shlex.quote(" ".join(map(str, words)))


def about(text: str | None) -> str:
    """The first sentence of a description, as one word of a shell."""
    return quoted((text or "").replace("%%", "%").split("\n")[0].partition(". ")[0].split())


def escaped(text: str) -> str:
    """Text as it stands, for a man page."""
    plain = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain[:1] in (".", "'") else plain
