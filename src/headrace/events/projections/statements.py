"""What is said to PostgreSQL about read models. `{control}` is the schema of the tables of record.

generations   one row for each making of a projection's data; its lock is what batches wait for
dead_letters  events that a projection could not take, with the cause
effects       what was asked for, and what became of it: held, due, fired or failed
"""

from __future__ import annotations

from typing import Final

CREATE: Final = """
CREATE SCHEMA IF NOT EXISTS {control};
CREATE TABLE IF NOT EXISTS {control}.generations (
    projection text NOT NULL,
    generation integer NOT NULL,
    version integer NOT NULL,
    position bigint NOT NULL DEFAULT 0,
    state text NOT NULL CHECK (state IN ('building', 'live', 'retired')),
    views text[] NOT NULL DEFAULT '{{}}',
    is_cleared boolean NOT NULL DEFAULT false,
    made_at timestamptz NOT NULL DEFAULT now(),
    live_at timestamptz,
    PRIMARY KEY (projection, generation)
);
CREATE UNIQUE INDEX IF NOT EXISTS generations_live ON {control}.generations (projection) WHERE state = 'live';
CREATE UNIQUE INDEX IF NOT EXISTS generations_building ON {control}.generations (projection)
    WHERE state = 'building';
CREATE TABLE IF NOT EXISTS {control}.dead_letters (
    projection text NOT NULL,
    generation integer NOT NULL,
    position bigint NOT NULL,
    stream text NOT NULL,
    event_id text NOT NULL,
    type text NOT NULL,
    cause text NOT NULL,
    attempt_count integer NOT NULL,
    buried_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (projection, generation, position)
);
CREATE TABLE IF NOT EXISTS {control}.effects (
    projection text NOT NULL,
    effect_id uuid NOT NULL,
    generation integer NOT NULL,
    position bigint NOT NULL,
    kind text NOT NULL,
    payload jsonb NOT NULL,
    state text NOT NULL CHECK (state IN ('held', 'due', 'fired', 'failed')),
    attempt_count integer NOT NULL DEFAULT 0,
    due_at timestamptz NOT NULL DEFAULT now(),
    fired_at timestamptz,
    cause text,
    PRIMARY KEY (projection, effect_id, generation)
);
CREATE UNIQUE INDEX IF NOT EXISTS effects_once ON {control}.effects (projection, effect_id)
    WHERE state <> 'held';
CREATE INDEX IF NOT EXISTS effects_due ON {control}.effects (projection, due_at, position)
    WHERE state = 'due';
"""

IS_CREATED: Final = "SELECT 1 WHERE to_regclass(%s) IS NOT NULL"

GENERATIONS: Final = """
SELECT generation, version, position, state FROM {control}.generations
WHERE projection = %s AND state <> 'retired' ORDER BY state DESC
"""
ADD_GENERATION: Final = """
INSERT INTO {control}.generations (projection, generation, version, state, live_at)
SELECT %(projection)s, coalesce(max(generation), 0) + 1, %(version)s, %(state)s,
       CASE WHEN %(state)s = 'live' THEN now() END
FROM {control}.generations WHERE projection = %(projection)s
RETURNING generation, version, position, state
"""
LOCK_GENERATION: Final = """
SELECT generation, version, position, state FROM {control}.generations
WHERE projection = %s AND generation = %s FOR UPDATE
"""
LOCK_LIVE: Final = """
SELECT generation, version, position, state, views FROM {control}.generations
WHERE projection = %s AND state = 'live' FOR UPDATE
"""
LIVE_POSITION: Final = "SELECT position FROM {control}.generations WHERE projection = %s AND state = 'live'"
ADVANCE: Final = """
UPDATE {control}.generations SET position = greatest(position, %s) WHERE projection = %s AND generation = %s
"""
RETIRE: Final = "UPDATE {control}.generations SET state = 'retired' WHERE projection = %s AND generation = %s"
MAKE_LIVE: Final = """
UPDATE {control}.generations SET state = 'live', live_at = now() WHERE projection = %s AND generation = %s
"""
SET_VIEWS: Final = "UPDATE {control}.generations SET views = %s WHERE projection = %s AND generation = %s"
RETIRED: Final = """
SELECT generation FROM {control}.generations
WHERE projection = %s AND state = 'retired' AND NOT is_cleared ORDER BY generation
"""
BEHIND: Final = """
SELECT projection FROM {control}.generations WHERE state = 'live' AND position < %s ORDER BY projection
"""
UNCLEARED: Final = "SELECT projection, generation FROM {control}.generations WHERE NOT is_cleared"
FORGET_GENERATION: Final = """
WITH letters AS (DELETE FROM {control}.dead_letters WHERE projection = %(projection)s
                 AND generation = %(generation)s),
     held AS (DELETE FROM {control}.effects WHERE projection = %(projection)s
              AND generation = %(generation)s AND state = 'held')
UPDATE {control}.generations SET is_cleared = true
WHERE projection = %(projection)s AND generation = %(generation)s
"""
TABLES: Final = """
SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %s AND relkind IN ('r', 'p', 'v', 'm') ORDER BY relname
"""
TAKEN: Final = """
SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %s AND relname = ANY(%s) ORDER BY relname
"""

