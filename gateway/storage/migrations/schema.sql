CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE alias (
	owner VARCHAR NOT NULL, 
	protocol VARCHAR NOT NULL, 
	agent VARCHAR NOT NULL, 
	alias VARCHAR NOT NULL, 
	thread_id VARCHAR NOT NULL, 
	PRIMARY KEY (owner, protocol, agent, alias)
);

CREATE INDEX alias_thread ON alias (owner, thread_id);

CREATE TABLE blob_use (
	thread_pk BIGINT NOT NULL, 
	blob VARCHAR NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (thread_pk, blob)
);

CREATE INDEX blob_use_blob ON blob_use (blob);

CREATE TABLE interrupt (
	owner VARCHAR NOT NULL, 
	task_id VARCHAR NOT NULL, 
	interrupt_id VARCHAR NOT NULL, 
	thread_pk BIGINT NOT NULL, 
	run_id VARCHAR NOT NULL, 
	seq INTEGER NOT NULL, 
	action VARCHAR, 
	body BLOB NOT NULL, 
	PRIMARY KEY (owner, task_id, interrupt_id)
);

CREATE INDEX interrupt_open ON interrupt (thread_pk, seq) WHERE action IS NULL;

CREATE INDEX interrupt_thread ON interrupt (thread_pk);

CREATE TABLE meta (
	name VARCHAR NOT NULL, 
	value VARCHAR NOT NULL, 
	PRIMARY KEY (name)
);

CREATE TABLE run (
	owner VARCHAR NOT NULL, 
	run_id VARCHAR NOT NULL, 
	thread_pk BIGINT NOT NULL, 
	task_id VARCHAR NOT NULL, 
	agent VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	attempt INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	start_after BIGINT, 
	first_seq INTEGER NOT NULL, 
	last_seq INTEGER NOT NULL, 
	body BLOB NOT NULL, removed BOOLEAN DEFAULT 0 NOT NULL, node VARCHAR, crashes INTEGER DEFAULT 0 NOT NULL, 
	PRIMARY KEY (owner, run_id)
)
 WITHOUT ROWID

;

CREATE UNIQUE INDEX run_active ON run (thread_pk) WHERE status = 'running';

CREATE INDEX run_thread ON run (thread_pk, first_seq);

CREATE TABLE task (
	owner VARCHAR NOT NULL, 
	task_id VARCHAR NOT NULL, 
	thread_pk BIGINT NOT NULL, 
	thread_id VARCHAR NOT NULL, 
	agent VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	created_at BIGINT NOT NULL, 
	changed_at BIGINT NOT NULL, 
	first_seq INTEGER NOT NULL, 
	last_seq INTEGER NOT NULL, 
	continues VARCHAR, 
	body BLOB NOT NULL, 
	PRIMARY KEY (owner, task_id)
)
 WITHOUT ROWID

;

CREATE INDEX task_changed ON task (owner, changed_at, task_id);

CREATE INDEX task_continues ON task (owner, continues) WHERE continues IS NOT NULL;

CREATE INDEX task_open ON task (thread_pk) WHERE state IN ('submitted', 'working', 'input_required', 'auth_required', 'cancelling');

CREATE INDEX task_thread ON task (thread_pk);

CREATE TABLE thread (
	pk INTEGER NOT NULL, 
	owner VARCHAR NOT NULL, 
	thread_id VARCHAR NOT NULL, 
	created_at BIGINT NOT NULL, 
	changed_at BIGINT NOT NULL, 
	ephemeral BOOLEAN NOT NULL, 
	body BLOB NOT NULL, expires BOOLEAN DEFAULT 0 NOT NULL, status VARCHAR DEFAULT 'idle' NOT NULL, updated_at BIGINT DEFAULT 0 NOT NULL, 
	PRIMARY KEY (pk)
);

CREATE UNIQUE INDEX thread_id ON thread (owner, thread_id);

CREATE TABLE tombstone (
	owner VARCHAR NOT NULL, 
	thread_id VARCHAR NOT NULL, 
	at BIGINT NOT NULL, 
	PRIMARY KEY (owner, thread_id)
);

CREATE TABLE webhook (
	owner VARCHAR NOT NULL, 
	task_id VARCHAR NOT NULL, 
	webhook_id VARCHAR NOT NULL, 
	thread_id VARCHAR NOT NULL, 
	dialect VARCHAR NOT NULL, 
	url VARCHAR NOT NULL, 
	delivered_seq INTEGER NOT NULL, 
	done BOOLEAN NOT NULL, 
	body BLOB NOT NULL, node VARCHAR, failures INTEGER DEFAULT 0 NOT NULL, next_try BIGINT, reason VARCHAR, given_up_at BIGINT, 
	PRIMARY KEY (owner, task_id, webhook_id)
);

CREATE INDEX webhook_due ON webhook (task_id) WHERE done IS 0;

CREATE INDEX thread_created ON thread (owner, created_at);

CREATE INDEX thread_expires ON thread (pk) WHERE expires;

CREATE INDEX run_live ON run (thread_pk) WHERE status IN ('pending', 'running');

