"""The parts of the site that are generated from the source, as Markdown: settings, presets, commands, Python names."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable
from typing import Any

import hmrnn
import hmrnn.nn
import hmrnn.nn.baselines
from hmrnn import kind
from hmrnn.cli.arguments import ARGUMENTS, TrainArguments, arguments_of
from hmrnn.cli.parse import parser_of
from hmrnn.config import SECTIONS
from hmrnn.config.checks import Setting, settings_of
from hmrnn.ops import reference
from hmrnn.optim import Muon

PRESETS = kind.presets()

PUBLIC = {
    "Networks": ("HMLSTM", "Output", "Operation", "State", "HMLSTMCell"),
    "Trained models": ("load", "train", "Config", "TextModel", "StrokeModel", "Segmentation", "InputError"),
    "scikit-learn estimators": (
        "HMClassifier",
        "HMTagger",
        "HMTransducer",
        "HMRegressor",
        "HMForecaster",
    ),
    "Networks that predict": ("LanguageModel", "HandwritingModel"),
}
"""The names in hmrnn.__all__ by what they are for."""


def contents(index: str) -> str:
    """Hidden tables of contents for the sections of the first page: what its lists link to, in their order."""
    made = ""
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        caption, _, body = section.partition("\n")
        pages = re.findall(r"^- \[[^]]+\]\(([^)#]+)\.md\)", body, re.MULTILINE)
        made += "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])
    return made


def settings() -> str:
    """A table of the settings of each section, with defaults and meanings."""
    made = []
    for name in SECTIONS:
        found: dict[type, list[str]] = {}
        for one in kind.every():
            if name not in one.lacks:
                found.setdefault(type(getattr(next(iter(one.presets.values())), name)), []).append(one.name)
        shared = next(base for base in next(iter(found)).__mro__ if all(issubclass(one, base) for one in found))
        known = [(each.name, each.doc) for each in settings_of(shared)]
        made += [f"## {name}", inspect.getdoc(shared) or "", _settings_table(name, settings_of(shared))]
        for section, kinds in found.items():
            if own := [each for each in settings_of(section) if (each.name, each.doc) not in known]:
                made += [f"### {name}, for {', '.join(kinds)}", _settings_table(name, own)]
    return "\n\n".join(made)


def _settings_table(name: str, settings: Iterable[Setting]) -> str:
    rows = [[f"`{name}.{each.name}`", _value(each.value), _plain(each.doc)] for each in settings]
    return _table(["setting", "default", "meaning"], rows)


def presets() -> str:
    """A table of the settings in which presets differ, a column per preset."""
    values = {
        preset: {
            f"{part}.{name}": _value(value)
            for part, section in vars(config).items()
            for name, value in vars(section).items()
        }
        for preset, config in PRESETS.items()
    }
    names = dict.fromkeys(name for each in values.values() for name in each)
    differing = [name for name in names if len({each.get(name, "") for each in values.values()}) > 1]
    rows = [[f"`{name}`", *(each.get(name, "") for each in values.values())] for name in differing]
    return _table(["setting", *(f"`{preset}`" for preset in values)], rows)


def commands() -> str:
    """For each command what it does, its usage and its options; the settings of ``hmrnn train`` are left out."""
    made = []
    for command in ARGUMENTS:
        of = arguments_of(command)
        parser = parser_of(of, f"hmrnn {command}", TrainArguments(PRESETS["text"]) if command == "train" else None)
        usage = parser.format_usage().removeprefix("usage: ").strip()
        what, *examples = (parser.description or "").split("\n  ")
        made += [f"## hmrnn {command}", _plain(what), f"```text\n{usage}\n```"]
        made.append("\n".join(["```bash", *examples, "```"]))
        groups = [group for group in parser._action_groups if group.title not in SECTIONS]
        actions = [action for group in groups for action in group._group_actions if action.dest != "help"]
        rows = [[_words(action), _plain((action.help or "").replace("%%", "%"))] for action in actions]
        made.append(_table(["argument", "meaning"], rows))
    return "\n\n".join(made)


def code(equation: str) -> str:
    """The lines of the reference whose comment begins with the number of an equation, such as (5)."""
    lines = inspect.getsource(reference.layer_step).splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith(f"    # {equation}"))
    last = next(k for k, line in enumerate([*lines, ""]) if k > first and not line)
    return "\n".join(["```python", *(line[4:] for line in lines[first:last]), "```"])


def names() -> str:
    """The public classes and functions with their docstrings: of hmrnn, of hmrnn.nn, and the baselines."""
    public = []
    for heading, group in PUBLIC.items():
        public += [f"## {heading}", *(_documented(f"hmrnn.{name}", getattr(hmrnn, name)) for name in group)]
    modules = {name: value for name, value in vars(hmrnn.nn).items() if _made_in(value, "hmrnn.nn.")}
    baselines: dict[str, Any] = {}
    for module in pkgutil.iter_modules(hmrnn.nn.baselines.__path__, "hmrnn.nn.baselines."):
        found = vars(importlib.import_module(module.name)).items()
        baselines |= {name: value for name, value in found if _made_in(value, module.name)}
    return "\n\n".join(
        [
            *public,
            "## hmrnn.nn",
            *(_documented(f"hmrnn.nn.{name}", value) for name, value in sorted(modules.items())),
            "## hmrnn.optim",
            _documented("hmrnn.optim.Muon", Muon),
            "## hmrnn.nn.baselines",
            *(_documented(f"{value.__module__}.{name}", value) for name, value in sorted(baselines.items())),
        ]
    )


def _made_in(value: Any, module: str) -> bool:
    """Whether ``value`` is a public class of a module whose name begins with ``module``."""
    return inspect.isclass(value) and not value.__name__.startswith("_") and value.__module__.startswith(module)


def _documented(name: str, value: Any) -> str:
    if not inspect.isclass(value):
        return f"```{{eval-rst}}\n.. autofunction:: {name}\n```"
    members = "\n   :members:\n   :inherited-members: Module, Optimizer, tuple, int, Enum, BaseException"
    return f"```{{eval-rst}}\n.. autoclass:: {name}{members}\n```"


def _words(action: Any) -> str:
    """An argument as it is typed: ``-m, --model MODEL``."""
    if not action.option_strings:
        return f"`{action.metavar}`"
    values = "" if action.nargs == 0 else f" {action.metavar}" + {"*": " ..."}.get(action.nargs, "")
    return ", ".join(f"`{flag}{values}`" for flag in action.option_strings)


def _value(value: Any) -> str:
    """A value as it is given after a flag; "on" or "off" for a switch."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " ".join(map(_value, value))
    return "" if value in (None, dataclasses.MISSING) else f"{value:g}" if isinstance(value, float) else str(value)


def _plain(text: str) -> str:
    """Text in which no character means anything to Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>#|$])", r"\\\1", text)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
