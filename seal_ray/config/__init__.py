"""The settings of a run, as values: `sections.py` has each of them. `seal_ray/algorithm/config.py` is RLlib's config.

`presets.py` reads YAML files (`yaml_text.py`) and `section.key=value` words; `renamed.py` has the former names of
settings. `agents.py` derives each agent's settings, `memory.py` estimates the memory of a run. `fields.py` describes in
plain English what a setting allows, for error messages and for `reference.py`, which writes `docs/config.md`.
"""