CREATE TABLE item (
	owner VARCHAR NOT NULL, 
	namespace VARCHAR NOT NULL, 
	"key" VARCHAR NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	expires_at BIGINT, 
	ttl BIGINT, 
	value BLOB NOT NULL, 
	PRIMARY KEY (owner, namespace, "key")
);

CREATE INDEX item_expires ON item (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE checkpoint (
	owner VARCHAR NOT NULL, 
	thread_id VARCHAR NOT NULL, 
	ns VARCHAR NOT NULL, 
	checkpoint_id VARCHAR NOT NULL, 
	parent_id VARCHAR, 
	run_id VARCHAR, 
	form VARCHAR NOT NULL, 
	body BLOB NOT NULL, channels BLOB, 
	PRIMARY KEY (owner, thread_id, ns, checkpoint_id)
);

CREATE INDEX checkpoint_run ON checkpoint (owner, run_id);

CREATE TABLE checkpoint_write (
	owner VARCHAR NOT NULL, 
	thread_id VARCHAR NOT NULL, 
	ns VARCHAR NOT NULL, 
	checkpoint_id VARCHAR NOT NULL, 
	task_id VARCHAR NOT NULL, 
	idx INTEGER NOT NULL, 
	task_path VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	run_id VARCHAR, 
	form VARCHAR NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (owner, thread_id, ns, checkpoint_id, task_id, idx)
);

CREATE INDEX checkpoint_write_run ON checkpoint_write (owner, run_id);

CREATE TABLE tally (
	owner VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	agent VARCHAR NOT NULL, 
	rows INTEGER NOT NULL, 
	PRIMARY KEY (owner, kind, agent)
)
 WITHOUT ROWID

;

CREATE TRIGGER thread_added AFTER INSERT ON thread WHEN NOT new.ephemeral BEGIN INSERT INTO tally (owner, kind, agent, rows) VALUES (new.owner, 'thread', '', 1)
    ON CONFLICT (owner, kind, agent) DO UPDATE SET rows = rows + 1; END;

CREATE TRIGGER thread_taken AFTER DELETE ON thread WHEN NOT old.ephemeral BEGIN UPDATE tally SET rows = rows - 1 WHERE (owner, kind, agent) = (old.owner, 'thread', ''); END;

CREATE TRIGGER thread_shown AFTER UPDATE OF ephemeral ON thread WHEN old.ephemeral AND NOT new.ephemeral BEGIN INSERT INTO tally (owner, kind, agent, rows) VALUES (new.owner, 'thread', '', 1)
    ON CONFLICT (owner, kind, agent) DO UPDATE SET rows = rows + 1; END;

CREATE TRIGGER thread_hidden AFTER UPDATE OF ephemeral ON thread WHEN new.ephemeral AND NOT old.ephemeral BEGIN UPDATE tally SET rows = rows - 1 WHERE (owner, kind, agent) = (old.owner, 'thread', ''); END;

CREATE TRIGGER task_added AFTER INSERT ON task BEGIN INSERT INTO tally (owner, kind, agent, rows) VALUES (new.owner, 'task', new.agent, 1)
    ON CONFLICT (owner, kind, agent) DO UPDATE SET rows = rows + 1; END;

CREATE TRIGGER task_taken AFTER DELETE ON task BEGIN UPDATE tally SET rows = rows - 1 WHERE (owner, kind, agent) = (old.owner, 'task', old.agent); END;

CREATE TABLE remnant (
	thread_pk INTEGER NOT NULL, 
	PRIMARY KEY (thread_pk)
);

CREATE TABLE assistant (
	owner VARCHAR NOT NULL, 
	assistant_id VARCHAR NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (owner, assistant_id)
);

CREATE TABLE assistant_version (
	owner VARCHAR NOT NULL, 
	assistant_id VARCHAR NOT NULL, 
	version INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (owner, assistant_id, version)
);

CREATE TABLE cron (
	owner VARCHAR NOT NULL, 
	cron_id VARCHAR NOT NULL, 
	next_run BIGINT, 
	body BLOB NOT NULL, 
	PRIMARY KEY (owner, cron_id)
);

CREATE INDEX cron_due ON cron (next_run) WHERE next_run IS NOT NULL;

CREATE TABLE thread_value (
	thread_pk INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	body BLOB, 
	PRIMARY KEY (thread_pk)
);

CREATE TABLE checkpoint_value (
	owner VARCHAR NOT NULL, 
	thread_id VARCHAR NOT NULL, 
	ns VARCHAR NOT NULL, 
	channel VARCHAR NOT NULL, 
	checkpoint_id VARCHAR NOT NULL, 
	base_id VARCHAR, 
	form VARCHAR NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (owner, thread_id, ns, channel, checkpoint_id)
);

CREATE INDEX thread_updated ON thread (owner, updated_at);

CREATE INDEX thread_status ON thread (owner, status, created_at);

CREATE INDEX thread_status_updated ON thread (owner, status, updated_at);

CREATE TABLE node (
	node_id VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	seen_at BIGINT NOT NULL, config VARCHAR, 
	PRIMARY KEY (node_id)
);

CREATE TABLE grant (
	thread_pk BIGINT NOT NULL, 
	grantee VARCHAR NOT NULL, 
	level VARCHAR NOT NULL, 
	"by" VARCHAR NOT NULL, 
	at BIGINT NOT NULL, 
	expires BIGINT, 
	PRIMARY KEY (thread_pk, grantee)
);

CREATE INDEX grant_grantee ON grant (grantee);

CREATE TABLE api_key (
	key_id VARCHAR NOT NULL, 
	owner VARCHAR NOT NULL, 
	created_at BIGINT NOT NULL, 
	created_by VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	expires_at BIGINT, 
	revoked_at BIGINT, 
	last_used_at BIGINT, 
	previous_digest VARCHAR, 
	previous_until BIGINT, 
	body BLOB NOT NULL, 
	PRIMARY KEY (key_id), 
	UNIQUE (digest)
);

CREATE TABLE agent (
	name VARCHAR NOT NULL, 
	revision INTEGER NOT NULL, 
	changed_at BIGINT NOT NULL, 
	changed_by VARCHAR NOT NULL, 
	spec BLOB NOT NULL, 
	PRIMARY KEY (name)
);

CREATE TABLE disabled_agent (
	name VARCHAR NOT NULL, 
	running VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	changed_at BIGINT NOT NULL, 
	changed_by VARCHAR NOT NULL, 
	PRIMARY KEY (name)
);

CREATE TABLE audit (
	seq INTEGER NOT NULL, 
	at BIGINT NOT NULL, 
	node VARCHAR NOT NULL, 
	request_id VARCHAR NOT NULL, 
	trace_id VARCHAR NOT NULL, 
	protocol VARCHAR NOT NULL, 
	address VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	owner VARCHAR NOT NULL, 
	issuer VARCHAR NOT NULL, 
	credential VARCHAR NOT NULL, 
	action VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	target VARCHAR NOT NULL, 
	agent VARCHAR NOT NULL, 
	target_owner VARCHAR NOT NULL, 
	outcome VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	count INTEGER NOT NULL, 
	"before" VARCHAR NOT NULL, 
	"after" VARCHAR NOT NULL, 
	previous_hash VARCHAR NOT NULL, 
	hash VARCHAR NOT NULL, 
	PRIMARY KEY (seq)
);

CREATE INDEX audit_at ON audit (at);

CREATE TRIGGER audit_changed BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

CREATE TRIGGER audit_deleted BEFORE DELETE ON audit WHEN old.at > (CAST(strftime('%s', 'now') AS INTEGER) - 2592000) * 1000000 BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

CREATE INDEX run_created ON run (owner, created_at, run_id) WHERE created_at > 0;

CREATE INDEX run_newest ON run (created_at, owner, run_id);

CREATE INDEX run_erred ON run (owner, created_at, run_id) WHERE status IN ('error', 'timeout');

CREATE TABLE rate (
	"key" VARCHAR NOT NULL, 
	tat FLOAT NOT NULL, 
	PRIMARY KEY ("key")
);

CREATE TABLE spend (
	scope VARCHAR NOT NULL, 
	period VARCHAR NOT NULL, 
	input BIGINT NOT NULL, 
	output BIGINT NOT NULL, 
	cost BIGINT NOT NULL, 
	runs BIGINT NOT NULL, 
	unknown BIGINT NOT NULL, 
	extra_cost BIGINT NOT NULL, 
	extra_tokens BIGINT NOT NULL, 
	extra_runs BIGINT NOT NULL, 
	changed_at BIGINT NOT NULL, 
	PRIMARY KEY (scope, period)
);

CREATE TABLE consent (
	state VARCHAR NOT NULL, 
	owner VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	agent VARCHAR NOT NULL, 
	task_id VARCHAR NOT NULL, 
	interrupt_id VARCHAR NOT NULL, 
	expires_at BIGINT NOT NULL, 
	PRIMARY KEY (state)
);

CREATE INDEX consent_expires ON consent (expires_at);

CREATE TABLE agent_token (
	subject VARCHAR NOT NULL, 
	agent VARCHAR NOT NULL, 
	changed_at BIGINT NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (subject, agent)
);

CREATE INDEX tombstone_at ON tombstone (at);

CREATE TABLE thread_member (
	"key" BIGINT NOT NULL, 
	thread_pk INTEGER NOT NULL, 
	PRIMARY KEY ("key", thread_pk)
)
 WITHOUT ROWID

;

CREATE INDEX thread_member_thread ON thread_member (thread_pk);

CREATE TABLE event (
	id INTEGER NOT NULL, 
	thread_pk BIGINT NOT NULL GENERATED ALWAYS AS (id >> 31) VIRTUAL, 
	seq INTEGER NOT NULL GENERATED ALWAYS AS (id & 2147483647) VIRTUAL, 
	at BIGINT NOT NULL, 
	task_id VARCHAR, 
	run_id VARCHAR, 
	attempt INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (id)
)
