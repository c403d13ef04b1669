"""Old names of settings and options, which still work, with the names that they have."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from envs.errors import UserError

KEYS: Mapping[str, Mapping[str, str]] = MappingProxyType({"environment": {"bfcl_split": "division"}})
"""Section → old key → key."""

OFFICIAL_RESULTS = "--bfcl-results"
"""The old name of `--official-results` of `seal-ray evaluate`."""


def current(section: str, key: str) -> str:
    """The name of a key, which may be given by an old one."""
    return KEYS.get(section, {}).get(key, key)


def with_current_keys(section: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """A section's values under the names that their keys have. Raises `UserError` where a setting is given twice."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = current(section, str(key))
        if name in found:
            old = next(each for each in values if current(section, str(each)) == name != each)
            raise UserError(f"{section}.{old}: this is the old name of {section}.{name}; give one of them.")
        found[name] = value
    return found
