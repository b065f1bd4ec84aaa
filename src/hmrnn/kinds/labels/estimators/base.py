"""Estimator: scikit-learn's conventions, without importing scikit-learn."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any, Literal, TypeVar

import numpy as np

from hmrnn.errors import InputError

E = TypeVar("E", bound="Estimator")


class NotFittedError(InputError, AttributeError):
    """``fit`` has not been called yet. Once scikit-learn is imported, it is also that package's error."""


def not_fitted(message: str) -> NotFittedError:
    """The error to raise."""
    theirs = sys.modules.get("sklearn.exceptions")
    return NotFittedError(message) if theirs is None else _of_both(theirs.NotFittedError)(message)


@functools.cache
def _of_both(theirs: type) -> Any:
    # a class made here could not be pickled, as it has no name in a module
    return type("NotFittedError", (NotFittedError, theirs), {"__reduce__": lambda self: (not_fitted, self.args)})


class Estimator:
    """Parameters are the arguments of ``__init__``, stored unchanged; ``fit`` sets attributes that end in ``_``."""

    _kind: Literal["classifier", "regressor"] | None = None
    """What scikit-learn calls the kind of estimator."""
    _takes_rows = False
    """Whether ``fit`` takes an array (n, time) as n series of one channel, or as one of several channels."""

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def _keep(self, arguments: dict[str, Any]) -> None:
        """Store the arguments of ``__init__``, which are in ``locals()`` there, unchanged."""
        for name in self._names():
            setattr(self, name, arguments[name])

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self: E, **params: Any) -> E:
        """Change some of them; returns self."""
        names = self._names()
        for name in params:
            if name not in names:
                raise InputError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(names)}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        given = {name: repr(value) for name, value in self.get_params().items()}
        changed = [f"{name}={value}" for name, value in given.items() if value != repr(defaults[name].default)]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise not_fitted(f"this {type(self).__name__} is not fitted yet; call fit first")

    def __sklearn_tags__(self) -> Any:
        """The estimator's tags, which only scikit-learn asks for."""
        from sklearn import utils  # type: ignore

        return utils.Tags(
            estimator_type=self._kind,
            target_tags=utils.TargetTags(required=self._kind is not None, multi_output=self._kind == "regressor"),
            transformer_tags=None,
            classifier_tags=utils.ClassifierTags() if self._kind == "classifier" else None,
            regressor_tags=utils.RegressorTags() if self._kind == "regressor" else None,
            input_tags=utils.InputTags(two_d_array=self._takes_rows, three_d_array=True, string=self._kind is not None),
        )


def is_whole(value: Any) -> bool:
    """Whether this is a whole number, and no bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def seed_of(given: Any) -> int:
    """A seed from a ``random_state`` as scikit-learn takes it."""
    if given is None:
        given = np.random.RandomState()
    if isinstance(given, np.random.RandomState):
        return int(given.randint(2**31))
    if not is_whole(given) or not 0 <= given < 2**62:
        raise InputError(
            f"random_state must be None, a whole number of 0 or more, or a NumPy RandomState; got {given!r}"
        )
    return int(given)
