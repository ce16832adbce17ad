"""Dataclasses, pydantic models and enums, nested, from the command line and back."""

import dataclasses
import enum

import flyte
from pydantic import BaseModel

env = flyte.TaskEnvironment(name="record_types")


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


@dataclasses.dataclass
class Point:
    x: float
    y: float
    tags: list[str] = dataclasses.field(default_factory=list)


class Shape(BaseModel):
    name: str
    sides: int = 4
    extra: dict[str, int] = {}


class Drawing(BaseModel):
    shapes: list[Shape]
    owner: str | None = None


@env.task
def move(point: Point, by: float) -> Point:
    return Point(point.x + by, point.y - by, [*point.tags, "moved"])


@env.task
def grow(drawing: Drawing) -> Drawing:
    return Drawing(shapes=[Shape(name=s.name.upper(), sides=s.sides + 1) for s in drawing.shapes], owner="me")


@env.task
def other(colour: Colour) -> Colour:
    assert isinstance(colour, Colour)
    return Colour.GREEN if colour is Colour.RED else Colour.RED


@env.task
def main(point: Point, drawing: Drawing, colour: Colour) -> tuple[str, str, str]:
    moved, grown, changed = move(point, 1.5), grow(drawing), other(colour)
    assert isinstance(moved, Point) and isinstance(grown, Drawing)
    return repr(moved), grown.model_dump_json(), changed.name


@env.task
def values(point: Point = Point(1.0, 2.0, ["d"]), colour: Colour = Colour.GREEN) -> tuple[Point, Drawing, Colour]:  # noqa: B008
    return point, Drawing(shapes=[Shape(name="square", extra={"a": 1})]), colour
