"""What models have in common that stand around another one: its name, its sampling, and itself under another name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from tracklog.producers.models import Model, ModelAnswer, ModelRequest, OnToken

__all__ = ["ModelAround"]


class ModelAround(ABC):
    """Shows what `model` shows. Subclasses say how it is asked."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def sampling(self) -> Mapping[str, str]:
        """As the model's own; empty when it does not say it."""
        sampling: Mapping[str, str] = getattr(self._model, "sampling", {})
        return sampling

    @property
    def named(self) -> Callable[[str], Model]:
        """As the model's own, when it has one. Raises AttributeError."""
        named: Callable[[str], Model] = getattr(self._model, "named")  # noqa: B009 - not every model can
        return lambda name: self._around(named(name))

    @abstractmethod
    def _around(self, model: Model) -> Model:
        """The same around another model."""

    @abstractmethod
    async def reply(self, request: ModelRequest, *, on_token: OnToken | None = None) -> ModelAnswer:
        """See Model."""
