"""Language models that act: engines, solver and curators. No Ray. Empty until the engines come."""
