"""The settings of a run, as values: `sections.py` has each of them. `seal_ray/algorithm/config.py` is RLlib's config.

`presets.py` reads YAML files and `section.key=value` words, by `yaml_text.py`. `agents.py` derives each agent's
settings, `memory.py` estimates the memory of a run. `fields.py` has the former names of settings, and says in plain
English what one allows, for error messages and for `reference.py`, which writes `docs/config.md`.
"""
