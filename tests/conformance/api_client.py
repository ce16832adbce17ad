"""The Python API against a server: `api_client.py CONFIG FOLDER`, run in the folder of the programs. Prints JSON."""

import json
import sys

import flyte
import flyte.errors
import hello
import record_types


def main(config: str, folder: str) -> dict:
    import cached

    flyte.init_from_config(config)
    seen = {}
    run = flyte.run(hello.main, n=4)
    run.wait(quiet=True)
    seen["url"] = run.url
    seen["outputs"] = list(run.outputs())
    seen["phase"] = str(run.phase)

    run = flyte.with_runcontext(name="from-python", env_vars={"GREETING": "hi"}, labels={"bird": "owl"}).run(
        record_types.values, point=record_types.Point(5.0, 6.0), colour=record_types.Colour.RED
    )
    run.wait(quiet=True)
    point, drawing, colour = run.outputs()
    seen["name"], seen["record"] = run.name, [point.x, point.y, drawing.shapes[0].name, str(colour)]

    for overwrite in (False, False, True):
        run = flyte.with_runcontext(overwrite_cache=overwrite).run(cached.root, folder=folder, x=9)
        run.wait(quiet=True)
        seen.setdefault("cached", []).append(
            [list(run.outputs()), run.details().action_details.pb2.status.cache_status]
        )
    return seen


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
