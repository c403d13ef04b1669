"""The RLlib algorithm, everything Ray, and the command line."""
