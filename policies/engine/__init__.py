"""Engines: one interface, several ways to sample from a model."""

from policies.engine.types import (
    BASE,
    LEAST_TEMPERATURE,
    Adapter,
    BadRequest,
    DeliveryError,
    Engine,
    EngineDead,
    EngineReport,
    Finish,
    GenRequest,
    GenResult,
)

__all__ = [
    "BASE",
    "LEAST_TEMPERATURE",
    "Adapter",
    "BadRequest",
    "DeliveryError",
    "Engine",
    "EngineDead",
    "EngineReport",
    "Finish",
    "GenRequest",
    "GenResult",
]
