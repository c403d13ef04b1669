"""API-Bank (Li and others 2023, arXiv 2304.08244), levels 1 and 2, from a folder that the user names.

Nothing of the benchmark is included. Its simulators run in a child process, `worker.py`.
"""
