"""A client that knows nothing of the storage opens data frames by the URIs that it is given, and can give them back."""

import subprocess
import sys
from pathlib import Path

from flyteidl2.core.literals_pb2 import Literal, LiteralCollection, LiteralMap, Scalar, StructuredDataset, Union

from wingbeat.storage import frames_for_clients, frames_for_tasks


def frame(uri: str) -> Literal:
    return Literal(scalar=Scalar(structured_dataset=StructuredDataset(uri=uri)))


def nested(uri: str) -> list[Literal]:
    union = Literal(scalar=Scalar(union=Union(value=frame(uri))))
    inner = Literal(map=LiteralMap(literals={"a": frame(uri), "b": union}))
    return [frame(uri), Literal(collection=LiteralCollection(literals=[inner, frame(uri)]))]


def test_local_data_frames_change_their_form_wherever_they_are() -> None:
    literals = nested("/data/x")
    frames_for_clients(literals)
    assert literals == nested("local:///data/x")
    frames_for_clients(literals)
    assert literals == nested("local:///data/x")
    frames_for_tasks(literals)
    assert literals == nested("/data/x")
    frames_for_tasks(literals)
    assert literals == nested("/data/x")


def test_other_places_and_other_values_stay_as_they_are() -> None:
    for uri in ("s3://bucket/x", "", "file:///x", "local://relative"):
        literals = nested(uri)
        frames_for_clients(literals)
        frames_for_tasks(literals)
        assert literals == nested(uri)
    file = Literal()
    file.scalar.blob.uri = "/data/x"
    frames_for_clients([file])
    assert file.scalar.blob.uri == "/data/x"


def test_values_nested_very_deeply_are_no_problem() -> None:
    top = Literal()
    place = top
    for _ in range(20_000):
        place = place.collection.literals.add()
    place.scalar.structured_dataset.uri = "/x"
    frames_for_clients([top])
    assert place.scalar.structured_dataset.uri == "local:///x"


def test_the_sdk_opens_what_clients_are_given_without_any_set_up(tmp_path: Path) -> None:
    program = f"""
import asyncio, flyte, pandas as pd, pyarrow as pa
from flyte.io import DataFrame
from flyte.types import TypeEngine
from flyteidl2.core.literals_pb2 import Literal
from wingbeat.storage import frames_for_clients
pd.DataFrame({{"a": [1, 2]}}).to_parquet("{tmp_path}/00000")
literal = Literal()
literal.scalar.structured_dataset.uri = "{tmp_path}"
literal.scalar.structured_dataset.metadata.structured_dataset_type.format = "parquet"
flyte.init()

async def read():
    frame = await TypeEngine.to_python_value(literal, DataFrame)
    return len(await frame.open(pd.DataFrame).all()), (await frame.open(pa.Table).all()).num_rows

try:
    print(asyncio.run(read()))
except ValueError as error:
    print("as it is:", error)
frames_for_clients([literal])
print(asyncio.run(read()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["as it is: Raw data path has not been set in the context.", "(2, 2)"], (
        done.stderr
    )
