"""Projects, tasks, triggers, secrets, settings, and who one is."""

from __future__ import annotations

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from flyteidl2.auth.identity_pb2 import UserInfoRequest
from flyteidl2.common.identifier_pb2 import ProjectIdentifier, TriggerIdentifier, TriggerName
from flyteidl2.common.list_pb2 import Filter, ListRequest, Sort
from flyteidl2.project.project_service_pb2 import (
    CreateProjectRequest,
    GetProjectRequest,
    ListProjectsRequest,
    Project,
    UpdateProjectRequest,
)
from flyteidl2.secret.definition_pb2 import SecretIdentifier, SecretSpec
from flyteidl2.secret.payload_pb2 import (
    CreateSecretRequest,
    DeleteSecretRequest,
    GetSecretRequest,
    ListSecretsRequest,
    UpdateSecretRequest,
)
from flyteidl2.settings.settings_definition_pb2 import Settings, SettingsKey
from flyteidl2.settings.settings_service_pb2 import (
    CreateSettingsRequest,
    GetSettingsForEditRequest,
    UpdateSettingsRequest,
)
from flyteidl2.task.task_definition_pb2 import TaskIdentifier, TaskName, TaskTrigger
from flyteidl2.task.task_service_pb2 import (
    DeployTaskRequest,
    GetTaskDetailsRequest,
    ListTasksRequest,
    ListVersionsRequest,
)
from flyteidl2.trigger.trigger_service_pb2 import (
    DeleteTriggersRequest,
    DeployTriggerRequest,
    GetTriggerDetailsRequest,
    GetTriggerRevisionDetailsRequest,
    GetTriggerRevisionHistoryRequest,
    ListTriggersRequest,
    UpdateTriggersRequest,
)
from flyteidl2.workflow.run_service_pb2 import CreateRunRequest, ListRunsRequest

from wingbeat.control.errors import Missing
from wingbeat.control.secrets import KeyUnusable, Vault

PROJECT = ProjectIdentifier(name="default", domain="development")


async def refused(awaitable) -> ConnectError:
    with pytest.raises(ConnectError) as caught:
        await awaitable
    return caught.value


# --- projects


async def project_ids(plane, **fields) -> list[str]:
    answer = await plane.projects.list_projects(ListProjectsRequest(**fields))
    return [p.id for p in answer.projects.projects]


async def test_there_is_a_default_project_with_domains(plane):
    project = (await plane.projects.get_project(GetProjectRequest(id="default"))).project
    assert (project.org, project.name) == ("local", "default")
    assert [d.id for d in project.domains] == ["development", "staging", "production"]


async def test_projects_are_made_changed_and_archived(plane):
    made = Project(id="p1", name="One", description="first")
    made.labels.values["team"] = "blue"
    await plane.projects.create_project(CreateProjectRequest(project=made))
    assert (
        await refused(plane.projects.create_project(CreateProjectRequest(project=made)))
    ).code is Code.ALREADY_EXISTS
    got = (await plane.projects.get_project(GetProjectRequest(id="p1"))).project
    assert (got.name, got.description, got.labels.values["team"]) == ("One", "first", "blue")
    await plane.projects.update_project(UpdateProjectRequest(project=Project(id="p1", name="Uno", state=1)))
    assert await project_ids(plane) == ["default"]
    assert await project_ids(plane, filters="eq(state, 1)") == ["p1"]
    assert await project_ids(plane, filters="eq(state, 0)+contains(identifier, def)") == ["default"]
    assert await project_ids(plane, filters="value_in(state,0;1)", sort_by=Sort(key="identifier")) == ["p1", "default"]


async def test_bad_projects_and_filters_are_invalid_or_not_found(plane):
    for id in ("", "../x", "a b", "x" * 64):
        request = CreateProjectRequest(project=Project(id=id))
        assert (await refused(plane.projects.create_project(request))).code is Code.INVALID_ARGUMENT
    for filters in ("eq(state, x)", "nonsense", "eq(nothing, 1)", "like(name, x)"):
        assert (await refused(project_ids(plane, filters=filters))).code is Code.INVALID_ARGUMENT
    assert (await refused(plane.projects.get_project(GetProjectRequest(id="x")))).code is Code.NOT_FOUND
    update = UpdateProjectRequest(project=Project(id="x"))
    assert (await refused(plane.projects.update_project(update))).code is Code.NOT_FOUND


# --- tasks and triggers


def task_id(name: str = "env.main", version: str = "v1") -> TaskIdentifier:
    return TaskIdentifier(project="default", domain="development", name=name, version=version)


