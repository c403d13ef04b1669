"""Evaluation: a model plays a split on the plain interface, and the outcome is stored and counted. No Ray.

`suites.py` has the tasks, the settings and the suites of training runs; `records.py` plays and counts.
"""