BURY: Final = """
INSERT INTO {control}.dead_letters
    (projection, generation, position, stream, event_id, type, cause, attempt_count)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""
DEAD_LETTERS: Final = """
SELECT generation, letter.position, stream, event_id, type, cause, attempt_count
FROM {control}.dead_letters AS letter JOIN {control}.generations AS made USING (projection, generation)
WHERE projection = %s AND made.state <> 'retired' ORDER BY letter.position, generation
"""
DEAD_LETTER_COUNT: Final = """
SELECT count(*) FROM {control}.dead_letters JOIN {control}.generations AS made USING (projection, generation)
WHERE projection = %s AND made.state <> 'retired'
"""

ASK_FOR_EFFECT: Final = """
INSERT INTO {control}.effects (projection, effect_id, generation, position, kind, payload, state)
VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""
DROP_HELD: Final = """
DELETE FROM {control}.effects
WHERE projection = %s AND generation = %s AND state = 'held' AND position <= %s
"""
RELEASE_HELD: Final = """
UPDATE {control}.effects SET state = 'due', due_at = now()
WHERE projection = %s AND generation = %s AND state = 'held'
"""
TAKE_EFFECT: Final = """
SELECT effect_id, generation, kind, position, payload, attempt_count FROM {control}.effects
WHERE projection = %s AND state = 'due' AND due_at <= clock_timestamp()
ORDER BY due_at, position, effect_id LIMIT 1 FOR UPDATE SKIP LOCKED
"""
NOTE_FIRED: Final = """
UPDATE {control}.effects SET state = 'fired', fired_at = clock_timestamp(), attempt_count = attempt_count + 1,
    payload = '{{}}', cause = NULL
WHERE projection = %s AND effect_id = %s AND generation = %s
"""
NOTE_FAILURE: Final = """
UPDATE {control}.effects SET attempt_count = attempt_count + 1, cause = %s, state = %s,
    due_at = clock_timestamp() + make_interval(secs => %s)
WHERE projection = %s AND effect_id = %s AND generation = %s
"""
FAILED_EFFECTS: Final = """
SELECT effect_id, kind, position, payload, cause, attempt_count FROM {control}.effects
WHERE projection = %s AND state = 'failed' ORDER BY position, effect_id
"""
RETRY_EFFECTS: Final = """
UPDATE {control}.effects SET state = 'due', attempt_count = 0, due_at = clock_timestamp()
WHERE projection = %s AND state = 'failed'
"""
DROP_FAILED: Final = "DELETE FROM {control}.effects WHERE projection = %s AND state = 'failed'"
FIRED_AT: Final = """
SELECT fired_at FROM {control}.effects WHERE projection = %s AND effect_id = %s AND state = 'fired'
"""
