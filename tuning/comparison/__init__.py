"""Comparisons: every arm with every seed.

`plan.py` says what is run. What was found is read by `collect.py`, measured by `measures.py`, and told by
`pictures.py` and `report.py`.
"""
