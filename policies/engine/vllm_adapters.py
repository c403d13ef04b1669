"""Which adapters vLLM holds, which requests use them, and when an old one may go.

vLLM loads an adapter that it has evicted from its file again, and fails where the file was removed. It evicts without
notice, the least recently used first. So every adapter in its slots is counted here, and none is added before there is
room.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from policies.engine.types import Adapter, BadRequest, DeliveryError


@dataclass(slots=True, eq=False)
class Held:
    """One version of a policy's adapter in the engine, under a number of its own, with a count of its users.

    A new name for each version keeps the prefix cache of the old one from being used: it is keyed by name.
    """

    policy: str
    version: int
    number: int
    users: int = 0

    @property
    def name(self) -> str:
        return f"{self.policy}@{self.number}"


class AdapterSlots:
    """The engine's slots for adapters: two for each policy, so that requests under way end with the older version."""

    def __init__(self, policies: int) -> None:
        self.slots = 2 * policies
        self.current: dict[str, Held] = {}
        self.delivered: dict[str, tuple[Adapter, int]] = {}
        """The last adapter that arrived whole, and its version: what a restart brings back."""
        self.policies: set[str] = set()
        """Those of which an adapter was ever sent."""
        self._held: list[Held] = []
        self._numbers = itertools.count(1)
        self._released = asyncio.Event()

    def check_policy(self, policy: str) -> None:
        """Raises `BadRequest` where `policy` can have no adapter."""
        if policy not in self.policies and len(self.policies) * 2 >= self.slots:
            raise BadRequest(
                f"policy: no room for an adapter of {policy!r}; the engine serves {self.slots // 2} (its max_adapters)"
                f" and has {sorted(self.policies)}."
            )

    @contextmanager
    def use(self, policy: str) -> Iterator[Held]:
        """The policy's current adapter, which stays in the engine until the block ends."""
        current = self.current.get(policy)
        if current is None:
            raise DeliveryError(f"the last adapter of {policy!r} did not arrive whole; update it or restart first.")
        with self._using(current) as held:
            yield held

    @contextmanager
    def add(self, policy: str, version: int) -> Iterator[Held]:
        """A new version, for the time of its delivery; it is the policy's current one where the block ends well.

        A `DeliveryError` leaves the policy without one until the next; after any other fault its old one is served.
        """
        held = Held(policy, version, next(self._numbers))
        self._held.append(held)
        self.policies.add(policy)
        with self._using(held):
            try:
                yield held
            except DeliveryError:
                self.current.pop(policy, None)
                raise
            self.current[policy] = held

    def take_unused(self) -> list[Held]:
        """The adapters that no request will use again, no longer counted: the caller removes them from the engine."""
        unused = [held for held in self._held if not held.users and self.current.get(held.policy) is not held]
        self._held = [held for held in self._held if held not in unused]
        return unused

    def is_full(self) -> bool:
        return len(self._held) >= self.slots

    async def release(self) -> None:
        """Waits until a request has released its adapter, or the engine has ended."""
        self._released.clear()
        await self._released.wait()

    def forget(self) -> None:
        """The engine has ended, and its slots with it."""
        self.current.clear()
        self._held.clear()
        self._released.set()

    @contextmanager
    def _using(self, held: Held) -> Iterator[Held]:
        held.users += 1
        try:
            yield held
        finally:
            held.users -= 1
            self._released.set()
