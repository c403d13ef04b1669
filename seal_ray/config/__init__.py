"""The settings of a run, as values: `sections.py` has each of them. `seal_ray/algorithm/config.py` is RLlib's config.

`presets.py` reads YAML files (`yaml_text.py`) and `section.key=value` words. `checks.py` looks at settings that must
fit together, `memory.py` at whether a machine can hold the run. `fields.py` says in plain English what a setting
allows, for the sentences about mistakes and for `reference.py`, which writes `docs/config.md`.
"""
