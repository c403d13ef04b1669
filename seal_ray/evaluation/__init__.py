"""Evaluation: a model plays a split on the plain interface, and the outcome is counted, stored and compared. No Ray.

`plan.py` says what is played, `records.py` plays, stores and counts it, and `suites.py` has what training runs play.
"""
