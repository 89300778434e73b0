"""What networks of these modules are put together with."""

from __future__ import annotations

from typing import Any

from mxnet.gluon import nn

__all__ = ["Added", "in_turn"]


class Added(nn.HybridBlock):
    """What a branch makes of its input, added to what a shortcut makes of it, if there is one."""

    def __init__(self, branch: Any, shortcut: Any = None, *, activation: str = "") -> None:
        super().__init__()
        self.branch, self.shortcut, self._activation = branch, shortcut, activation

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return the sum, or an activation of it."""
        y = self.branch(x) + (x if self.shortcut is None else self.shortcut(x))
        return F.Activation(y, act_type=self._activation) if self._activation else y


def in_turn(*layers: Any) -> Any:
    """Return a block of layers one behind the other."""
    net = nn.HybridSequential()
    net.add(*layers)
    return net