def trigger(name: str = "hourly", active: bool = True) -> TaskTrigger:
    result = TaskTrigger(name=name)
    result.spec.active = active
    result.spec.description = "every hour"
    result.automation_spec.schedule.cron.expression = "0 * * * *"
    return result


def trigger_name(name: str = "hourly", task: str = "env.main") -> TriggerName:
    return TriggerName(project="default", domain="development", name=name, task_name=task)


async def deploy(plane, make, name: str = "env.main", version: str = "v1", triggers=()) -> None:
    spec = make.task_spec(name, version)
    spec.documentation.short_description = f"about {name}"
    request = DeployTaskRequest(task_id=task_id(name, version), spec=spec, triggers=triggers)
    await plane.tasks.deploy_task(request)


async def tasks(plane, *filters: Filter) -> list[tuple[str, str]]:
    request = ListTasksRequest(project_id=PROJECT, request=ListRequest(filters=filters))
    return [(t.task_id.name, t.task_id.version) for t in (await plane.tasks.list_tasks(request)).tasks]


async def test_a_deployed_task_is_found_and_run(plane, make):
    await deploy(plane, make)
    details = (await plane.tasks.get_task_details(GetTaskDetailsRequest(task_id=task_id()))).details
    assert details.spec.task_template == make.task_spec().task_template
    assert (details.metadata.short_name, details.metadata.environment_name) == ("main", "env")
    assert details.metadata.short_description == "about env.main"
    assert details.metadata.deployed_by.user.id.subject == "ada"
    run = await plane.create("run", task_id=task_id())
    assert run.action.metadata.task.id.version == "v1"


async def test_the_newest_version_of_each_task_is_listed(plane, make):
    for name, version in (("env.a", "v1"), ("env.a", "v2"), ("env.b", "v1"), ("other.c", "v1")):
        await deploy(plane, make, name, version)
    assert sorted(await tasks(plane)) == [("env.a", "v2"), ("env.b", "v1"), ("other.c", "v1")]
    assert await tasks(plane, Filter(field="name", function=Filter.EQUAL, values=["env.a"])) == [("env.a", "v2")]
    assert len(await tasks(plane, Filter(field="name", function=Filter.CONTAINS, values=["env."]))) == 2
    assert await tasks(plane, Filter(field="version", function=Filter.EQUAL, values=["v2"])) == [("env.a", "v2")]
    answer = await plane.tasks.list_tasks(ListTasksRequest(project_id=PROJECT, request=ListRequest(limit=1)))
    assert (answer.metadata.total, len(answer.tasks), answer.token) == (3, 1, "1")
    name = TaskName(project="default", domain="development", name="env.a")
    versions = (await plane.tasks.list_versions(ListVersionsRequest(task_name=name))).versions
    assert [v.version for v in versions] == ["v2", "v1"]


async def test_a_version_that_is_deployed_again_is_replaced(plane, make):
    await deploy(plane, make)
    spec = make.task_spec()
    spec.documentation.short_description = "new"
    await plane.tasks.deploy_task(DeployTaskRequest(task_id=task_id(), spec=spec))
    details = (await plane.tasks.get_task_details(GetTaskDetailsRequest(task_id=task_id()))).details
    assert details.spec.documentation.short_description == "new"


async def test_tasks_that_cannot_be_are_refused(plane, make):
    missing = GetTaskDetailsRequest(task_id=task_id("nope"))
    assert (await refused(plane.tasks.get_task_details(missing))).code is Code.NOT_FOUND
    for request in (
        DeployTaskRequest(task_id=task_id(version=""), spec=make.task_spec()),
        DeployTaskRequest(task_id=task_id()),
        DeployTaskRequest(spec=make.task_spec()),
    ):
        assert (await refused(plane.tasks.deploy_task(request))).code is Code.INVALID_ARGUMENT
    elsewhere = task_id()
    elsewhere.project = "nope"
    request = DeployTaskRequest(task_id=elsewhere, spec=make.task_spec())
    assert (await refused(plane.tasks.deploy_task(request))).code is Code.NOT_FOUND


async def test_a_trigger_of_a_deployment_is_stored_and_said_to_be_not_scheduled_yet(plane, make):
    await deploy(plane, make, triggers=[trigger()])
    request = GetTriggerDetailsRequest(name=trigger_name())
    got = (await plane.triggers.get_trigger_details(request)).trigger
    assert (got.id.revision, got.spec.active, got.spec.task_version, got.automation_spec.type) == (1, True, "v1", 2)
    assert got.description.startswith("every hour (not scheduled yet")
    summary = (await plane.tasks.get_task_details(GetTaskDetailsRequest(task_id=task_id()))).details.metadata
    assert summary.triggers_summary.details.name == "hourly"
    (listed,) = (await plane.triggers.list_triggers(ListTriggersRequest(project_id=PROJECT))).triggers
    assert listed.active


