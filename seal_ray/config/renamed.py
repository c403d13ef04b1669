"""Settings under the names that earlier versions had, which files and run folders may still have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RENAMED: Mapping[tuple[str, str], str] = {("environment", "bfcl_split"): "division"}
"""Section and key of an earlier version → the key."""
_DEFAULTS: Mapping[tuple[str, str], Any] = {("environment", "bfcl_split"): "scenario"}
"""Values that meant the default there, and had to be written down with it."""
FORMER_RESULTS = "--bfcl-results"
"""The former name of the option --official-results of `seal-ray evaluate`."""


def current(section: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A section's values by the keys of this version."""
    found = {}
    for key, value in settings.items():
        name = _RENAMED.get((section, str(key)), key)
        found[name] = None if (section, key) in _DEFAULTS and value == _DEFAULTS[section, key] else value
    return found


def current_attribute(name: str) -> str:
    """A config's attribute by the name of this version."""
    return {f"{section}_{key}": f"{section}_{new}" for (section, key), new in _RENAMED.items()}.get(name, name)
