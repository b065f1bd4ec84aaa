"""Estimator: scikit-learn's conventions, without importing scikit-learn."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from typing import Any, ClassVar, Literal, Self

import numpy as np

from hmrnn.errors import InputError


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


@dataclasses.dataclass(repr=False, eq=False)
class Estimator:
    """Parameters are the fields of a dataclass, stored unchanged; ``fit`` sets attributes that end in ``_``."""

    _kind: ClassVar[Literal["classifier", "regressor"] | None] = None
    """What scikit-learn calls the kind of estimator."""
    _takes_rows: ClassVar[bool] = False
    """Whether ``fit`` takes an array (n, time) as n series of one channel, or as one of several channels."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change some of them; returns self."""
        names = self.get_params()
        for name in params:
            if name not in names:
                raise InputError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(names)}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def get_metadata_routing(self) -> Any:
        """What scikit-learn may pass to the methods beside X and y, and what was asked for: ``set_fit_request``."""
        from sklearn.utils.metadata_routing import MetadataRequest  # type: ignore

        if hasattr(self, "_metadata_request"):
            return self._metadata_request
        request = MetadataRequest(owner=type(self).__name__)
        for method in ("fit", "predict", "score"):
            for name in {*inspect.signature(getattr(self, method)).parameters} - {"X", "y"}:
                getattr(request, method).add_request(param=name, alias=None)
        return request

    def _request(self, method: str, **asked: bool | str | None) -> Self:
        request = self.get_metadata_routing()
        if unknown := {*asked} - {*getattr(request, method).requests}:
            raise TypeError(f"{type(self).__name__}.{method} takes no {', '.join(unknown)}")
        for name, alias in asked.items():
            getattr(request, method).add_request(param=name, alias=alias)
        self._metadata_request = request  # which clone copies
        return self

    set_fit_request = functools.partialmethod(_request, "fit")
    set_predict_request = functools.partialmethod(_request, "predict")
    set_score_request = functools.partialmethod(_request, "score")

    def __repr__(self) -> str:
        given = ((field.name, repr(getattr(self, field.name)), field.default) for field in dataclasses.fields(self))
        changed = [f"{name}={value}" for name, value, default in given if value != repr(default)]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

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


def seed_of(given: Any) -> Any:
    """A seed from a ``random_state`` as scikit-learn takes it."""
    state = np.random.RandomState() if given is None else given
    return int(state.randint(2**31)) if isinstance(state, np.random.RandomState) else state
