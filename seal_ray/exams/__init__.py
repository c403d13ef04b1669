"""Sitting an exam: a model is asked the items of a suite, what it says is kept, and scores stand beside the base's.

`sitting.py` asks and keeps, `report.py` counts and writes; `envs/exams.py` says what a suite is. No Ray.
"""
