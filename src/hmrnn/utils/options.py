"""Options of commands: dataclasses whose fields are flags; a kind of data adds those that only it has."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, ClassVar

from hmrnn.errors import InputError, did_you_mean, no_file


def option(default: Any, metavar: str = "", alias: str = "", **metadata: Any) -> Any:
    """A field of a command's options. ``metadata`` may hold

    ``positional``: True for an argument without a flag; ``file``: True if the value names files that must exist;
    ``piped``: True if an option of files stands for standard input, "-", where none is named;
    ``needs``: the option without which this one has no effect; ``without``: those that it cannot be combined with;
    ``least`` and ``most``: the bounds of a number; ``model``: the model of the command if it has this option, and no
    other is given.
    """
    return dataclasses.field(default=default, metadata={"metavar": metavar, "alias": alias, **metadata})


def flag(setting: str) -> str:
    """The flag of a setting: ``train.log_every`` -> ``--train.log-every``."""
    return f"--{setting.replace('_', '-')}"


@dataclasses.dataclass(frozen=True)
class Options:
    """The base of a command's options."""

    FLAGS: ClassVar[dict[str, str]] = {}
    """The command's flags for settings of a run that errors are about."""

    @classmethod
    def called(cls, setting: str) -> str:
        """How the command line calls a setting of a run."""
        own = any(field.name == setting for field in dataclasses.fields(cls))
        return flag(setting) if own else cls.FLAGS.get(setting, setting)

    def given(self) -> list[dataclasses.Field[Any]]:
        """The fields whose value is not the default."""
        return [field for field in dataclasses.fields(self) if getattr(self, field.name) not in (field.default, ())]

    def chosen(self, *names: str) -> dict[str, Any]:
        """Those of these options that have a value."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def check(self) -> None:
        """Raise InputError if the options cannot be right, as far as that is known without torch."""
        given = {field.name: field for field in self.given()}
        for name, field in given.items():
            needed, value = field.metadata.get("needs"), getattr(self, name)
            if needed and needed not in given:
                raise InputError(f"{named(field)} is for {flag(needed)}; give both")
            for other in field.metadata.get("without", ()):
                if other in given:
                    raise InputError(f"{named(field)} cannot be combined with {named(given[other])}; leave one out")
            least, most = field.metadata.get("least"), field.metadata.get("most")
            if least is not None and not least <= value <= (value if most is None else most):
                at_most = "" if most is None else f" and at most {most}"
                raise InputError(f"{named(field)} must be at least {least}{at_most}; got {value}")
            if field.metadata.get("file") and value != ("-",):
                check_files(*([value] if isinstance(value, str) else value))


@dataclasses.dataclass(frozen=True)
class OneSequence(Options):
    """The option of commands that read one sequence."""

    line: str | None = option(None, "LINE")
    """The sequence of --file, or of the validation part, by its number, or its name if it has one; the first if not
    given."""


def named(field: dataclasses.Field[Any]) -> str:
    """How messages call an option."""
    return f"a {field.name}" if field.metadata.get("positional") else flag(field.name)


def check_files(*paths: str) -> None:
    """Raise InputError if a file does not exist."""
    for path in paths:
        if not os.path.exists(os.path.expanduser(path)):
            words = "; text itself is read from standard input" if len(path.split()) > 1 else ""
            raise no_file(os.path.expanduser(path), did_you_mean(path, (), files=True) or words)
