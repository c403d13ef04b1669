"""The curator's side of a run: `curation.py` makes it, proposes and judges; `rewards.py` has an interface's value."""
