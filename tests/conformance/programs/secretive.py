"""Secrets as variables; the value is told only as a digest."""

import hashlib
import os

import flyte

env = flyte.TaskEnvironment(name="secretive", secrets=[flyte.Secret(key="nest-code", as_env_var="NEST_CODE")])
absent = flyte.TaskEnvironment(name="absent", secrets=[flyte.Secret(key="no-such-secret")])
scoped = flyte.TaskEnvironment(name="scoped", secrets=[flyte.Secret(key="scoped-code")])


@env.task
def main() -> str:
    return hashlib.sha256(os.environ["NEST_CODE"].encode()).hexdigest()


@absent.task
def missing() -> str:
    return "never"


@scoped.task
def from_project() -> str:
    return hashlib.sha256(os.environ["SCOPED_CODE"].encode()).hexdigest()
