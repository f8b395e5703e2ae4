"""What is asked of the tables, by name. `@schema@` is where they are."""

from __future__ import annotations

from typing import Final

EVENT: Final = """
SELECT position, aggregateid, version, id, type, schema_version, payload, headers, tags, subjects, recorded_at
FROM @schema@.events
"""

APPEND: Final = """
SELECT * FROM @schema@.append(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""

APPEND_ONE: Final = """
SELECT * FROM @schema@.append_one(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""

APPEND_EVENT: Final = """
INSERT INTO @schema@.events AS e
SELECT head.place + 1, %s, %s, head.number + 1, %s::uuid, %s, %s::int, %s::json,
       @schema@.headers_of(head.place + 1, head.number + 1, %s), %s::text[], %s::text[],
       greatest(coalesce(head.given_at, clock_timestamp()), head.last_at)
FROM (
    SELECT asked.expected, asked.given_at, coalesce(last.position, 0) AS place, last.recorded_at AS last_at,
           coalesce((SELECT s.version FROM @schema@.events AS s
                     WHERE s.aggregateid = asked.stream AND s.version >= asked.expected
                     ORDER BY s.version DESC LIMIT 1), 0) AS number
    FROM (
        SELECT %s AS stream, %s::bigint AS expected, %s::timestamptz AS given_at
    ) AS asked LEFT JOIN LATERAL (
        SELECT l.position, l.recorded_at FROM @schema@.events AS l ORDER BY l.position DESC LIMIT 1
    ) AS last ON true
    WHERE pg_try_advisory_xact_lock(@lock@)
    OFFSET 0
) AS head
WHERE head.expected = -1 OR head.expected = head.number
ON CONFLICT DO NOTHING
RETURNING e.position, e.version,
          CASE WHEN NOT pg_try_advisory_xact_lock(@listening@) THEN pg_notify(@channel@, '') END
"""
"""One event for one stream, without a function: or none, where that has to decide.

What it knows of the log may be older than the lock that it gets. Then the position that it would give out is
given out already, which is a conflict, and it does nothing. It relies on headers_of, so that later functions
can keep it from appending past them (see functions.sql)."""

REGISTER_TYPES: Final = """
INSERT INTO @schema@.event_types SELECT * FROM unnest(%s::text[], %s::int[]) ON CONFLICT DO NOTHING
"""

COMMAND: Final = """
SELECT fingerprint, after_position, last_position, streams, versions FROM @schema@.commands WHERE id = %s
"""

HEAD: Final = "SELECT coalesce(max(position), 0) FROM @schema@.events"

POSITION_AT: Final = "SELECT @schema@.position_at(%s)"

STREAM_VERSION: Final = "SELECT coalesce(max(version), 0) FROM @schema@.events WHERE aggregateid = %s"

READ_STREAM: Final = EVENT + "WHERE aggregateid = %s AND version > %s ORDER BY version LIMIT %s"

READ_FOLDED: Final = """
SELECT version, type, schema_version, payload FROM @schema@.events
WHERE aggregateid = %s AND version > %s ORDER BY version LIMIT %s
"""

READ_FOLDED_UNTIL: Final = """
SELECT version, type, schema_version, payload FROM @schema@.events
WHERE aggregateid = %s AND version > %s AND position <= %s ORDER BY version LIMIT %s
"""

READ_ALL: Final = EVENT + "WHERE position > %s ORDER BY position LIMIT %s"

READ_BY_TYPE: Final = EVENT + "WHERE position > %s AND type = ANY (%s::text[]) ORDER BY position LIMIT %s"

READ_BY_TAG: Final = (
    EVENT + "WHERE position > %s AND tags @> %s::text[] AND tags <> '{}' ORDER BY position LIMIT %s"
)

READ_BY_TYPE_AND_TAG: Final = (
    EVENT
    + """WHERE position > %s AND type = ANY (%s::text[]) AND tags @> %s::text[] AND tags <> '{}'
ORDER BY position LIMIT %s"""
)

STREAMS: Final = """
WITH RECURSIVE named AS (
    (SELECT aggregateid AS stream, 1 AS number FROM @schema@.events
     WHERE aggregateid > %(after)s AND aggregateid < %(before)s ORDER BY aggregateid LIMIT 1)
    UNION ALL
    SELECT (SELECT aggregateid FROM @schema@.events
            WHERE aggregateid > named.stream AND aggregateid < %(before)s ORDER BY aggregateid LIMIT 1),
           number + 1
    FROM named WHERE stream IS NOT NULL AND number < %(limit)s
)
SELECT stream, last.version, last.position
FROM named CROSS JOIN LATERAL (
    SELECT version, position FROM @schema@.events WHERE aggregateid = stream ORDER BY version DESC LIMIT 1
) AS last
ORDER BY stream
"""
"""Goes from one name to the next by the index, and so does not read all events of a stream."""

TYPES: Final = """
SELECT type, schema_version, count(*), max(position) FROM @schema@.events
GROUP BY type, schema_version ORDER BY type COLLATE "C", schema_version
"""

STORED_TYPES: Final = "SELECT type, schema_version FROM @schema@.event_types"

SNAPSHOT: Final = """
SELECT forgotten.number, s.version, s.fingerprint, s.state, s.checksum, e.position
FROM (SELECT coalesce(max(number), 0) AS number FROM @schema@.forgotten) AS forgotten
LEFT JOIN (@schema@.snapshots AS s JOIN @schema@.events AS e
           ON e.aggregateid = s.stream AND e.version = s.version AND e.id = s.event_id)
ON s.stream = %s
"""

LOCK_FORGETTING: Final = "SELECT pg_advisory_xact_lock(@forgetting@)"
"""Excludes that a person is forgotten while a snapshot is saved that may have its data."""

LOCK_SAVING: Final = "SELECT pg_advisory_xact_lock_shared(@forgetting@)"

LOCK_LISTENING: Final = "SELECT pg_advisory_lock_shared(@listening@)"
"""Held for as long as a connection listens: without a listener, nobody is notified, which is not cheap."""

SAVE_SNAPSHOT: Final = """
INSERT INTO @schema@.snapshots (stream, version, event_id, fingerprint, state, checksum)
SELECT aggregateid, version, id, %s, %s, %s FROM @schema@.events
WHERE aggregateid = %s AND version = %s
  AND (SELECT coalesce(max(number), 0) FROM @schema@.forgotten) = %s
ON CONFLICT (stream) DO UPDATE SET version = excluded.version, event_id = excluded.event_id,
    fingerprint = excluded.fingerprint, state = excluded.state, checksum = excluded.checksum
RETURNING stream
"""

DROP_SNAPSHOTS: Final = "DELETE FROM @schema@.snapshots WHERE stream = ANY (%s::text[]) RETURNING stream"

DROP_ALL_SNAPSHOTS: Final = "DELETE FROM @schema@.snapshots RETURNING stream"

KEYS: Final = """
SELECT subject, key, NULL::timestamptz FROM @schema@.subject_keys WHERE subject = ANY (%s::text[])
UNION ALL
SELECT subject, NULL, forgotten_at FROM @schema@.forgotten WHERE subject = ANY (%s::text[])
"""

MAKE_KEYS: Final = """
INSERT INTO @schema@.subject_keys
SELECT subject, key FROM unnest(%s::text[], %s::bytea[]) AS made (subject, key)
WHERE NOT EXISTS (SELECT FROM @schema@.forgotten AS f WHERE f.subject = made.subject)
ON CONFLICT DO NOTHING
"""

FORGOTTEN: Final = """
SELECT position, forgotten_at, event_count, streams, snapshots_dropped
FROM @schema@.forgotten WHERE subject = %s
"""

CONCERNED: Final = """
SELECT count(*), coalesce(array_agg(DISTINCT aggregateid ORDER BY aggregateid), '{}')
FROM @schema@.events WHERE subjects @> ARRAY[%s::text] AND subjects <> '{}'
"""

DESTROY_KEY: Final = "DELETE FROM @schema@.subject_keys WHERE subject = %s"

REMEMBER_FORGOTTEN: Final = """
INSERT INTO @schema@.forgotten (subject, forgotten_at, position, event_count, streams, snapshots_dropped)
SELECT %s, recorded_at, position, %s, %s, %s FROM @schema@.events WHERE position = %s
RETURNING forgotten_at
"""
