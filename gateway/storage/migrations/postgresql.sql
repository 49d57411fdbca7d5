CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE agent (
	name VARCHAR COLLATE "C" NOT NULL,
	revision INTEGER NOT NULL,
	changed_at BIGINT NOT NULL,
	changed_by VARCHAR COLLATE "C" NOT NULL,
	spec BYTEA NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE agent_token (
	subject VARCHAR COLLATE "C" NOT NULL,
	agent VARCHAR COLLATE "C" NOT NULL,
	changed_at BIGINT NOT NULL,
	body BYTEA NOT NULL,
	PRIMARY KEY (subject, agent)
);

CREATE TABLE alias (
	owner VARCHAR COLLATE "C" NOT NULL,
	protocol VARCHAR COLLATE "C" NOT NULL,
	agent VARCHAR COLLATE "C" NOT NULL,
	alias VARCHAR COLLATE "C" NOT NULL,
	thread_id VARCHAR COLLATE "C" NOT NULL,
	PRIMARY KEY (owner, protocol, agent, alias)
);

CREATE INDEX alias_thread ON alias (owner, thread_id);

CREATE TABLE api_key (
	key_id VARCHAR COLLATE "C" NOT NULL,
	owner VARCHAR COLLATE "C" NOT NULL,
	created_at BIGINT NOT NULL,
	created_by VARCHAR COLLATE "C" NOT NULL,
	digest VARCHAR COLLATE "C" NOT NULL,
	expires_at BIGINT,
	revoked_at BIGINT,
	last_used_at BIGINT,
	previous_digest VARCHAR COLLATE "C",
	previous_until BIGINT,
	body BYTEA NOT NULL,
	PRIMARY KEY (key_id),
	UNIQUE (digest)
);

CREATE TABLE assistant (
	owner VARCHAR COLLATE "C" NOT NULL,
	assistant_id VARCHAR COLLATE "C" NOT NULL,
	body BYTEA NOT NULL,
	PRIMARY KEY (owner, assistant_id)
);

CREATE TABLE assistant_version (
	owner VARCHAR COLLATE "C" NOT NULL,
	assistant_id VARCHAR COLLATE "C" NOT NULL,
	version INTEGER NOT NULL,
	body BYTEA NOT NULL,
	PRIMARY KEY (owner, assistant_id, version)
);

CREATE TABLE audit (
	seq BIGINT NOT NULL,
	at BIGINT NOT NULL,
	node VARCHAR COLLATE "C" NOT NULL,
	request_id VARCHAR COLLATE "C" NOT NULL,
	trace_id VARCHAR COLLATE "C" NOT NULL,
	protocol VARCHAR COLLATE "C" NOT NULL,
	address VARCHAR COLLATE "C" NOT NULL,
	subject VARCHAR COLLATE "C" NOT NULL,
	owner VARCHAR COLLATE "C" NOT NULL,
	issuer VARCHAR COLLATE "C" NOT NULL,
	credential VARCHAR COLLATE "C" NOT NULL,
	action VARCHAR COLLATE "C" NOT NULL,
	kind VARCHAR COLLATE "C" NOT NULL,
	target VARCHAR COLLATE "C" NOT NULL,
	agent VARCHAR COLLATE "C" NOT NULL,
	target_owner VARCHAR COLLATE "C" NOT NULL,
	outcome VARCHAR COLLATE "C" NOT NULL,
	reason VARCHAR COLLATE "C" NOT NULL,
	count INTEGER NOT NULL,
	before VARCHAR COLLATE "C" NOT NULL,
	after VARCHAR COLLATE "C" NOT NULL,
	previous_hash VARCHAR COLLATE "C" NOT NULL,
	hash VARCHAR COLLATE "C" NOT NULL,
	PRIMARY KEY (seq)
);

CREATE INDEX audit_at ON audit (at);

CREATE TABLE blob_use (
	thread_pk BIGINT NOT NULL,
	blob VARCHAR COLLATE "C" NOT NULL,
	body BYTEA NOT NULL,
	PRIMARY KEY (thread_pk, blob)
);

CREATE INDEX blob_use_blob ON blob_use (blob);

CREATE TABLE checkpoint (
	owner VARCHAR COLLATE "C" NOT NULL,
	thread_id VARCHAR COLLATE "C" NOT NULL,
	ns VARCHAR COLLATE "C" NOT NULL,
	checkpoint_id VARCHAR COLLATE "C" NOT NULL,
	parent_id VARCHAR COLLATE "C",
	run_id VARCHAR COLLATE "C",
	form VARCHAR COLLATE "C" NOT NULL,
	body BYTEA NOT NULL,
	channels BYTEA,
	PRIMARY KEY (owner, thread_id, ns, checkpoint_id)
);

CREATE INDEX checkpoint_run ON checkpoint (owner, run_id);

CREATE TABLE checkpoint_value (
	owner VARCHAR COLLATE "C" NOT NULL,
	thread_id VARCHAR COLLATE "C" NOT NULL,
	ns VARCHAR COLLATE "C" NOT NULL,
	channel VARCHAR COLLATE "C" NOT NULL,
	checkpoint_id VARCHAR COLLATE "C" NOT NULL,
	base_id VARCHAR COLLATE "C",
	form VARCHAR COLLATE "C" NOT NULL,
	body BYTEA NOT NULL,
	PRIMARY KEY (owner, thread_id, ns, channel, checkpoint_id)
);

CREATE TABLE checkpoint_write (
	owner VARCHAR COLLATE "C" NOT NULL,
	thread_id VARCHAR COLLATE "C" NOT NULL,
	ns VARCHAR COLLATE "C" NOT NULL,
	checkpoint_id VARCHAR COLLATE "C" NOT NULL,
	task_id VARCHAR COLLATE "C" NOT NULL,
	idx INTEGER NOT NULL,
	task_path VARCHAR COLLATE "C" NOT NULL,
	channel VARCHAR COLLATE "C" NOT NULL,
	run_id VARCHAR COLLATE "C",
	form VARCHAR COLLATE "C" NOT NULL,
	body BYTEA NOT NULL,
	PRIMARY KEY (owner, thread_id, ns, checkpoint_id, task_id, idx)
);

CREATE INDEX checkpoint_write_run ON checkpoint_write (owner, run_id);

CREATE TABLE consent (
	state VARCHAR COLLATE "C" NOT NULL,
	owner VARCHAR COLLATE "C" NOT NULL,
	subject VARCHAR COLLATE "C" NOT NULL,
	agent VARCHAR COLLATE "C" NOT NULL,
	task_id VARCHAR COLLATE "C" NOT NULL,
	interrupt_id VARCHAR COLLATE "C" NOT NULL,
	expires_at BIGINT NOT NULL,
	PRIMARY KEY (state)
);

CREATE INDEX consent_expires ON consent (expires_at);

CREATE TABLE cron (
	owner VARCHAR COLLATE "C" NOT NULL,
	cron_id VARCHAR COLLATE "C" NOT NULL,
	next_run BIGINT,
	body BYTEA NOT NULL,
	PRIMARY KEY (owner, cron_id)
);

CREATE INDEX cron_due ON cron (next_run) WHERE next_run IS NOT NULL;

CREATE TABLE disabled_agent (
	name VARCHAR COLLATE "C" NOT NULL,
	running VARCHAR COLLATE "C" NOT NULL,
	reason VARCHAR COLLATE "C" NOT NULL,
	changed_at BIGINT NOT NULL,
	changed_by VARCHAR COLLATE "C" NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE event (
	thread_pk BIGINT NOT NULL,
	seq INTEGER NOT NULL,
	at BIGINT NOT NULL,
	task_id VARCHAR COLLATE "C",
	run_id VARCHAR COLLATE "C",
	attempt INTEGER NOT NULL,
	body BYTEA NOT NULL,
	PRIMARY KEY (thread_pk, seq)
) PARTITION BY RANGE (thread_pk);

CREATE TABLE event_0 PARTITION OF event FOR VALUES FROM (MINVALUE) TO (1000000);

CREATE TABLE event_rest PARTITION OF event DEFAULT;

CREATE TABLE interrupt (
	owner VARCHAR COLLATE "C" NOT NULL,
	task_id VARCHAR COLLATE "C" NOT NULL,
	interrupt_id VARCHAR COLLATE "C" NOT NULL,
	thread_pk BIGINT NOT NULL,
	run_id VARCHAR COLLATE "C" NOT NULL,
	seq INTEGER NOT NULL,
	action VARCHAR COLLATE "C",
	body BYTEA NOT NULL,
	PRIMARY KEY (owner, task_id, interrupt_id)
);

CREATE INDEX interrupt_open ON interrupt (thread_pk, seq) WHERE action IS NULL;

CREATE INDEX interrupt_thread ON interrupt (thread_pk);

CREATE TABLE item (
	owner VARCHAR COLLATE "C" NOT NULL,
	namespace VARCHAR COLLATE "C" NOT NULL,
	key VARCHAR COLLATE "C" NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	expires_at BIGINT,
	ttl BIGINT,
	value BYTEA NOT NULL,
	PRIMARY KEY (owner, namespace, key)
);

CREATE INDEX item_expires ON item (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE "grant" (
	thread_pk BIGINT NOT NULL,
	grantee VARCHAR COLLATE "C" NOT NULL,
	level VARCHAR COLLATE "C" NOT NULL,
	by VARCHAR COLLATE "C" NOT NULL,
	at BIGINT NOT NULL,
	expires BIGINT,
	PRIMARY KEY (thread_pk, grantee)
);

CREATE TABLE meta (
	name VARCHAR COLLATE "C" NOT NULL,
	value VARCHAR COLLATE "C" NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE node (
	node_id VARCHAR COLLATE "C" NOT NULL,
	name VARCHAR COLLATE "C" NOT NULL,
	seen_at BIGINT NOT NULL,
	config VARCHAR COLLATE "C",
	PRIMARY KEY (node_id)
);

CREATE UNLOGGED TABLE rate (
	key VARCHAR COLLATE "C" NOT NULL,
	tat DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (key)
);

CREATE TABLE remnant (
	thread_pk BIGINT NOT NULL,
	PRIMARY KEY (thread_pk)
);

CREATE TABLE run (
	owner VARCHAR COLLATE "C" NOT NULL,
	run_id VARCHAR COLLATE "C" NOT NULL,
	thread_pk BIGINT NOT NULL,
	task_id VARCHAR COLLATE "C" NOT NULL,
	agent VARCHAR COLLATE "C" NOT NULL,
	status VARCHAR COLLATE "C" NOT NULL,
	attempt INTEGER NOT NULL,
	created_at BIGINT NOT NULL,
	start_after BIGINT,
	first_seq INTEGER NOT NULL,
	last_seq INTEGER NOT NULL,
	removed BOOLEAN DEFAULT false NOT NULL,
	node VARCHAR COLLATE "C",
	body BYTEA NOT NULL,
	crashes INTEGER DEFAULT 0 NOT NULL,
	PRIMARY KEY (owner, run_id)
);

CREATE UNIQUE INDEX run_active ON run (thread_pk) WHERE status = 'running';

CREATE INDEX run_live ON run (thread_pk) WHERE status IN ('pending', 'running');

CREATE INDEX run_thread ON run (thread_pk, first_seq);

CREATE INDEX run_created ON run (owner, created_at, run_id) WHERE created_at > 0;

CREATE INDEX run_newest ON run (created_at, owner, run_id);

CREATE INDEX run_erred ON run (owner, created_at, run_id) WHERE status IN ('error', 'timeout');

CREATE TABLE spend (
	scope VARCHAR COLLATE "C" NOT NULL,
	period VARCHAR COLLATE "C" NOT NULL,
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

CREATE TABLE tally (
	owner VARCHAR COLLATE "C" NOT NULL,
	kind VARCHAR COLLATE "C" NOT NULL,
	agent VARCHAR COLLATE "C" NOT NULL,
	rows INTEGER NOT NULL,
	PRIMARY KEY (owner, kind, agent)
);

CREATE TABLE task (
	owner VARCHAR COLLATE "C" NOT NULL,
	task_id VARCHAR COLLATE "C" NOT NULL,
	thread_pk BIGINT NOT NULL,
	thread_id VARCHAR COLLATE "C" NOT NULL,
	agent VARCHAR COLLATE "C" NOT NULL,
	state VARCHAR COLLATE "C" NOT NULL,
	created_at BIGINT NOT NULL,
	changed_at BIGINT NOT NULL,
	first_seq INTEGER NOT NULL,
	last_seq INTEGER NOT NULL,
	continues VARCHAR COLLATE "C",
	body BYTEA NOT NULL
);

CREATE INDEX task_changed ON task (owner, changed_at, task_id);

CREATE INDEX task_continues ON task (owner, continues) WHERE continues IS NOT NULL;

CREATE INDEX task_open ON task (thread_pk) WHERE state IN ('submitted', 'working', 'input_required', 'auth_required', 'cancelling');

CREATE INDEX task_thread ON task (thread_pk);

-- The newest index of its table: of those that cost the same, as all do before anything is known of the table, PostgreSQL
-- takes that one, and task_changed holds all tasks of an owner.
ALTER TABLE task ADD PRIMARY KEY (owner, task_id);

CREATE TABLE thread (
	pk BIGINT NOT NULL,
	owner VARCHAR COLLATE "C" NOT NULL,
	thread_id VARCHAR COLLATE "C" NOT NULL,
	created_at BIGINT NOT NULL,
	changed_at BIGINT NOT NULL,
	ephemeral BOOLEAN NOT NULL,
	expires BOOLEAN DEFAULT false NOT NULL,
	status VARCHAR COLLATE "C" DEFAULT 'idle' NOT NULL,
	updated_at BIGINT DEFAULT 0 NOT NULL,
	body BYTEA NOT NULL,
	PRIMARY KEY (pk)
);

CREATE INDEX thread_created ON thread (owner, created_at);

CREATE INDEX thread_expires ON thread (pk) WHERE expires;

CREATE SEQUENCE thread_key;

CREATE UNIQUE INDEX thread_id ON thread (owner, thread_id);

CREATE INDEX thread_status ON thread (owner, status, created_at);

CREATE INDEX grant_grantee ON "grant" (grantee);

CREATE INDEX thread_status_updated ON thread (owner, status, updated_at);

CREATE INDEX thread_updated ON thread (owner, updated_at);

CREATE TABLE thread_member (
	key BIGINT NOT NULL,
	thread_pk BIGINT NOT NULL,
	PRIMARY KEY (key, thread_pk)
);

CREATE INDEX thread_member_thread ON thread_member (thread_pk);

CREATE TABLE thread_value (
	thread_pk BIGINT NOT NULL,
	seq INTEGER NOT NULL,
	body BYTEA,
	PRIMARY KEY (thread_pk)
);

CREATE TABLE tombstone (
	owner VARCHAR COLLATE "C" NOT NULL,
	thread_id VARCHAR COLLATE "C" NOT NULL,
	at BIGINT NOT NULL,
	PRIMARY KEY (owner, thread_id)
);

CREATE INDEX tombstone_at ON tombstone (at);

CREATE TABLE webhook (
	owner VARCHAR COLLATE "C" NOT NULL,
	task_id VARCHAR COLLATE "C" NOT NULL,
	webhook_id VARCHAR COLLATE "C" NOT NULL,
	thread_id VARCHAR COLLATE "C" NOT NULL,
	dialect VARCHAR COLLATE "C" NOT NULL,
	url VARCHAR COLLATE "C" NOT NULL,
	delivered_seq INTEGER NOT NULL,
	done BOOLEAN NOT NULL,
	node VARCHAR COLLATE "C",
	body BYTEA NOT NULL,
	failures INTEGER DEFAULT 0 NOT NULL,
	next_try BIGINT,
	reason VARCHAR COLLATE "C",
	given_up_at BIGINT,
	PRIMARY KEY (owner, task_id, webhook_id)
);

CREATE INDEX webhook_due ON webhook (task_id) WHERE done IS FALSE;

CREATE FUNCTION tally_thread_shown() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tally (owner, kind, agent, rows) VALUES (new.owner, 'thread', '', 1)
        ON CONFLICT (owner, kind, agent) DO UPDATE SET rows = tally.rows + 1;
    RETURN NULL;
END
$$;

CREATE FUNCTION tally_thread_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tally SET rows = rows - 1 WHERE (owner, kind, agent) = (old.owner, 'thread', '');
    RETURN NULL;
END
$$;

CREATE FUNCTION tally_task_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tally (owner, kind, agent, rows) VALUES (new.owner, 'task', new.agent, 1)
        ON CONFLICT (owner, kind, agent) DO UPDATE SET rows = tally.rows + 1;
    RETURN NULL;
END
$$;

CREATE FUNCTION tally_task_taken() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tally SET rows = rows - 1 WHERE (owner, kind, agent) = (old.owner, 'task', old.agent);
    RETURN NULL;
END
$$;

CREATE TRIGGER thread_added AFTER INSERT ON thread FOR EACH ROW WHEN (NOT new.ephemeral) EXECUTE FUNCTION tally_thread_shown();

CREATE TRIGGER thread_taken AFTER DELETE ON thread FOR EACH ROW WHEN (NOT old.ephemeral) EXECUTE FUNCTION tally_thread_gone();

CREATE TRIGGER thread_shown AFTER UPDATE OF ephemeral ON thread FOR EACH ROW WHEN (old.ephemeral AND NOT new.ephemeral) EXECUTE FUNCTION tally_thread_shown();

CREATE TRIGGER thread_hidden AFTER UPDATE OF ephemeral ON thread FOR EACH ROW WHEN (new.ephemeral AND NOT old.ephemeral) EXECUTE FUNCTION tally_thread_gone();

CREATE TRIGGER task_added AFTER INSERT ON task FOR EACH ROW EXECUTE FUNCTION tally_task_added();

CREATE TRIGGER task_taken AFTER DELETE ON task FOR EACH ROW EXECUTE FUNCTION tally_task_taken();

CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER audit_changed BEFORE UPDATE ON audit FOR EACH ROW EXECUTE FUNCTION refuse_audit_change();

CREATE TRIGGER audit_deleted BEFORE DELETE ON audit FOR EACH ROW WHEN (old.at > (extract(epoch FROM clock_timestamp()) - 2592000) * 1000000) EXECUTE FUNCTION refuse_audit_change();

CREATE TRIGGER audit_emptied BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()
