"""The command line `seal-ray`, one module a command. `main` ends a user's mistake with exit code 2."""


def main() -> None:
    """Runs the command line, whose modules are imported here: the core of an engine imports this one alone."""
    from seal_ray.cli.app import main as run

    run()


__all__ = ["main"]
