"""Sweeps: trials over a space of settings.

`space.py` has the settings and their values, `plan.py` the search; `results.py` reads the trials, `importance.py` ranks
the parameters and `pictures.py` draws both.
"""
