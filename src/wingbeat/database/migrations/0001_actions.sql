-- One row. Locked by every group of writes, so revisions are given in commit order.
CREATE TABLE revision (id INTEGER PRIMARY KEY, value BIGINT NOT NULL);
INSERT INTO revision (id, value) VALUES (1, 0);

-- Bytes kept once, by the hex SHA-256 of their content: task specs, trace specs, task templates.
CREATE TABLE blobs (digest TEXT PRIMARY KEY, data BLOB NOT NULL);

-- Records of actions. A root action (parent = '') is a run. Times are microseconds since 1970, UTC.
CREATE TABLE actions (
  org TEXT NOT NULL,
  project TEXT NOT NULL,
  domain TEXT NOT NULL,
  run TEXT NOT NULL,
  name TEXT NOT NULL,
  parent TEXT NOT NULL,
  group_name TEXT NOT NULL,
  action_type INTEGER NOT NULL,
  phase INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  cache_status INTEGER NOT NULL,
  created_at BIGINT NOT NULL,
  started_at BIGINT,
  ended_at BIGINT,
  updated_at BIGINT,
  spec_digest TEXT NOT NULL,
  task_org TEXT,
  task_project TEXT,
  task_domain TEXT,
  task_name TEXT,
  task_version TEXT,
  task_type TEXT NOT NULL,
  display_name TEXT NOT NULL,
  environment TEXT NOT NULL,
  input_uri TEXT NOT NULL,
  run_output_base TEXT NOT NULL,
  output_uri TEXT NOT NULL,
  error BLOB,
  abort_reason TEXT NOT NULL,
  aborted_by TEXT NOT NULL,
  value BLOB NOT NULL,
  signalled_by TEXT NOT NULL,
  wait_reason TEXT NOT NULL,
  run_spec BLOB NOT NULL,
  labels BLOB,
  created_by TEXT NOT NULL,
  source INTEGER NOT NULL,
  trigger_name TEXT NOT NULL,
  trigger_revision BIGINT NOT NULL,
  recovered_from TEXT NOT NULL,
  revision BIGINT NOT NULL,
  PRIMARY KEY (org, project, domain, run, name)
);
CREATE INDEX actions_by_parent ON actions (org, project, domain, run, parent, created_at, name);
CREATE INDEX actions_by_creation ON actions (org, project, domain, run, created_at, name);
CREATE INDEX runs_by_creation ON actions (org, project, domain, created_at, run) WHERE parent = '';
CREATE INDEX runs_by_time ON actions (created_at, run, name) WHERE parent = '';
CREATE INDEX runs_by_phase ON actions (org, project, domain, phase, created_at DESC, run DESC) WHERE parent = '';
CREATE INDEX runs_by_task ON actions (org, project, domain, task_name, created_at) WHERE parent = '';

-- Labels of runs, for selection.
CREATE TABLE action_labels (
  org TEXT NOT NULL,
  project TEXT NOT NULL,
  domain TEXT NOT NULL,
  run TEXT NOT NULL,
  name TEXT NOT NULL,
  label TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (org, project, domain, run, name, label)
);
CREATE INDEX action_labels_by_value ON action_labels (label, value);

-- What the events of one attempt have told so far (see database/projection.py for what is in body).
CREATE TABLE attempts (
  org TEXT NOT NULL,
  project TEXT NOT NULL,
  domain TEXT NOT NULL,
  run TEXT NOT NULL,
  name TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (org, project, domain, run, name, attempt)
);

-- TaskActions. metadata, spec (without the task template) and status are msgpack.
-- resource_version finds what changed since a revision; created_revision tells what is new since then.
CREATE TABLE taskactions (
  org TEXT NOT NULL,
  project TEXT NOT NULL,
  domain TEXT NOT NULL,
  run TEXT NOT NULL,
  name TEXT NOT NULL,
  uid TEXT NOT NULL,
  parent TEXT,
  owner_uid TEXT NOT NULL,
  resource_version BIGINT NOT NULL,
  created_revision BIGINT NOT NULL,
  deleting INTEGER NOT NULL,
  terminal INTEGER NOT NULL,
  is_root TEXT,
  termination_status TEXT,
  completed_time TEXT,
  template_digest TEXT NOT NULL,
  metadata BLOB NOT NULL,
  spec BLOB NOT NULL,
  status BLOB NOT NULL,
  PRIMARY KEY (org, project, domain, run, name)
);
CREATE UNIQUE INDEX taskactions_by_uid ON taskactions (uid);
CREATE INDEX taskactions_by_owner ON taskactions (owner_uid);
CREATE INDEX taskactions_by_revision ON taskactions (resource_version);
CREATE INDEX taskactions_by_completion ON taskactions (termination_status, completed_time) WHERE termination_status IS NOT NULL;

-- What was deleted when, for watches that resume. Bounded; revisions up to the floor are forgotten.
CREATE TABLE taskaction_tombstones (
  revision BIGINT PRIMARY KEY,
  org TEXT NOT NULL,
  project TEXT NOT NULL,
  domain TEXT NOT NULL,
  run TEXT NOT NULL,
  name TEXT NOT NULL,
  parent TEXT,
  owner_uid TEXT NOT NULL,
  labels BLOB NOT NULL
);
CREATE TABLE taskaction_log (id INTEGER PRIMARY KEY, floor BIGINT NOT NULL);
INSERT INTO taskaction_log (id, floor) VALUES (1, 0);
