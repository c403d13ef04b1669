"""Sweeps: trials over a space of settings.

`space.py` says which settings take which values, `plan.py` how they are searched. What was found is read by
`results.py`, weighed by `importance.py` and drawn by `pictures.py`.
"""
