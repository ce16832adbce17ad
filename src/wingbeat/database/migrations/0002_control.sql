-- What the control plane keeps beside runs. Times are microseconds since 1970, UTC.
CREATE TABLE projects (
  org TEXT NOT NULL,
  id TEXT NOT NULL,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  labels BLOB NOT NULL,
  state INTEGER NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (org, id)
);

-- Deployed tasks; the spec is in blobs. short_name is the function, without the environment.
CREATE TABLE tasks (
  org TEXT NOT NULL,
  project TEXT NOT NULL,
  domain TEXT NOT NULL,
  name TEXT NOT NULL,
  version TEXT NOT NULL,
  environment TEXT NOT NULL,
  short_name TEXT NOT NULL,
  short_description TEXT NOT NULL,
  env_description TEXT NOT NULL,
  entrypoint INTEGER NOT NULL,
  spec_digest TEXT NOT NULL,
  deployed_by TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (org, project, domain, name, version)
);
CREATE INDEX tasks_by_creation ON tasks (org, project, domain, created_at);

-- Triggers; spec and automation are serialized messages. revision is the newest one.
CREATE TABLE triggers (
  org TEXT NOT NULL,
  project TEXT NOT NULL,
  domain TEXT NOT NULL,
  task_name TEXT NOT NULL,
  name TEXT NOT NULL,
  revision BIGINT NOT NULL,
  active INTEGER NOT NULL,
  deleted INTEGER NOT NULL,
  task_version TEXT NOT NULL,
  automation_type INTEGER NOT NULL,
  spec BLOB NOT NULL,
  automation BLOB NOT NULL,
  deployed_by TEXT NOT NULL,
  updated_by TEXT NOT NULL,
  deployed_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  triggered_at BIGINT,
  deleted_at BIGINT,
  PRIMARY KEY (org, project, domain, task_name, name)
);

-- Each change of a trigger, as it was then. details is a serialized TriggerDetails.
CREATE TABLE trigger_revisions (
  org TEXT NOT NULL,
  project TEXT NOT NULL,
  domain TEXT NOT NULL,
  task_name TEXT NOT NULL,
  name TEXT NOT NULL,
  revision BIGINT NOT NULL,
  change INTEGER NOT NULL,
  details BLOB NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (org, project, domain, task_name, name, revision)
);

-- Secrets: the value is encrypted with a key that is kept outside of the database. Empty project or domain: wider scope.
CREATE TABLE secrets (
  org TEXT NOT NULL,
  project TEXT NOT NULL,
  domain TEXT NOT NULL,
  name TEXT NOT NULL,
  value BLOB NOT NULL,
  type INTEGER NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (org, project, domain, name)
);

-- Settings of an organisation, a domain of it, or a project in a domain; body is a serialized Settings.
CREATE TABLE settings (
  org TEXT NOT NULL,
  domain TEXT NOT NULL,
  project TEXT NOT NULL,
  version BIGINT NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (org, domain, project)
);
