"""The adapters that vLLM holds, the requests that use them, and when an old one may be removed.

vLLM silently evicts the least recently used adapter, reloads an evicted one from its file, and fails if that was
removed. So every adapter in its slots is counted here, and none is added before there is room.
"""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from policies.engine import Adapter, BadRequest, DeliveryError


@dataclass(slots=True, eq=False)
class LoadedAdapter:
    """One version of a policy's adapter in the engine, with a unique number and a count of its users.

    Each version has a name of its own, since the prefix cache is keyed by name and an old one must not be used.
    """

    policy: str
    version: int
    number: int
    users: int = 0

    @property
    def name(self) -> str:
        return f"{self.policy}@{self.number}"


class AdapterSlots:
    """The engine's slots for adapters: two for each policy, so that running requests end with the older version."""

    def __init__(self, policies: int) -> None:
        self.slots = 2 * policies
        self.current: dict[str, LoadedAdapter] = {}
        self.delivered: dict[str, tuple[Adapter, int]] = {}
        """Policy → its last delivered adapter and version, which a restart loads again."""
        self.policies: set[str] = set()
        """The policies for which an adapter was ever sent."""
        self._loaded: list[LoadedAdapter] = []
        self._numbers = itertools.count(1)
        self._released = asyncio.Event()

    def check_policy(self, policy: str) -> None:
        """Raises `BadRequest` if there is no room for an adapter of `policy`."""
        if policy not in self.policies and len(self.policies) * 2 >= self.slots:
            raise BadRequest(
                f"policy: no room for an adapter of {policy!r}; the engine serves {self.slots // 2} (its max_adapters)"
                f" and has {sorted(self.policies)}."
            )

    @contextmanager
    def use(self, policy: str) -> Iterator[LoadedAdapter]:
        """The policy's current adapter, which stays in the engine until the block ends."""
        if policy not in self.current:
            raise DeliveryError(f"the last adapter of {policy!r} did not arrive whole; update it or restart first.")
        with self._using(self.current[policy]) as adapter:
            yield adapter

    @contextmanager
    def add(self, policy: str, version: int) -> Iterator[LoadedAdapter]:
        """A new version, to be delivered inside the block; it becomes the current one if the block succeeds.

        After a `DeliveryError` the policy has none until the next delivery; after any other error it keeps the old one.
        """
        adapter = LoadedAdapter(policy, version, next(self._numbers))
        self._loaded.append(adapter)
        self.policies.add(policy)
        with self._using(adapter):
            try:
                yield adapter
            except DeliveryError:
                self.current.pop(policy, None)
                raise
            self.current[policy] = adapter

    def take_unused(self) -> list[LoadedAdapter]:
        """The adapters that no request will use again, no longer counted: the caller must remove them."""
        current = self.current.values()
        unused = [adapter for adapter in self._loaded if not adapter.users and adapter not in current]
        self._loaded = [adapter for adapter in self._loaded if adapter not in unused]
        return unused

    def is_full(self) -> bool:
        return len(self._loaded) >= self.slots

    async def wait_for_release(self) -> None:
        """Waits until a request has released its adapter, or the engine has ended."""
        self._released.clear()
        await self._released.wait()

    def forget(self) -> None:
        """Empties the slots when the engine ends."""
        self.current.clear()
        self._loaded.clear()
        self._released.set()

    @contextmanager
    def _using(self, adapter: LoadedAdapter) -> Iterator[LoadedAdapter]:
        adapter.users += 1
        try:
            yield adapter
        finally:
            adapter.users -= 1
            self._released.set()
