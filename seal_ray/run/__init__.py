"""A training run from start to end: `job.py` trains, `recorder.py` writes rounds down, `checkpoints.py` keeps and finds
what it can go on from, `export.py` writes models that others can load, `cluster.py` connects to Ray.
"""
