"""The command line `seal-ray`, one module a command. `main` ends a user's mistake with exit code 2."""

from seal_ray.cli.app import main

__all__ = ["main"]
