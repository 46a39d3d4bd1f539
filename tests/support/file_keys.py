"""Every key that a configuration file may have, out of the models that read it."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel

from stream_dp.config.file_schema import VIEW_MODELS, Config


def file_keys() -> set[str]:
    """The keys of the file and of all its sections."""
    return {key for model in [*_sections(Config), *_sections(*VIEW_MODELS.values())] for key in model.model_fields}


def _sections(*annotations: Any) -> set[type[BaseModel]]:
    found: set[type[BaseModel]] = set()
    for one in annotations:
        if isinstance(one, type) and issubclass(one, BaseModel):
            found |= {one, *_sections(*(field.annotation for field in one.model_fields.values()))}
        else:
            found |= _sections(*get_args(one))
    return found
