"""The settings of a run: `schema.py` defines them, `presets.py` reads them, `sections.py` checks them.

`resolve.py` turns them into a `RunSpec`, and `reference.py` writes `docs/config.md`.
"""
