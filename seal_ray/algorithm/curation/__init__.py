"""The curator's side of a run: `start.py` makes it, `curation.py` proposes and judges, `window.py` holds the values.

`guard.py` holds proposals against the tasks of the run.
"""
