"""The learning interface Ω: the value, how it is shown, its JSON form, and the difference of two."""

from envs.interface.value import CueKind, Interface, RecoveryLevel, SchemaCue, interface_diff

__all__ = ["CueKind", "Interface", "RecoveryLevel", "SchemaCue", "interface_diff"]
