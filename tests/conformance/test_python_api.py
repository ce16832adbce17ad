"""`flyte.run`, `wait` and `outputs` from Python, with the written configuration."""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
HIT = 2


def test_runs_started_from_python_are_waited_for_and_give_their_outputs(server, tmp_path):
    command = (sys.executable, str(HERE / "api_client.py"), str(server.data / "flyte.yaml"), str(tmp_path))
    result = server.run(*command, PYTHONPATH=str(HERE / "programs"))
    seen = json.loads(result.out.splitlines()[-1])
    assert seen["outputs"] == [14]
    assert "succeeded" in seen["phase"].lower()
    assert "/runs/" in seen["url"]
    assert seen["name"] == "from-python"
    assert seen["record"][:3] == [5.0, 6.0, "square"] and "RED" in seen["record"][3].upper()
    (first, second, third) = seen["cached"]
    assert [x[0] for x in seen["cached"]] == [[10]] * 3
    assert second[1] == HIT and first[1] != HIT and third[1] != HIT
    assert len(list(tmp_path.glob("root.*"))) == 2, "the third run overwrote the cache, the second used it"
