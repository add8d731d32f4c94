"""Pod addresses out of 10.244.0.0/16."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

NETWORK = IPv4Network("10.244.0.0/16")
RESERVED = 2


class Addresses:
    """Hands out addresses in turn, so that one is not soon used again after its pod has gone."""

    def __init__(self) -> None:
        self._used: set[IPv4Address] = set()
        self._next = RESERVED

    def take(self, wanted: str | None = None) -> str:
        """Take a free address; the wanted one, where it is free.

        Raises:
            RuntimeError: All addresses are in use.
        """
        if wanted is not None:
            address = IPv4Address(wanted)
            if address in NETWORK and address not in self._used:
                self._used.add(address)
                return str(address)
        last = NETWORK.num_addresses - 1
        for _ in range(last):
            address = NETWORK[self._next]
            self._next = self._next + 1 if self._next + 1 < last else RESERVED
            if address not in self._used:
                self._used.add(address)
                return str(address)
        raise RuntimeError(f"no free pod address in {NETWORK}")

    def give_back(self, address: str) -> None:
        """Make an address free again."""
        self._used.discard(IPv4Address(address))
