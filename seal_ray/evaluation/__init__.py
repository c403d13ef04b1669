"""Evaluation: a model plays a split on the plain interface, and the outcome is stored and counted. No Ray.

`plan.py` has the tasks and settings, `records.py` plays and counts, and `suites.py` has the suites of training runs.
"""
