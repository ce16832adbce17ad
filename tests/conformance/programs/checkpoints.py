"""Work that goes on where the attempt before stopped, over three attempts."""

import flyte

env = flyte.TaskEnvironment(name="checkpoints")


@env.task(retries=3)
async def main(steps: int = 6) -> tuple[int, list[str]]:
    checkpoint = flyte.ctx().checkpoint
    previous = await checkpoint.load()
    lines = previous.read_text().split() if previous and previous.is_file() else []
    while len(lines) < steps:
        lines.append(f"{len(lines)}@{flyte.ctx().attempt_number}")
        await checkpoint.save(" ".join(lines).encode())
        if len(lines) in (2, 4):
            raise RuntimeError(f"stopped after {len(lines)} steps")
    return len(lines), lines


@env.task(retries=2)
def sync(steps: int = 2) -> str:
    checkpoint = flyte.ctx().checkpoint
    previous = checkpoint.load_sync()
    done = int(previous.read_text()) if previous and previous.is_file() else 0
    if done < steps:
        checkpoint.save_sync(str(done + 1).encode())
        raise RuntimeError(f"step {done} is done")
    return f"{done} steps, attempt {flyte.ctx().attempt_number}"
