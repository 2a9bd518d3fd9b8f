"""Seeded draws that depend on the object alone, never on the order in which anybody reads or creates.

Each value is a hash of (seed, object sequence, name of the value). Asking twice gives the same value, and a new kind of
draw never shifts the others, so recorded simulations stay valid when the simulator grows.
"""

import math
import uuid
from dataclasses import dataclass
from hashlib import blake2b

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Draws:
    """All random values of one simulated object."""

    seed: int
    key: str

    def unit(self, name: str) -> float:
        """A number in [0, 1)."""
        return int.from_bytes(self._digest(name, 7), "big") / (1 << 56)

    def between(self, bounds: Range, name: str) -> float:
        """A number within `bounds`; both may be infinite, which means never."""
        low, high = bounds
        if low == high or math.isinf(low):
            return low
        return low + (high - low) * self.unit(name)

    def integer(self, bounds: Range, name: str) -> int:
        """A whole number within `bounds`, both included."""
        low, high = int(bounds[0]), int(bounds[1])
        return low + int((high - low + 1) * self.unit(name))

    def happens(self, probability: float, name: str) -> bool:
        """True with `probability`."""
        return probability > 0 and self.unit(name) < probability

    def identifier(self, name: str) -> str:
        """A UUID (version 4 in form)."""
        return str(uuid.UUID(bytes=self._digest(name, 16), version=4))

    def text(self, name: str, length: int = 16) -> str:
        """Letters and digits, e.g. for a password."""
        return self._digest(name, 32).hex()[:length]

    def _digest(self, name: str, size: int) -> bytes:
        return blake2b(f"{self.seed}/{self.key}/{name}".encode(), digest_size=size).digest()
