"""The hash that tells one file from every other."""

from __future__ import annotations

import functools
import hashlib
import time
from typing import Any, Callable, Mapping

__all__ = ["ALGORITHMS", "DIGITS", "fastest_algorithm", "new_digest"]

DIGITS = 64
"""Hexadecimal digits of a digest, whichever the algorithm."""

ALGORITHMS: Mapping[str, Callable[[], Any]] = {
    "SHA-256": hashlib.sha256,
    "BLAKE2b": lambda: hashlib.blake2b(digest_size=DIGITS // 2),
}
"""Name -> what makes an object of :mod:`hashlib`. Both are cryptographic and part of Python; BLAKE2b is of
256 bits, as ``b2sum -l 256`` prints it.

References
----------
FIPS 180-4; Aumasson, Neves, Wilcox-O'Hearn, Winnerlein, "BLAKE2: simpler, smaller, fast as MD5", ACNS 2013.
"""

_TRIED = 128 << 10
"""Bytes that each is tried on."""

_TRIALS = 5
"""How often: the shortest time counts."""


@functools.lru_cache(maxsize=None)
def fastest_algorithm() -> str:
    """Return what new files are hashed with: the algorithm that this process computes fastest.

    Notes
    -----
    With instructions for it SHA-256 is twice as fast as BLAKE2b (1.75 and 0.95 GB/s on a Xeon of 2023), and
    half as fast without, as on Intel's CPUs of 2019, or where OpenSSL is kept from them. So both are timed,
    once, which takes about 2 ms: flags of the CPU do not say what Python was built with.
    """
    block = bytes(_TRIED)

    def seconds(algorithm: str) -> float:
        found = []
        for _ in range(_TRIALS):
            digest = new_digest(algorithm)
            started = time.perf_counter()
            digest.update(block)
            found.append(time.perf_counter() - started)
        return min(found)

    return min(ALGORITHMS, key=seconds)


def new_digest(algorithm: str = "BLAKE2b") -> Any:
    """Return an object of :mod:`hashlib`, to be updated.

    Parameters
    ----------
    algorithm
        One of :data:`ALGORITHMS`; by default always the same, for what is compared with what another machine
        hashed, and no algorithm recorded with it.
    """
    return ALGORITHMS[algorithm]()
