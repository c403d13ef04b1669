"""A training run: `recorder.py` trains and writes rounds down, `checkpoints.py` keeps and finds what it can go on from,
`export.py` and `release.py` write models that others can load, `storage.py` copies, `cluster.py` connects to Ray.
"""
