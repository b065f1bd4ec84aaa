"""What the arguments of all commands share, and those of commands that use a model or read a text."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, ClassVar, Literal

from hmrnn.cli.parse import flag, option
from hmrnn.cli.terminal import warn
from hmrnn.errors import InputError, did_you_mean, no_file
from hmrnn.pretrained import bundled
from hmrnn.utils.files import seems_named

KINDS = {"text": "text", "strokes": "handwriting"}
"""How messages call what a model reads."""


class Arguments:
    """What all commands share: checks that follow from how the fields are declared."""

    def given(self) -> list[dataclasses.Field[Any]]:
        """The fields whose value is not the default."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return [field for field in fields if getattr(self, field.name) not in (field.default, ())]

    FLAGS: ClassVar[dict[str, str]] = {}
    """The command's flags for settings of a run that errors are about."""

    @classmethod
    def called(cls, setting: str) -> str:
        """How the command line calls a setting of a run."""
        own = any(field.name == setting for field in dataclasses.fields(cls))  # type: ignore[arg-type]
        return flag(setting) if own else cls.FLAGS.get(setting, setting)

    def check(self) -> None:
        """Raise InputError if the arguments cannot be right."""
        for field in self.given():
            needed, value = field.metadata.get("needs"), getattr(self, field.name)
            if needed and not getattr(self, needed):
                raise InputError(f"{flag(field.name)} is for {flag(needed)}; give both")
            if field.metadata.get("file"):
                check_files(*([value] if isinstance(value, str) else value))
            if field.name == "model":
                for model in [value] if isinstance(value, str) else value:
                    bundled.find(model)

    def check_reads(self, reads: str) -> None:
        """Raise InputError if an option is given that is not for models of ``reads``, "text" or "strokes"."""
        for field in self.given():
            kind = field.metadata.get("reads")
            if kind and kind != reads:
                raise InputError(
                    f"{called(field)} is for {KINDS[kind]}, and this is a model of {KINDS[reads]}; leave it out"
                )


def called(field: dataclasses.Field[Any]) -> str:
    """How messages call an argument."""
    return f"a {field.name}" if field.metadata.get("positional") else flag(field.name)


def check_files(*paths: str) -> None:
    """Raise InputError if a file does not exist."""
    for path in paths:
        if not os.path.exists(os.path.expanduser(path)):
            raise no_file(os.path.expanduser(path), did_you_mean(path, (), files=True))


def check_folder(name: str, path: str) -> None:
    """Raise InputError if the folder of a file to write does not exist."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise InputError(f"the folder of {name} {path} does not exist: make {folder}, or choose another {name}")


@dataclasses.dataclass(frozen=True)
class ModelArguments(Arguments):
    model: str = option(bundled.DEFAULT, "MODEL", "-m")
    """A run directory (its best checkpoint is used), a checkpoint directory, or the name of a bundled model."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:N, or auto."""


@dataclasses.dataclass(frozen=True)
class TextArguments(ModelArguments):
    FLAGS: ClassVar = {"data.path": "--file"}
    text: str | None = option(None, "[TEXT]", positional=True)
    """The text. Standard input is read for -, and if neither a text nor --file is given."""
    file: str | None = option(None, "FILE", file=True)
    """A file to read instead, which may be packed (.xz, .gz, .bz2). A line end at the very end is dropped."""
    unknown: Literal["replace", "skip", "refuse"] = option("replace", reads="text")
    """What to do with symbols that training never showed and that cannot be written plainly: read them as the model's
    unknown symbol, or as a space if it has none; leave them out; or stop with an error."""
    condition: str | None = option(None, "CLASS")
    """For a model that was trained with data.condition: the class, or numbers separated by commas."""

    def check(self) -> None:
        super().check()
        if self.text is not None and self.file is not None:
            raise InputError("give a text or --file, not both")

    def source(self) -> tuple[str | None, str | None]:
        """The text and the file to read, one of them or none; a text that names an existing file is that file."""
        if self.text not in (None, "-") and os.path.isfile(os.path.expanduser(self.text)):
            warn(f"hmrnn: note: {self.text} is a file, which is read; to read these letters, use standard input")
            return None, self.text
        if self.text is not None and seems_named(self.text):
            warn(f"hmrnn: note: there is no file {self.text}, so these letters are read")
        return self.text, self.file
