"""Comparisons: every arm with every seed.

`plan.py` plans and starts the trials, `collect.py` reads them, `measures.py` measures each trial and compares arms;
`findings.py` and `pictures.py` present the results for `report.py`. `merge.py` joins comparisons that were run in
pieces.
"""
