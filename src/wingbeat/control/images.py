"""Images with layers. Environments are not built yet, so an image is accepted when the task environment has what its
layers ask for, and refused at submission, naming what is missing and how to install it, when it has not.

The SDK's remote builder runs the task `build-image` of project `system`: uploads an ImageSpec, starts a run with its
URI, waits, and takes the run's output for the image. That run is answered here, at once, without a process.
"""

from __future__ import annotations

import asyncio
import io
import json
import shlex
import tarfile
from typing import Any

from flyteidl2.core.interface_pb2 import TypedInterface, Variable, VariableEntry, VariableMap
from flyteidl2.core.literals_pb2 import Literal, Primitive, Scalar
from flyteidl2.core.tasks_pb2 import TaskTemplate
from flyteidl2.core.types_pb2 import LiteralType, SimpleType
from flyteidl2.imagebuilder.definition_pb2 import ImageSpec
from flyteidl2.imagebuilder.service_connect import ImageService
from flyteidl2.task.common_pb2 import Outputs
from flyteidl2.task.task_definition_pb2 import TaskSpec
from google.protobuf.message import DecodeError

from wingbeat.control.errors import InvalidRequest, Missing
from wingbeat.control.settings import ControlSettings
from wingbeat.storage import ObjectMissing, Storage

PROJECT = "system"
DOMAIN = "production"
TASK_NAME = "build-image"
TASK_VERSION = "builtin"
PREFIX = "env:"
"""Before the tag, in what stands for an image that the task environment satisfies."""

MAX_CONTEXT_BYTES = 64 * 1024 * 1024
CHECK_SECONDS = 60

# Runs in the task environment's own interpreter, so that its markers and its packages are what counts.
CHECKER = """
import importlib.metadata, json, re, sys
try:
    from packaging.requirements import InvalidRequirement, Requirement
except ImportError:
    print(json.dumps({"error": "it lacks the package 'packaging', which flyte needs"})); sys.exit()
missing = []
for text in json.load(sys.stdin):
    try:
        want = Requirement(text)
    except InvalidRequirement:
        missing.append(text); continue
    if want.marker is not None and not want.marker.evaluate():
        continue
    try:
        have = importlib.metadata.version(want.name)
    except importlib.metadata.PackageNotFoundError:
        missing.append(text); continue
    if want.specifier and not want.specifier.contains(have, prereleases=True):
        missing.append(text)
print(json.dumps({"missing": missing}))
"""


def _string_variables(*names: str) -> Any:
    type = LiteralType(simple=SimpleType.STRING)
    return VariableMap(variables=[VariableEntry(key=n, value=Variable(type=type)) for n in names])


def _task_spec() -> Any:
    template = TaskTemplate(
        type="python",
        interface=TypedInterface(
            inputs=_string_variables("context", "spec", "target_image"), outputs=_string_variables("o0")
        ),
    )
    template.id.project, template.id.domain = PROJECT, DOMAIN
    template.id.name, template.id.version = TASK_NAME, TASK_VERSION
    template.container.image = "wingbeat"
    return TaskSpec(task_template=template, short_name=TASK_NAME)


TASK_SPEC = _task_spec()


def is_build(template: Any) -> bool:
    """Whether this task is the builder, whatever secrets the client has added to it."""
    return bool(template.id.name == TASK_NAME and template.id.project == PROJECT)


class ImageApi(ImageService):  # type: ignore[misc]
    async def get_image(self, request: Any, ctx: Any) -> Any:
        """The request has the tag only, which tells nothing about the layers: let the client ask for a build."""
        raise Missing(
            f"the image {request.id.name!r} is not built; environments of images are not supported yet, "
            "the task environment is checked for what the image needs instead"
        )


