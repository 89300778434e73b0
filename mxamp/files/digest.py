"""The hash that tells one file from every other."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import time
from typing import Any, Callable, Mapping

from mxamp.errors import DigestMissingError

DIGITS = 64
"""Hexadecimal digits of a digest, whichever the algorithm."""


def _blake3() -> Any:
    try:
        from blake3 import blake3
    except ImportError as error:
        raise DigestMissingError(
            f"This needs the hash BLAKE3, whose package cannot be imported: {error}. Install it with: pip "
            "install blake3."
        ) from error
    return blake3()


ALGORITHMS: Mapping[str, Callable[[], Any]] = {
    "SHA-256": hashlib.sha256,
    "BLAKE2b": lambda: hashlib.blake2b(digest_size=DIGITS // 2),
    "BLAKE3": _blake3,
}
"""Name -> what makes an object like those of :mod:`hashlib`. All are cryptographic and of 256 bits: the
first two are part of Python (``sha256sum``, ``b2sum -l 256``), the third (``b3sum``) is a package, which not
every machine has.

References
----------
FIPS 180-4; Aumasson, Neves, Wilcox-O'Hearn, Winnerlein, "BLAKE2: simpler, smaller, fast as MD5", ACNS 2013;
O'Connor, Aumasson, Neves, Wilcox-O'Hearn, "BLAKE3: one function, fast everywhere", 2020.
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
    With instructions for it SHA-256 is twice as fast as BLAKE2b, and half as fast without, as on Intel's CPUs
    of 2019, or where OpenSSL is kept from them. BLAKE3, which computes many blocks at once, is faster than
    both: on an AMD EPYC SHA-256 does 1.74 GB/s, or 0.51, BLAKE2b 0.88, BLAKE3 4.0. So all that are here are
    timed, once, which takes about 3 ms: flags of the CPU do not say what Python was built with.
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

    times = {}
    for algorithm in ALGORITHMS:
        with contextlib.suppress(DigestMissingError):
            times[algorithm] = seconds(algorithm)
    return min(times, key=times.__getitem__)


def new_digest(algorithm: str = "BLAKE2b") -> Any:
    """Return an object of :mod:`hashlib`, to be updated.

    Parameters
    ----------
    algorithm
        One of :data:`ALGORITHMS`; by default always the same, for what is compared with what another machine
        hashed, and no algorithm recorded with it.

    Raises
    ------
    DigestMissingError
        When it is none of Python's own, and not installed.
    """
    return ALGORITHMS[algorithm]()
