"""A training run from begin to end: `job.py` trains and writes down, `checkpoints.py` keeps and finds what it can go on
from, `export.py` writes models that others can load, `cluster.py` connects to Ray.
"""
