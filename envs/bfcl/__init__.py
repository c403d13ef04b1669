"""The BFCL V3 multi-turn benchmark: its package, tasks, tools, simulators and splits."""
