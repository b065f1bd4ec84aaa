"""What settings may be: types with bounds, what a setting needs of others, and one check for all."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args, get_origin, get_type_hints

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
RATED = network("hm-lstm", "h-net")
DETECTING = Needs("model.detectors", what="networks of several layers with boundary detectors")
BY_GRADIENT = Needs("model.by_gradient", what="training by gradient, without model.ridge")


types_of: Any = functools.cache(functools.partial(get_type_hints, include_extras=True))


class Setting(NamedTuple):
    """A setting of a config, by its full name."""

    name: str
    kind: Any
    field: dataclasses.Field[Any]
    value: Any
    owner: type
    """The dataclass that the field belongs to."""
    needs: tuple[Any, ...]

    @property
    def doc(self) -> str:
        """The docstring of the field, which is read from the source, after the networks that have it."""
        own = getattr(self.kind, "__metadata__", ())
        networks = (one.values for one in own if isinstance(one, Needs) and one.setting == "model.rnn" and not one.of)
        return "".join(f"{', '.join(names)}: " for names in networks) + _docs(self.owner).get(self.field.name, "")

    def unmet(self, config: Any) -> Needs | None:
        """What it needs and ``config`` does not have."""
        for needed in self.needs:
            if isinstance(needed, Needs) and (not needed.of or self.value in needed.of):
                given = value_of(config, needed.setting)
                if given not in needed.values if needed.values else not given:
                    return needed
        return None


@functools.cache
def _docs(kind: type) -> dict[str, str]:
    """The docstrings of a dataclass's fields: the strings that follow them in the source."""
    found = {}
    for base in (base for base in reversed(kind.__mro__[:-1]) if inspect.get_annotations(base)):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        for field, after in itertools.pairwise(cast(ast.ClassDef, definition).body):
            if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(field.target, ast.Name):
                found[field.target.id] = " ".join(str(ast.literal_eval(after.value)).split())
    return found


def settings_of(kind: type, value: Any = None, section: str = "", shared: tuple[Any, ...] = ()) -> Iterator[Setting]:
    """The settings of a dataclass, with those of ``value``; of a nested one they are ``section.field``.

    One needs what its section needs.
    """
    for field in dataclasses.fields(kind):
        one, hint = getattr(value, field.name, field.default), types_of(kind)[field.name]
        needs = getattr(hint, "__metadata__", ())
        part = type(one) if dataclasses.is_dataclass(one) else get_args(hint)[0] if needs else hint
        if dataclasses.is_dataclass(part):
            yield from settings_of(part, one, f"{field.name}.", needs)
        else:
            yield Setting(section + field.name, hint, field, one, kind, (*shared, *needs))


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
    for name, kind, _, value, *_ in settings_of(type(config), config):
        if "." in name and checked(name, value, kind) != value:
            raise InputError("expected a tuple", setting=name, value=repr(value))


def lacking(name: str, lacks: Collection[str]) -> bool:
    """Whether a setting, or its section, is one of those that a kind of data lacks."""
    return name in lacks or name.partition(".")[0] in lacks


def check_uses(config: Any, lacks: Collection[str], what: str) -> None:
    """Raise InputError about a setting that lacks what it needs, or that has no effect on this kind of data."""
    for one in settings_of(type(config), config):
        given = one.value != one.field.default
        if given and (needed := one.unmet(config)):
            wanted = needed.what or f"{needed.setting} {' or '.join(map(str, needed.values))}".rstrip()
            that = "" if needed.what else f"; that is {value_of(config, needed.setting) or 'not set'}"
            value = one.value if needed.of else None
            raise InputError(f"is for {wanted}{that}, so leave it out", setting=one.name, value=value)
        if (given and lacking(one.name, lacks)) or f"{one.name} {one.value}" in lacks:
            why = f"has no effect on data of the kind {what}; leave it out"
            raise InputError(why, setting=one.name, value=one.value)
