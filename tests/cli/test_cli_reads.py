"""No command writes over what it reads, not with --force either."""

import numpy as np
import pytest

pytest.importorskip("mxnet", reason="most of these commands run models")

COMMANDS = {
    "samples by calibrate": "calibrate net --data d.npz -o d.npz",
    "parameters by calibrate": "calibrate net --data d.npz -o net-0000.params",
    "parameters by export": "export net -o net-0000.params --input-shape 1,4",
    "parameters by export of a file": "export net-symbol.json -o net-0000.params --input-shape 1,4",
    "parameters by compare": "compare net net --data d.npz --html net-0000.params",
    "the graph by debug": "debug net net --data d.npz --html net-symbol.json",
    "samples by tune": "tune net --data d.npz --html d.npz",
    "samples by report": "report net --data d.npz -o d.npz",
    "labels by evaluate": "evaluate net net --data d.npz --labels d.npz --html d.npz",
}


@pytest.mark.parametrize("what", COMMANDS)
def test_what_is_read_is_not_written_over(mxamp, folder, what):
    np.savez(folder / "d.npz", data=np.ones((2, 4), np.float32))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = mxamp(*COMMANDS[what].split(), "--force")
    assert result.status == 2
    assert "would overwrite what is read" in result.err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
