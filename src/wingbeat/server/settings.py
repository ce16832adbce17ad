"""Every setting: its name, meaning, default, and where its value came from.

From strong to weak: the command line, the environment (`WINGBEAT_<NAME>`), the YAML file (`--config`, otherwise
`wingbeat.yaml` in the data folder), the default.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml  # type: ignore[import-untyped]
from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from wingbeat.server.quantities import parse_seconds, parse_size

ENV_PREFIX = "WINGBEAT_"
CONFIG_NAME = "wingbeat.yaml"
DEFAULT_PORT = 7878


class SettingsError(Exception):
    """A value that cannot be used: says which setting, where it was set, and what would be right."""


def _split(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


Size = Annotated[int, BeforeValidator(parse_size), Field(ge=0)]
Seconds = Annotated[float, BeforeValidator(parse_seconds), Field(ge=0)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]


def default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME", "")
    # The specification of these folders says to ignore relative paths.
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "share") / "wingbeat"


class Settings(BaseSettings):
    """All settings. Make it with `load_settings`."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True, env_ignore_empty=True)

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description=f"Port to listen on. Default: the one used before, else {DEFAULT_PORT} or one free.",
    )
    data_dir: Path = Field(default_factory=default_data_dir, description="Folder that everything is kept in.")
    database: str = Field(
        "", description="A PostgreSQL URL, or the path of an SQLite file. Default: in the data folder."
    )
    storage: str = Field(
        "", description="Where data lives: a folder or s3://bucket/prefix. Default: in the data folder."
    )
    python: Path = Field(
        default_factory=lambda: Path(sys.executable), description="Python that tasks run in. It needs `flyte`."
    )
    cpus: float | None = Field(None, gt=0, description="CPUs that running tasks may use. Default: all.")
    memory: Size | None = Field(None, description="Memory that running tasks may use, e.g. 8GiB. Default: most of it.")
    gpus: int | None = Field(None, ge=0, description="GPUs that running tasks may use. Default: all.")
    startups: int | None = Field(None, ge=1, description="Task processes that may be starting at once.")
    mode: Literal["zygote", "spawn"] = Field(
        "zygote", description="Fork tasks from a warm process, or start each anew."
    )
    memory_limits: Literal["auto", "cgroup", "watchdog", "off"] = Field(
        "auto", description="How a task's memory limit is enforced. auto: by control group where that can be."
    )
    preload: Names = Field((), description="Modules that the warm process imports beforehand, e.g. numpy,pandas.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="What the server logs.")
    log_format: Literal["auto", "text", "json"] = Field("auto", description="auto: text on a terminal, else JSON.")
    log_limit: Size = Field(64 << 20, description="What is kept of one attempt's log.")
    allow_remote: bool = Field(False, description="Accept clients from other computers. Whoever reaches it runs code.")
    allow_other_users: bool = Field(False, description="Accept other users of this computer. They run code as you.")
    allow_host: Names = Field((), description="More host names that clients may call this server by.")
    project: str = Field("default", description="Project that exists from the start and is the clients' default.")
    domains: Names = Field(("development", "staging", "production"), description="Domains of every project.")
    gc_ttl: Seconds = Field(3600.0, description="How long the engine remembers finished actions. Records stay.")
    kill_grace: Seconds = Field(5.0, description="Between SIGTERM and SIGKILL when a task is ended.")
    max_system_failures: int = Field(3, ge=0, description="System failures in a row that an action survives.")
    drain: Seconds = Field(60.0, description="How long a first Ctrl-C waits for running actions.")

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("data_dir")
    @classmethod
    def _without_links(cls, path: Path) -> Path:
        return path.expanduser().resolve()

    @field_validator("python")
    @classmethod
    def _interpreter(cls, path: Path) -> Path:
        if path.name == str(path) and (found := shutil.which(path.name)):
            return Path(found)
        path = path.expanduser().absolute()
        # Not resolved: a virtual environment's Python is a link, and has to stay one.
        return path / "bin" / "python" if path.is_dir() else path

    @field_validator("domains")
    @classmethod
    def _at_least_one(cls, domains: tuple[str, ...]) -> tuple[str, ...]:
        if not domains:
            raise ValueError("at least one domain is needed")
        return domains

    @field_validator("project")
    @classmethod
    def _name(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][-_.A-Za-z0-9]{0,62}", name):
            raise ValueError("letters, digits, `-`, `_` and `.`, at most 63, beginning with a letter or digit")
        return name

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)  # `load_settings` merges the sources: it has to know which of them won

    @property
    def origins(self) -> dict[str, str]:
        """For each setting where its value came from, in words."""
        return {name: self._origins.get(name, "default") for name in type(self).model_fields}

    @property
    def database_location(self) -> str:
        return self.database or str(self.data_dir / "wingbeat.db")

    @property
    def storage_uri(self) -> str:
        return self.storage or str(self.data_dir / "storage")

    def shown(self) -> dict[str, Any]:
        """Values for people: plain types, passwords left out."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        values["database"] = _without_password(self.database_location)
        values["storage"] = _without_password(self.storage_uri)
        return {
            name: str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }


def _without_password(url: str) -> str:
    password = urlsplit(url).password
    return url.replace(f":{password}@", ":***@") if password else url


def load_settings(flags: dict[str, Any] | None = None, config: Path | None = None) -> Settings:
    """The effective settings. `flags` are those of the command line (None is "not given"). Raises SettingsError."""
    from pydantic_settings import EnvSettingsSource

    layers: list[tuple[str, dict[str, Any]]] = []
    given = {name: value for name, value in (flags or {}).items() if value is not None and value != ()}
    layers.append(("command line", given))
    environment = EnvSettingsSource(Settings)()
    layers.append(("environment", {name: environment[name] for name in Settings.model_fields if name in environment}))
    if config is None and (named := os.environ.get(f"{ENV_PREFIX}CONFIG")):
        config = Path(named)
    if config is not None:
        layers.append((str(config), _read_yaml(config.expanduser(), must_exist=True)))
    else:
        folder = next((values["data_dir"] for _, values in layers if "data_dir" in values), default_data_dir())
        path = Path(folder).expanduser().resolve() / CONFIG_NAME
        values = _read_yaml(path, must_exist=False)
        if "data_dir" in values:
            raise SettingsError(
                f"{path} is in the data folder, so it cannot say where that is: remove `data_dir` from it"
            )
        layers.append((str(path), values))

    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, values in layers:
        for name, value in values.items():
            if name not in merged:
                merged[name] = value
                origins[name] = _origin(origin, name)
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        raise SettingsError("; ".join(_explain(item, origins) for item in error.errors())) from None
    settings._origins.update(origins)
    return settings


def _origin(layer: str, name: str) -> str:
    if layer == "environment":
        return f"{ENV_PREFIX}{name.upper()}"
    return flag(name) if layer == "command line" else layer


def flag(name: str) -> str:
    """The command line option of a setting."""
    return "--" + name.replace("_", "-")


def _explain(item: Any, origins: dict[str, str]) -> str:
    name = str(item["loc"][0]) if item["loc"] else ""
    message = str(item["msg"]).removeprefix("Value error, ")
    return f"{name} (from {origins.get(name, 'default')}): {message[:1].lower()}{message[1:]}"


def _read_yaml(path: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        if must_exist:
            raise SettingsError(f"there is no configuration file {path}") from None
        return {}
    except NotADirectoryError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the configuration file {path} cannot be read: {error}") from None
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SettingsError(f"{path} has to be a list of `setting: value` lines")
    for name in values:
        if name not in Settings.model_fields:
            near = difflib.get_close_matches(str(name), list(Settings.model_fields), 1)
            hint = f"; did you mean `{near[0]}`?" if near else "; `wingbeat config` lists all of them"
            raise SettingsError(f"{path}: there is no setting `{name}`{hint}")
    return values
