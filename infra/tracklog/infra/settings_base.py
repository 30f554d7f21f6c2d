"""What every group of settings is made of."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["HOME_DEFAULT", "Count", "Positive", "Section"]

HOME_DEFAULT: Final = ".tracklog"
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A group of settings for one concern."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
