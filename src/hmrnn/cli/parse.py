"""Dataclasses -> flags, by argparse: a field is an option, its docstring the help, a nested dataclass a section.

Only the settings that the user gave are returned, so that a given flag can be told from a default.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import functools
import re
import textwrap
import types
import typing
from collections.abc import Collection, Sequence
from typing import Any, Literal, NoReturn, TypeVar

from hmrnn.config.checks import Setting, lacking, settings_of
from hmrnn.errors import InputError
from hmrnn.utils.options import flag

T = TypeVar("T")
LARGEST = 2**63 - 1
"""The largest whole number of an option: what a tensor's number or size can be."""
WIDTH = 100


def parse(
    kind: type, words: Sequence[str], program: str, default: Any = None, lacks: Collection[str] = ()
) -> dict[str, Any]:
    """The settings that ``words`` give, by their full names; ``--help`` prints the help and exits.

    There are no flags for what is in ``lacks``, as in a Kind. InputError in one line if a word is wrong.
    """
    explain = any(word.startswith(("-h", "--help")) for word in words)
    parser = parser_of(kind, program, default, explain=explain, lacks=lacks)
    found, unknown = parser.parse_known_args(words)
    if unknown:
        _refuse(unknown, parser)
    piped = {one.name for one in settings_of(kind, default) if one.field.metadata.get("piped")}
    return {
        name: tuple(value or ["-"] * (name in piped)) if isinstance(value, list) else value
        for name, value in vars(found).items()
    }


_plain_types: Any = functools.cache(typing.get_type_hints)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message.removeprefix('argument ')} (see {self.prog} --help)")


class _Switch(argparse.Action):
    """``--x`` sets True, ``--no-x`` or ``--section.no-x`` sets False."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, option_string == self.option_strings[0])


def parser_of(
    kind: type,
    program: str,
    default: Any = None,
    *,
    explain: bool = True,
    only: Collection[str] | None = None,
    lacks: Collection[str] = (),
) -> _Parser:
    """The parser of a command whose arguments are the fields of ``kind``; its help shows the values of ``default``.

    Without ``explain`` the help lacks the docstrings, which take longer to read than all else takes to parse. If
    ``only`` is given, the settings of nested dataclasses that it does not name are left out; those in ``lacks`` always.
    """
    settings = [
        one
        for one in settings_of(kind, default)
        if not lacking(one.name, lacks) and (only is None or "." not in one.name or one.name in only)
    ]
    places = "".join(f" {s.field.metadata['metavar']}" for s in settings if s.field.metadata.get("positional"))
    parser = _Parser(
        prog=program, usage=f"{program}{places} [OPTIONS]", allow_abbrev=False,
        description="\n  ".join([textwrap.fill(_paragraph(kind), WIDTH) + "\n", *examples_of(kind)]),
        argument_default=argparse.SUPPRESS,
        formatter_class=functools.partial(argparse.RawDescriptionHelpFormatter, width=WIDTH),
    )  # fmt: skip
    parser._negative_number_matcher = re.compile(r"-\.?\d")  # so that -1e-3 is a value, not an option
    groups: dict[str, Any] = {"": parser}
    for name, part in {one.name.partition(".")[0]: one.owner for one in settings if "." in one.name}.items():
        groups[name] = parser.add_argument_group(name, None if only else textwrap.fill(_paragraph(part), WIDTH))
    for setting in settings:
        alias = getattr(kind, "FLAGS", {}).get(setting.name)
        _add(groups[setting.name.rpartition(".")[0]], setting, alias, setting.doc if explain else "", lacks)
    return parser


def _add(group: Any, setting: Setting, alias: str | None, doc: str, lacks: Collection[str]) -> None:
    """Add a setting to a parser or to one of its groups, without values in ``lacks``; ``alias`` is a further flag."""
    name, _, field, default, owner, _ = setting
    kind = _plain_types(owner)[field.name]
    required = default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
    if isinstance(default, bool):
        shown = ("on" if default else "off") if default or "." in name else None
    if shown not in (None, "", dataclasses.MISSING):
        doc += f" (default: {shown})"
    more: dict[str, Any] = {"help": doc.replace("%", "%%")}
    if typing.get_origin(kind) in (typing.Union, types.UnionType):  # X | None
        kind = typing.get_args(kind)[0]
    if kind is bool:
        section, _, last = flag(name)[2:].rpartition(".")
        off = [f"--{section}.no-{last}"] if section else [f"--no-{last}"] if default else []
        group.add_argument(flag(name), *off, dest=name, action=_Switch, nargs=0, **more)
        return
    place = field.metadata.get("positional")
    if typing.get_origin(kind) is tuple:
        kind, *rest = typing.get_args(kind)
        more["nargs"] = (
            1 + len(rest) if ... not in rest else "*" if "." in name or place or field.metadata.get("piped") else "+"
        )
    if typing.get_origin(kind) is Literal:
        more["choices"] = [value for value in typing.get_args(kind) if f"{name} {value}" not in lacks]
        kind = type(more["choices"][0])
    else:
        more["metavar"] = field.metadata.get("metavar") or {int: "N", float: "X", str: "NAME"}[kind]
    more["type"] = integer if kind is int else kind
    if place:
        group.add_argument(name, **(({} if required else {"nargs": "?"}) | more))
    else:
        aliases = filter(None, [alias, field.metadata.get("alias")])
        group.add_argument(*aliases, flag(name), dest=name, required=required, **more)


def integer(word: str) -> int:
    """A whole number; argparse names this function where a word is none."""
    if abs(number := int(word)) > LARGEST:
        raise argparse.ArgumentTypeError(f"must be at most {LARGEST} in size; got {word}")
    return number


def _refuse(unknown: list[str], parser: _Parser) -> NoReturn:
    """Raise InputError about words that are no arguments of the command."""
    flags = [word.partition("=")[0] for word in unknown if re.match("--?[a-zA-Z]", word)]
    if flags:
        options = list(parser._option_string_actions)
        names = {name: each for each in options for name in (each.rpartition(".")[2].lstrip("-"), each.lstrip("-"))}
        near = difflib.get_close_matches(flags[0].lstrip("-"), names, n=1, cutoff=0.7)
        parser.error(f"unknown option {flags[0]}" + "".join(f"; did you mean {names[name]}?" for name in near))
    parser.error(f"unexpected argument {unknown[0]!r}; a text of several words must be in quotes")


def _paragraph(kind: Any) -> str:
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())


def examples_of(kind: type) -> list[str]:
    """The commands in the docstring of a command's arguments: its lines that begin with ``hmrnn``."""
    return [line.strip() for line in (kind.__doc__ or "").splitlines() if line.strip().startswith("hmrnn ")]
