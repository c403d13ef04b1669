"""Comparisons: every arm with every seed.

`plan.py` says what is run. What was found is read by `collect.py`; `measures.py` and `threshold.py` measure each trial,
`results.py` compares arms; `table.py`, `findings.py`, `timeline.py` and `pictures.py` tell it, which `report.py` puts
together. `merge.py` joins comparisons that were run in pieces.
"""