class ImageChecker:
    """Answers builds. Compares with the interpreter that tasks run in."""

    def __init__(self, storage: Storage, settings: ControlSettings) -> None:
        self._storage = storage
        self._settings = settings

    async def build(self, inputs: Any) -> bytes:
        """The serialized Outputs of a build with these inputs. Raises InvalidRequest for an image that the task
        environment does not satisfy."""
        values = {named.name: named.value.scalar.primitive.string_value for named in inputs.literals}
        target = values.get("target_image", "") or "image"
        spec = await self._spec(values.get("spec", ""), target)
        wanted = self._settings.python_version
        if spec.python_version and wanted and spec.python_version != wanted:
            raise InvalidRequest(
                f"image {target} needs Python {spec.python_version}, tasks run in Python {wanted} "
                f"({self._settings.interpreter}); leave its python_version out, or have tasks run in a Python "
                f"{spec.python_version} that has flyte installed: wingbeat up --python PATH"
            )
        requirements, unsupported = await self._requirements(spec, values.get("context", ""))
        if unsupported:
            raise InvalidRequest(
                f"image {target} has layers that are not supported yet ({', '.join(unsupported)}): environments are "
                "not built yet. Take those layers out of the image and install by hand what they bring: "
                f"{self._by_hand(spec)}"
            )
        missing = await self._missing(requirements)
        if missing:
            quoted = " ".join(f"'{m}'" if set(m) & set("<>=!~;[ ") else m for m in missing)
            raise InvalidRequest(
                f"image {target} needs packages {', '.join(missing)} that the task environment "
                f"{self._settings.interpreter} lacks: run `{self._settings.interpreter} -m pip install {quoted}`; "
                "building environments is not supported yet"
            )
        literal = Literal(scalar=Scalar(primitive=Primitive(string_value=PREFIX + target)))
        outputs = Outputs()
        outputs.literals.add(name="o0", value=literal)
        return bytes(outputs.SerializeToString(deterministic=True))

    def _by_hand(self, spec: Any) -> str:
        """The command that does what a layer that is not supported asks for, as far as that is a command."""
        system = [p for layer in spec.layers for p in layer.apt_packages.packages]
        if system:
            return f"apt-get install {shlex.join(system)}"
        return f"{self._settings.interpreter} -m pip install ..."

    async def _spec(self, uri: str, target: str) -> Any:
        try:
            return ImageSpec.FromString(await self._storage.get(uri, limit=MAX_CONTEXT_BYTES))
        except ObjectMissing:
            raise Missing(f"the specification of image {target} is not in the storage ({uri})") from None
        except (DecodeError, ValueError) as error:
            raise InvalidRequest(f"the specification of image {target} cannot be read: {error}") from None

    async def _requirements(self, spec: Any, context: str) -> tuple[list[str], list[str]]:
        """Requirements of all layers, and the kinds of those that cannot be checked."""
        requirements: list[str] = []
        unsupported: list[str] = []
        for layer in spec.layers:
            kind = layer.WhichOneof("layer")
            if kind == "pip_packages":
                requirements.extend(layer.pip_packages.packages)
            elif kind == "requirements":
                requirements.extend(parse_requirements(await self._context_file(context, layer.requirements.file)))
            elif kind == "python_wheels" and layer.python_wheels.package_name:
                requirements.append(layer.python_wheels.package_name)
            elif kind not in ("workdir", "copy_config") and kind is not None and kind not in unsupported:
                # Where code goes in a container does not matter here: it travels in the bundle.
                unsupported.append(kind)
        return requirements, unsupported

    async def _context_file(self, context: str, name: str) -> str:
        if not context:
            raise InvalidRequest(f"the image names the file {name!r}, and no build context was uploaded")
        data = await self._storage.get(context, limit=MAX_CONTEXT_BYTES)
        try:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
                member = archive.extractfile(name)
                if member is not None:
                    return member.read(1024 * 1024).decode()
        except (tarfile.TarError, KeyError, OSError, UnicodeDecodeError, EOFError) as error:
            raise InvalidRequest(f"the file {name!r} of the build context cannot be read: {error}") from None
        raise InvalidRequest(f"{name!r} in the build context is not a file")

    async def _missing(self, requirements: list[str]) -> list[str]:
        if not requirements or not self._settings.interpreter:
            return []
        process = await asyncio.create_subprocess_exec(
            self._settings.interpreter,
            "-I",
            "-c",
            CHECKER,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(json.dumps(requirements).encode()), CHECK_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise InvalidRequest(f"{self._settings.interpreter} did not answer within {CHECK_SECONDS} s") from None
        try:
            answer = json.loads(out)
        except ValueError:
            last = err.decode(errors="replace").strip().rpartition("\n")[2][:300]
            raise InvalidRequest(f"{self._settings.interpreter} could not list its packages: {last}") from None
        if "error" in answer:
            raise InvalidRequest(f"{self._settings.interpreter} could not list its packages: {answer['error']}")
        return list(answer["missing"])


def parse_requirements(text: str) -> list[str]:
    """The requirements in a requirements file; its options (`-r`, `--index-url`, hashes) are passed over."""
    joined = text.replace("\\\n", " ")
    lines = (" ".join(line.split(" #")[0].split(" --hash")[0].split()) for line in joined.splitlines())
    return [line for line in lines if line and not line.startswith(("#", "-"))]
