"""What settings may be: types with bounds, what a setting needs of others, and one check for all."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from hmrnn.errors import InputError

LARGEST = 2**31 - 1
LARGEST_NUMBER = 1e15  # JSON has no infinity, and float32 holds no products of larger numbers

Natural = Annotated[int, Meta(ge=0, le=LARGEST)]
Count = Annotated[int, Meta(ge=1, le=LARGEST)]
Seed = Annotated[int, Meta(ge=0, le=2**62)]
Number = Annotated[float, Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
NotNegative = Annotated[float, Meta(ge=0, le=LARGEST_NUMBER)]
Positive = Annotated[float, Meta(gt=0, le=LARGEST_NUMBER)]
Proportion = Annotated[float, Meta(ge=0, le=1)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Text = Annotated[str, Meta(pattern=r"\A[^\ud800-\udfff]*\Z")]
"""Text that UTF-8 can encode; the names of files need not be."""


class Needs(NamedTuple):
    """Stands in the type of a setting that has an effect only if another ``setting`` has one of these ``values``.

    Without values that setting must be on: neither zero nor empty.
    """

    setting: str
    values: tuple[Any, ...] = ()
    what: str = ""
    """How messages call what is needed, if not by the setting."""
    of: tuple[Any, ...] = ()
    """The values that need it, if not all but the default do."""


def network(*names: str) -> Needs:
    """Stands in the type of a setting that only these networks have."""
    return Needs("model.rnn", names)


HM_LSTM = network("hm-lstm")
MOVING = network("hm-lstm", "hrnn")
DETECTING = Needs("model.detectors", what="networks of several layers with boundary detectors")
BY_GRADIENT = Needs("model.by_gradient", what="training by gradient, without model.ridge")


types_of: Any = functools.cache(functools.partial(get_type_hints, include_extras=True))


class Setting(NamedTuple):
    """A setting of a config, by its full name."""

    name: str
    kind: Any
    needs: tuple[Any, ...]
    default: Any
    value: Any

    def unmet(self, config: Any) -> Needs | None:
        """What it needs and ``config`` does not have."""
        for needed in self.needs:
            if isinstance(needed, Needs) and (not needed.of or self.value in needed.of):
                given = value_of(config, needed.setting)
                if given not in needed.values if needed.values else not given:
                    return needed
        return None


def settings_of(config: Any) -> Iterator[Setting]:
    """The settings of a config; one needs what its section needs."""
    for part, section in vars(config).items():
        if dataclasses.is_dataclass(section):
            shared = getattr(types_of(type(config))[part], "__metadata__", ())
            for field in dataclasses.fields(section):
                kind = types_of(type(section))[field.name]
                needs = (*shared, *getattr(kind, "__metadata__", ()))
                yield Setting(f"{part}.{field.name}", kind, needs, field.default, getattr(section, field.name))


def value_of(config: Any, name: str) -> Any:
    """The value of a setting that is named in full."""
    part, _, field = name.partition(".")
    return getattr(getattr(config, part), field)


def checked(name: str, value: Any, kind: Any) -> Any:
    """``value`` as a type has it, such as a tuple for a list; InputError about ``name`` if the type forbids it."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        wrong = str(error).partition(" - at")[0].replace("`", "").replace("Expected", "expected")
        kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        choices = f"expected one of {', '.join(map(str, get_args(kind)))}" if get_origin(kind) is Literal else ""
        raise InputError(choices or wrong, setting=name, value=repr(value)) from None


def check_types(config: Any) -> None:
    """Raise InputError about a setting that its type does not allow."""
    for name, kind, _, _, value in settings_of(config):
        if checked(name, value, kind) != value:
            raise InputError("expected a tuple", setting=name, value=repr(value))


def check_needs(config: Any) -> None:
    """Raise InputError about a setting that lacks what it needs."""
    for one in settings_of(config):
        if one.value != one.default and (needed := one.unmet(config)):
            wanted = needed.what or f"{needed.setting} {' or '.join(map(str, needed.values))}".rstrip()
            that = "" if needed.what else f"; that is {value_of(config, needed.setting) or 'not set'}"
            value = one.value if needed.of else None
            raise InputError(f"is for {wanted}{that}, so leave it out", setting=one.name, value=value)


def lacking(name: str, lacks: Collection[str]) -> bool:
    """Whether a setting, or its section, is one of those that a kind of data lacks."""
    return name in lacks or name.partition(".")[0] in lacks


def check_lacking(config: Any, lacks: Collection[str], what: str) -> None:
    """Raise InputError about a setting, or a value of one, that has no effect on this kind of data."""
    for name, _, _, default, value in settings_of(config):
        if (lacking(name, lacks) and value != default) or f"{name} {value}" in lacks:
            raise InputError(f"has no effect on data of the kind {what}; leave it out", setting=name, value=value)
