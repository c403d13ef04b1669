"""The learning interface Ω: its value, how it is shown, its JSON form, and the leak guard."""

from envs.interface.value import CueKind, Interface, RecoveryLevel, SchemaCue, interface_diff

__all__ = ["CueKind", "Interface", "RecoveryLevel", "SchemaCue", "interface_diff"]