async def test_triggers_that_a_deployment_no_longer_has_are_removed(plane, make):
    await deploy(plane, make, triggers=[trigger("a"), trigger("b")])
    await deploy(plane, make, version="v2", triggers=[trigger("b")])
    names = [t.id.name.name for t in (await plane.triggers.list_triggers(ListTriggersRequest())).triggers]
    assert names == ["b"]
    await deploy(plane, make, version="v3")
    assert len((await plane.triggers.list_triggers(ListTriggersRequest())).triggers) == 0


async def test_a_run_of_a_trigger_takes_its_task_inputs_and_specification(plane, make):
    with_inputs = trigger()
    with_inputs.spec.inputs.CopyFrom(make.inputs(n=8))
    with_inputs.spec.run_spec.labels.values["from"] = "trigger"
    await deploy(plane, make, triggers=[with_inputs])
    request = CreateRunRequest(run_id=plane.run_id("fired"), trigger_name=trigger_name())
    run = (await plane.runs.create_run(request)).run
    assert (run.labels["from"], run.action.metadata.trigger_name) == ("trigger", "hourly")
    await plane.create("by-hand", task_id=task_id())
    listed = await plane.runs.list_runs(ListRunsRequest(trigger_name=trigger_name()))
    assert [r.action.id.run.name for r in listed.runs] == ["fired"]
    request = CreateRunRequest(run_id=plane.run_id("no"), trigger_name=trigger_name("nope"))
    assert (await refused(plane.runs.create_run(request))).code is Code.NOT_FOUND


async def test_triggers_are_switched_deleted_and_their_history_kept(plane, make):
    await deploy(plane, make, triggers=[trigger()])
    for active in (False, False, True):
        await plane.triggers.update_triggers(UpdateTriggersRequest(names=[trigger_name()], active=active))
    await plane.triggers.delete_triggers(DeleteTriggersRequest(names=[trigger_name(), trigger_name("nope")]))
    gone = GetTriggerDetailsRequest(name=trigger_name())
    assert (await refused(plane.triggers.get_trigger_details(gone))).code is Code.NOT_FOUND
    history = await plane.triggers.get_trigger_revision_history(GetTriggerRevisionHistoryRequest(name=trigger_name()))
    assert [(t.id.revision, t.action) for t in history.triggers] == [(4, 4), (3, 2), (2, 3), (1, 1)]
    first = GetTriggerRevisionDetailsRequest(id=TriggerIdentifier(name=trigger_name(), revision=1))
    assert (await plane.triggers.get_trigger_revision_details(first)).trigger.spec.active
    await plane.triggers.deploy_trigger(DeployTriggerRequest(name=trigger_name()))
    assert (await plane.triggers.get_trigger_details(gone)).trigger.id.revision == 5


async def test_a_trigger_of_a_stale_revision_or_without_end_is_refused(plane, make):
    await deploy(plane, make, triggers=[trigger()])
    stale = DeployTriggerRequest(name=trigger_name(), revision=7)
    assert (await refused(plane.triggers.deploy_trigger(stale))).code is Code.FAILED_PRECONDITION
    endless = DeployTriggerRequest(name=trigger_name())
    endless.automation_spec.schedule.rate.value = 0
    assert (await refused(plane.triggers.deploy_trigger(endless))).code is Code.INVALID_ARGUMENT


# --- secrets


def secret_id(name: str = "token", project: str = "", domain: str = "") -> SecretIdentifier:
    return SecretIdentifier(name=name, project=project, domain=domain)


async def put(plane, value: bytes = b"s3cr3t-value", **scope) -> None:
    spec = SecretSpec(binary_value=value)
    await plane.secrets.create_secret(CreateSecretRequest(id=secret_id(**scope), secret_spec=spec))


async def test_a_secret_is_kept_but_its_value_is_never_given_back(plane, tmp_path):
    await put(plane)
    got = await plane.secrets.get_secret(GetSecretRequest(id=secret_id()))
    listed = await plane.secrets.list_secrets(ListSecretsRequest())
    assert [s.id.name for s in listed.secrets] == ["token"]
    assert got.secret.secret_metadata.secret_status.overall_status == 2
    assert b"s3cr3t" not in got.SerializeToString() + listed.SerializeToString()
    assert await plane.control.vault.resolve("local", "default", "development", "token") == b"s3cr3t-value"
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert (tmp_path / "secret.key").stat().st_mode & 0o777 == 0o600
    assert not [p for p in files if b"s3cr3t-value" in p.read_bytes()]


