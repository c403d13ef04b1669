"""Comparisons: every arm with every seed.

`plan.py` plans and starts the trials, `collect.py` reads them; `measures.py` and `threshold.py` measure each trial,
`results.py` compares arms; `table.py`, `findings.py`, `timeline.py` and `pictures.py` present the results for
`report.py`. `merge.py` joins comparisons that were run in pieces.
"""
