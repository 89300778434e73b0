"""Import MXNet, or say clearly why that cannot be done."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401 - registers NumPy's "bfloat16", which mx.sym.amp_cast(dtype="bfloat16") looks up

from mxamp.errors import MxnetMissingError
from mxamp.messages.installation import install_hint
from mxamp.runtime.amx import permit_amx


def import_mxnet() -> Any:
    """Return the ``mxnet`` module.

    Raises
    ------
    MxnetMissingError
        When it cannot be imported; says what to install.
    DeviceError
        When its oneDNN was told to use AMX, and the system does not let it.
    """
    permit_amx()
    try:
        import mxnet
    except ImportError as error:
        raise MxnetMissingError(
            f"This needs MXNet, which cannot be imported: {error}. {install_hint('mxnet')} "
            "Converting files (mxamp convert PREFIX ...) needs no MXNet."
        ) from error
    except AttributeError as error:  # mxnet 1.9.1 reads np.bool, which NumPy 1.24 removed
        raise MxnetMissingError(
            f"MXNet cannot be imported with this NumPy: {error}. MXNet 1.9.1 needs NumPy below 1.24: "
            "pip install 'numpy<1.24'."
        ) from error
    return mxnet
