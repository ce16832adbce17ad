"""All services put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flyteidl2.actions.actions_service_connect import ActionsServiceASGIApplication
from flyteidl2.auth.identity_connect import IdentityServiceASGIApplication
from flyteidl2.cluster.service_connect import ClusterServiceASGIApplication
from flyteidl2.dataproxy.dataproxy_service_connect import DataProxyServiceASGIApplication
from flyteidl2.imagebuilder.service_connect import ImageServiceASGIApplication
from flyteidl2.project.project_service_connect import ProjectServiceASGIApplication
from flyteidl2.secret.secret_connect import SecretServiceASGIApplication
from flyteidl2.settings.settings_service_connect import SettingsServiceASGIApplication
from flyteidl2.task.task_service_connect import TaskServiceASGIApplication
from flyteidl2.trigger.trigger_service_connect import TriggerServiceASGIApplication
from flyteidl2.workflow.queue_service_connect import QueueServiceASGIApplication
from flyteidl2.workflow.run_service_connect import RunServiceASGIApplication
from flyteidl2.workflow.state_service_connect import StateServiceASGIApplication

from wingbeat.control.actions import ActionsApi, QueueApi, StateApi
from wingbeat.control.cluster import ClusterApi
from wingbeat.control.codec import mount
from wingbeat.control.dataproxy import DataProxyApi, Links
from wingbeat.control.endings import Aborts, Signals
from wingbeat.control.enqueue import Enqueuer
from wingbeat.control.errors import ErrorInterceptor
from wingbeat.control.feed import Feed
from wingbeat.control.identity import IdentityApi, process_user
from wingbeat.control.images import ImageApi, ImageChecker
from wingbeat.control.logs import LogSource, NoLogs
from wingbeat.control.projects import ProjectApi, Projects
from wingbeat.control.runs import RunApi
from wingbeat.control.secrets import SecretApi, Vault
from wingbeat.control.settings import ControlSettings
from wingbeat.control.specs import Specs
from wingbeat.control.stored_settings import SettingsApi
from wingbeat.control.submit import Submission
from wingbeat.control.tasks import TaskApi
from wingbeat.control.triggers import TriggerApi
from wingbeat.control.waiting import SetWaiting, Waiting
from wingbeat.control.watches import Watches
from wingbeat.database import Database, Records
from wingbeat.resources import ActionId
from wingbeat.storage import Storage
from wingbeat.stores import Store


def _nobody_waits(action: ActionId, waiting: bool) -> None:
    pass


class ControlPlane:
    """The services over one store, database and storage. `start` before the first request, `close` after the last.

    `set_waiting` is told which parents wait for their children (the machine's). `apps` is what a server mounts.
    """

    def __init__(
        self,
        store: Store,
        db: Database,
        storage: Storage,
        links: Links,
        settings: ControlSettings,
        *,
        secret_key_file: Path,
        logs: LogSource | None = None,
        set_waiting: SetWaiting = _nobody_waits,
    ) -> None:
        user = settings.user or process_user()
        self.records = records = Records(db)
        self.feed = Feed(db)
        self.specs = Specs(records)
        self.waiting = Waiting(set_waiting)
        self.projects = Projects(db, settings)
        self.vault = Vault(db, secret_key_file)
        self.watches = Watches(records, self.specs, self.feed, self.waiting, settings.heartbeat_seconds)
        self.aborts = Aborts(store, records)
        self.signals = Signals(store, records)
        self.submission = Submission(
            store, db, records, storage, self.projects, ImageChecker(storage, settings), settings, user
        )
        enqueuer = Enqueuer(store, db, records, storage)
        services: list[tuple[type[Any], Any]] = [
            (ClusterServiceASGIApplication, ClusterApi()),
            (
                DataProxyServiceASGIApplication,
                DataProxyApi(
                    storage,
                    links,
                    records,
                    self.specs,
                    self.projects,
                    self.submission,
                    logs or NoLogs(),
                    settings,
                ),
            ),
            (
                RunServiceASGIApplication,
                RunApi(
                    self.submission,
                    records,
                    self.specs,
                    self.watches,
                    self.feed,
                    self.aborts,
                    self.signals,
                    user=user,
                    heartbeat=settings.heartbeat_seconds,
                ),
            ),
            (
                ActionsServiceASGIApplication,
                ActionsApi(enqueuer, self.watches, self.aborts, self.signals, records, user),
            ),
            (QueueServiceASGIApplication, QueueApi(enqueuer, self.aborts, user)),
            (StateServiceASGIApplication, StateApi(self.watches)),
            (TaskServiceASGIApplication, TaskApi(db, self.projects, user)),
            (TriggerServiceASGIApplication, TriggerApi(db, self.projects, user)),
            (ProjectServiceASGIApplication, ProjectApi(db, self.projects)),
            (SecretServiceASGIApplication, SecretApi(self.vault)),
            (IdentityServiceASGIApplication, IdentityApi(user)),
            (SettingsServiceASGIApplication, SettingsApi(db)),
            (ImageServiceASGIApplication, ImageApi()),
        ]
        interceptors = (ErrorInterceptor(),)
        self.apps = [mount(application, service, interceptors) for application, service in services]

    async def start(self) -> None:
        await self.projects.ensure_default()
        self.feed.start()

    async def close(self) -> None:
        await self.feed.close()
