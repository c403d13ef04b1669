"""Exams: a model answers the items of a suite, and its scores are compared with those of the base. No Ray.

`sitting.py` asks and stores, `report.py` counts and writes; `envs/exams.py` has the interface of a suite.
"""
