"""Language models that act: engines, solver and curators. No Ray."""
