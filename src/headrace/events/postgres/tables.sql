-- The tables of an event store. Columns of `events` have the names that Debezium's outbox event router gives
-- them, so that `headrace capture --outbox <schema>.events` publishes them as they are.

CREATE TABLE @schema@.events (
    -- Whoever appends past what it knows of the log meets this key: see APPEND_EVENT in queries.py.
    position bigint PRIMARY KEY,
    aggregatetype text NOT NULL,
    aggregateid text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    id uuid NOT NULL,
    type text COLLATE "C" NOT NULL,
    schema_version integer NOT NULL,
    payload json NOT NULL,
    headers json NOT NULL,
    tags text[] NOT NULL,
    subjects text[] NOT NULL,
    recorded_at timestamptz NOT NULL,
    UNIQUE (aggregateid, version)
);

COMMENT ON COLUMN @schema@.events.aggregatetype IS 'the category of the stream';
COMMENT ON COLUMN @schema@.events.aggregateid IS 'the name of the stream';
COMMENT ON COLUMN @schema@.events.headers IS 'position, version, schema version, correlation, causation, actor';

CREATE INDEX events_by_type ON @schema@.events (type, position);
-- What waits to be put into this index is read by every search: it is kept short.
CREATE INDEX events_by_tag ON @schema@.events USING gin (tags) WITH (gin_pending_list_limit = 64) WHERE tags <> '{}';
CREATE INDEX events_by_subject ON @schema@.events USING gin (subjects) WHERE subjects <> '{}';

CREATE TABLE @schema@.event_types (
    type text,
    schema_version integer,
    PRIMARY KEY (type, schema_version)
);

CREATE TABLE @schema@.commands (
    id text PRIMARY KEY,
    fingerprint bytea NOT NULL,
    after_position bigint NOT NULL,
    last_position bigint NOT NULL,
    streams text[] NOT NULL,
    versions bigint[] NOT NULL,
    recorded_at timestamptz NOT NULL
);

CREATE TABLE @schema@.snapshots (
    stream text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    event_id uuid NOT NULL,
    fingerprint text NOT NULL,
    state bytea NOT NULL,
    checksum bytea NOT NULL
);

CREATE TABLE @schema@.subject_keys (
    subject text PRIMARY KEY,
    key bytea NOT NULL
);

CREATE TABLE @schema@.forgotten (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subject text NOT NULL UNIQUE,
    forgotten_at timestamptz NOT NULL,
    position bigint NOT NULL,
    event_count bigint NOT NULL,
    streams text[] NOT NULL,
    snapshots_dropped bigint NOT NULL
);
