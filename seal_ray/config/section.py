"""`Section`: a group of settings, and the types that settings share."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from policies.engine import LEAST_TEMPERATURE

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
Rank = Annotated[int, Field(ge=0, le=512)]
"""Of a LoRA adapter; vLLM takes 512 at most."""
Temperature = Annotated[float, Field(ge=LEAST_TEMPERATURE)]
NotNegative = Annotated[float, Field(ge=0.0)]
Settings = dict[str, Any]  # of the object that another key names, beside those of its section


S = TypeVar("S", bound="Section")


class Section(BaseModel):
    """A group of settings. Values are checked strictly: no text is taken for a number."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
