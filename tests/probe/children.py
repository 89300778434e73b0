"""Processes that answer like the probe's own without MXNet, so that they can be made to die."""

from __future__ import annotations

import sys
from pathlib import Path

_CHILD = """
import json, os, signal, sys, time

def tell(message):
    print(json.dumps(message), flush=True)

settings = json.loads(sys.stdin.readline())
done = 0
{greeting}
for line in sys.stdin:
    case = json.loads(line)["case"]
    tell({{"index": 0, "begins": "low"}})
{body}
    job = {{"dims": [1, 32, 14], "feed": "plain", "outcome": "exact", "pid": os.getpid()}}
    tell({{"index": 0, "job": job}})
    tell({{"done": True}})
    done += 1
"""

READY = 'tell({"ready": {"mxnet": "1.9.1", "device": "cpu(0)"}})'


def child(folder: Path, body: str = "", greeting: str = READY) -> tuple[str, ...]:
    """Return the command of a process that runs ``body`` before it answers for ``case``."""
    script = folder / "child.py"
    lines = "\n".join(f"    {line}" for line in body.splitlines()) or "    pass"
    script.write_text(_CHILD.format(greeting=greeting, body=lines), "utf-8")
    return (sys.executable, str(script))