async def test_the_narrowest_scope_wins(plane):
    await put(plane, b"everywhere")
    await put(plane, b"domain", domain="development")
    vault = plane.control.vault
    assert await vault.resolve("local", "default", "development", "token") == b"domain"
    assert await vault.resolve("local", "default", "production", "token") == b"everywhere"
    await put(plane, b"project", domain="development", project="default")
    assert await vault.resolve("local", "default", "development", "token") == b"project"
    assert await vault.resolve("local", "other", "development", "token") == b"domain"
    scoped = await plane.secrets.list_secrets(ListSecretsRequest(domain="development", project="default"))
    assert [s.id.project for s in scoped.secrets] == ["default"]
    with pytest.raises(Missing, match="no secret 'nope'"):
        await vault.resolve("local", "default", "development", "nope")


async def test_secrets_are_changed_and_deleted(plane):
    await put(plane)
    assert (await refused(put(plane))).code is Code.ALREADY_EXISTS
    update = UpdateSecretRequest(id=secret_id(), secret_spec=SecretSpec(string_value="new"))
    await plane.secrets.update_secret(update)
    assert await plane.control.vault.resolve("local", "p", "d", "token") == b"new"
    await plane.secrets.delete_secret(DeleteSecretRequest(id=secret_id()))
    for call in (
        plane.secrets.delete_secret(DeleteSecretRequest(id=secret_id())),
        plane.secrets.get_secret(GetSecretRequest(id=secret_id())),
        plane.secrets.update_secret(update),
    ):
        assert (await refused(call)).code is Code.NOT_FOUND


async def test_secrets_that_cannot_be_are_refused(plane):
    assert (await refused(put(plane, name="a/b"))).code is Code.INVALID_ARGUMENT
    assert (await refused(put(plane, project="default"))).code is Code.INVALID_ARGUMENT
    assert (await refused(put(plane, b"x" * 1_048_577))).code is Code.INVALID_ARGUMENT
    empty = CreateSecretRequest(id=secret_id(), secret_spec=SecretSpec())
    assert (await refused(plane.secrets.create_secret(empty))).code is Code.INVALID_ARGUMENT


async def test_a_value_that_was_moved_to_another_name_or_key_does_not_open(plane, tmp_path):
    await put(plane)
    await plane.db.write(lambda c: c.execute("UPDATE secrets SET name = 'other'"))
    with pytest.raises(KeyUnusable, match="'other' cannot be decrypted"):
        await plane.control.vault.resolve("local", "p", "d", "other")
    (tmp_path / "damaged.key").write_bytes(b"short")
    with pytest.raises(KeyUnusable, match="is damaged"):
        Vault(plane.db, tmp_path / "damaged.key")


# --- settings, identity


async def test_settings_are_versioned_at_each_level(plane):
    key = SettingsKey(org="local", domain="development", project="default")
    settings = Settings()
    settings.run.run_base_dir.string_value = "s3://x"
    made = await plane.settings.create_settings(CreateSettingsRequest(key=key, settings=settings))
    assert made.settingsRecord.version == 1
    again = CreateSettingsRequest(key=key, settings=settings)
    assert (await refused(plane.settings.create_settings(again))).code is Code.ALREADY_EXISTS
    levels = (await plane.settings.get_settings_for_edit(GetSettingsForEditRequest(key=key))).levels
    assert [(level.key.domain, level.key.project, level.version) for level in levels] == [
        ("", "", 0),
        ("development", "", 0),
        ("development", "default", 1),
    ]
    update = UpdateSettingsRequest(key=key, settings=settings, version=1)
    assert (await plane.settings.update_settings(update)).settingsRecord.version == 2
    assert (await refused(plane.settings.update_settings(update))).code is Code.FAILED_PRECONDITION
    update.version = 0
    assert (await refused(plane.settings.update_settings(update))).code is Code.INVALID_ARGUMENT
    absent = UpdateSettingsRequest(key=SettingsKey(org="local"), version=1)
    assert (await refused(plane.settings.update_settings(absent))).code is Code.NOT_FOUND


async def test_one_is_the_user_that_owns_the_server(plane):
    answer = await plane.identity.user_info(UserInfoRequest())
    assert (answer.subject, answer.preferred_username) == ("ada", "ada")
