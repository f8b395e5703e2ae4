-- What is done in an event store within one transaction. A newer version of Headrace replaces them when it opens
-- the store, so whatever programs of older versions call them with must go on being understood.
--
-- Programs append one event without these functions (APPEND_EVENT in queries.py), but with headers_of. A version
-- that does more on an append than write to the tables has to call headers_of by another name and drop this one:
-- programs that are open then find it missing, and call the functions from there on.

-- The first event after a position that a condition names: [[after, types, tags], ...].
-- All writers wait meanwhile, so it must not read the log: what is named is looked up by the index on tags or on
-- types; where only few events have come since, they are read.
CREATE OR REPLACE FUNCTION @schema@.first_named(conditions jsonb) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    condition jsonb;
    types text[];
    tags_wanted text[];
    since bigint;
    head bigint;
    first bigint;
BEGIN
    SELECT position INTO head FROM @schema@.events ORDER BY position DESC LIMIT 1;
    FOR condition IN SELECT jsonb_array_elements(conditions) LOOP
        types := ARRAY(SELECT jsonb_array_elements_text(condition -> 1));
        tags_wanted := ARRAY(SELECT jsonb_array_elements_text(condition -> 2));
        since := (condition ->> 0)::bigint;
        IF head - since <= 1000 OR (types = '{}' AND tags_wanted = '{}') THEN
            SELECT e.position INTO first FROM @schema@.events AS e
            WHERE e.position > since
              AND (types = '{}' OR e.type = ANY (types))
              AND e.tags @> tags_wanted
            ORDER BY e.position LIMIT 1;
        ELSIF tags_wanted = '{}' THEN
            -- The next entry of the index on types, which may be of another type. Asked for the type alone, the
            -- planner may walk the log.
            SELECT min(found.position) INTO first
            FROM unnest(types) AS wanted (type) CROSS JOIN LATERAL (
                SELECT e.type, e.position FROM @schema@.events AS e
                WHERE (e.type, e.position) > (wanted.type COLLATE "C", since)
                ORDER BY e.type, e.position LIMIT 1
            ) AS found
            WHERE found.type = wanted.type COLLATE "C";
        ELSE
            -- Materialized, for else the planner may walk the log in order, in the hope of an early hit.
            WITH found AS MATERIALIZED (
                SELECT e.position, e.type FROM @schema@.events AS e
                WHERE e.tags @> tags_wanted AND e.tags <> '{}'
            )
            SELECT min(found.position) INTO first FROM found
            WHERE found.position > since AND (types = '{}' OR found.type = ANY (types));
        END IF;
        IF first IS NOT NULL THEN
            RETURN first;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- What is told of an event beside its data, with its place.
CREATE OR REPLACE FUNCTION @schema@.headers_of(place bigint, number bigint, metadata text) RETURNS json
LANGUAGE sql STABLE AS $$
    SELECT ('{"position":' || place || ',"version":' || number
            || CASE WHEN metadata = '{}' THEN '}' ELSE ',' || substr(metadata, 2) END)::json
$$;

-- One append to one stream without conditions, which is what most are: the same as below, by a shorter way.
-- Where all events have the same type, schema version, metadata, tags or subjects, it may be given once.
CREATE OR REPLACE FUNCTION @schema@.append_one(
    command text, command_fingerprint bytea, category text, stream text, expected bigint, event_count int,
    ids text, types text, schema_versions text, payloads text, metadata text, tags text, subjects text,
    given_at timestamptz,
    OUT outcome text, OUT after_position bigint, OUT last_position bigint,
    OUT result_streams text[], OUT result_versions bigint[], OUT conflict bigint
)
LANGUAGE plpgsql AS $$
DECLARE
    now_at timestamptz;
    base bigint;
    known record;
BEGIN
    PERFORM pg_advisory_xact_lock(@lock@);
    result_streams := ARRAY[stream];
    IF command IS NOT NULL THEN
        SELECT * INTO known FROM @schema@.commands AS c WHERE c.id = command;
        IF FOUND THEN
            outcome := CASE WHEN known.fingerprint = command_fingerprint THEN 'known' ELSE 'reused' END;
            after_position := known.after_position;
            last_position := known.last_position;
            result_streams := known.streams;
            result_versions := known.versions;
            RETURN;
        END IF;
    END IF;
    SELECT coalesce((SELECT e.version FROM @schema@.events AS e
                     WHERE e.aggregateid = stream ORDER BY e.version DESC LIMIT 1), 0),
           last.position, last.recorded_at
    INTO base, after_position, now_at
    FROM (SELECT) AS one LEFT JOIN LATERAL (
        SELECT e.position, e.recorded_at FROM @schema@.events AS e ORDER BY e.position DESC LIMIT 1
    ) AS last ON true;
    IF expected <> -1 AND expected <> base THEN
        outcome := 'version';
        conflict := base;
        result_versions := ARRAY[expected];
        after_position := NULL;
        RETURN;
    END IF;
    after_position := coalesce(after_position, 0);
    now_at := greatest(coalesce(given_at, clock_timestamp()), now_at);
    last_position := after_position + event_count;
    result_versions := ARRAY[base + event_count];
    outcome := 'appended';
    IF event_count = 1 THEN
        INSERT INTO @schema@.events VALUES (
            last_position, category, stream, base + 1, ids::uuid, types, schema_versions::int, payloads::json,
            @schema@.headers_of(last_position, base + 1, metadata), tags::text[], subjects::text[], now_at
        );
    ELSIF event_count > 1 THEN
        INSERT INTO @schema@.events
        SELECT after_position + n, category, stream, base + n, e.id::uuid, coalesce(e.type, types),
               coalesce(e.version, schema_versions)::int, e.payload::json,
               @schema@.headers_of(after_position + n, base + n, coalesce(e.metadata, append_one.metadata)),
               coalesce(e.tags, append_one.tags)::text[], coalesce(e.subjects, append_one.subjects)::text[], now_at
        FROM ROWS FROM (
            string_to_table(ids, chr(30)), string_to_table(types, chr(30)),
            string_to_table(schema_versions, chr(30)), string_to_table(payloads, chr(30)),
            string_to_table(metadata, chr(30)), string_to_table(tags, chr(30)),
            string_to_table(subjects, chr(30))
        ) WITH ORDINALITY AS e (id, type, version, payload, metadata, tags, subjects, n);
    END IF;
    IF command IS NOT NULL THEN
        INSERT INTO @schema@.commands VALUES (
            command, command_fingerprint, after_position, last_position, result_streams, result_versions, now_at
        );
    END IF;
    IF event_count > 0 AND NOT pg_try_advisory_xact_lock(@listening@) THEN
        PERFORM pg_notify(@channel@, '');
    END IF;
END $$;

-- Several appends, each of which happens or does not. Lists are texts with U+001E between their items, which
-- no item may have in it.
--     appends   command id, fingerprint as hex, conditions as JSON, number of writes
--     writes    category, stream, expected version (-1: any), number of events
--     events    id, type, schema version, payload, metadata, tags and subjects as text of arrays
CREATE OR REPLACE FUNCTION @schema@.append(
    command_ids text, fingerprints text, conditions text, write_counts text,
    categories text, streams text, expected text, event_counts text,
    ids text, types text, schema_versions text, payloads text, metadata text, tags text, subjects text,
    given_at timestamptz
) RETURNS TABLE (outcome text, after_position bigint, last_position bigint,
                 result_streams text[], result_versions bigint[], conflict bigint)
LANGUAGE plpgsql AS $$
DECLARE
    a_command text[] := string_to_array(command_ids, chr(30));
    a_fingerprint text[] := string_to_array(fingerprints, chr(30));
    a_condition text[] := string_to_array(conditions, chr(30));
    a_writes int[] := string_to_array(write_counts, chr(30))::int[];
    w_category text[] := string_to_array(categories, chr(30));
    w_stream text[] := string_to_array(streams, chr(30));
    w_expected bigint[] := string_to_array(expected, chr(30))::bigint[];
    w_events int[] := string_to_array(event_counts, chr(30))::int[];
    e_id text[] := string_to_array(ids, chr(30));
    e_type text[] := string_to_array(types, chr(30));
    e_version text[] := string_to_array(schema_versions, chr(30));
    e_payload text[] := string_to_array(payloads, chr(30));
    e_metadata text[] := string_to_array(metadata, chr(30));
    e_tags text[] := string_to_array(tags, chr(30));
    e_subjects text[] := string_to_array(subjects, chr(30));
    now_at timestamptz;
    known record;
    head bigint;
    head_before bigint;
    base bigint;
    bases bigint[];
    write_first int := 1;
    write_last int;
    event_first int := 1;
    event_next int;
    count_ int;
BEGIN
    -- All that append wait here for each other, until the one before has committed.
    PERFORM pg_advisory_xact_lock(@lock@);
    SELECT e.position, e.recorded_at INTO head_before, now_at
    FROM @schema@.events AS e ORDER BY e.position DESC LIMIT 1;
    head_before := coalesce(head_before, 0);
    head := head_before;
    now_at := greatest(coalesce(given_at, clock_timestamp()), now_at);
    FOR a IN 1 .. array_length(a_writes, 1) LOOP
        write_last := write_first + a_writes[a] - 1;
        event_next := event_first;
        outcome := 'appended';
        after_position := head;
        result_streams := w_stream[write_first:write_last];
        result_versions := '{}';
        bases := '{}';
        conflict := NULL;
        IF a_command[a] <> '' THEN
            SELECT * INTO known FROM @schema@.commands AS c WHERE c.id = a_command[a];
            IF FOUND THEN
                outcome := CASE WHEN known.fingerprint = decode(a_fingerprint[a], 'hex')
                           THEN 'known' ELSE 'reused' END;
                after_position := known.after_position;
                last_position := known.last_position;
                result_streams := known.streams;
                result_versions := known.versions;
            END IF;
        END IF;
        FOR w IN write_first .. write_last LOOP
            event_next := event_next + w_events[w];
            IF outcome = 'appended' THEN
                SELECT max(e.version) INTO base FROM @schema@.events AS e WHERE e.aggregateid = w_stream[w];
                base := coalesce(base, 0);
                IF w_expected[w] <> -1 AND w_expected[w] <> base THEN
                    outcome := 'version';
                    conflict := base;
                    result_streams := ARRAY[w_stream[w]];
                    result_versions := ARRAY[w_expected[w]];
                ELSE
                    bases := bases || base;
                    result_versions := result_versions || (base + w_events[w]);
                END IF;
            END IF;
        END LOOP;
        IF outcome = 'appended' AND a_condition[a] <> '' THEN
            conflict := @schema@.first_named(a_condition[a]::jsonb);
            IF conflict IS NOT NULL THEN
                outcome := 'condition';
            END IF;
        END IF;
        IF outcome = 'appended' THEN
            FOR w IN write_first .. write_last LOOP
                count_ := w_events[w];
                IF count_ > 0 THEN
                    base := bases[w - write_first + 1];
                    INSERT INTO @schema@.events
                    SELECT head + n, w_category[w], w_stream[w], base + n, e.id::uuid, e.type, e.version::int,
                           e.payload::json,
                           @schema@.headers_of(head + n, base + n, e.metadata),
                           e.tags::text[], e.subjects::text[], now_at
                    FROM ROWS FROM (
                        unnest(e_id[event_first:event_first + count_ - 1]),
                        unnest(e_type[event_first:event_first + count_ - 1]),
                        unnest(e_version[event_first:event_first + count_ - 1]),
                        unnest(e_payload[event_first:event_first + count_ - 1]),
                        unnest(e_metadata[event_first:event_first + count_ - 1]),
                        unnest(e_tags[event_first:event_first + count_ - 1]),
                        unnest(e_subjects[event_first:event_first + count_ - 1])
                    ) WITH ORDINALITY AS e (id, type, version, payload, metadata, tags, subjects, n);
                    head := head + count_;
                    event_first := event_first + count_;
                END IF;
            END LOOP;
            last_position := head;
            IF a_command[a] <> '' THEN
                INSERT INTO @schema@.commands VALUES (
                    a_command[a], decode(a_fingerprint[a], 'hex'), after_position, last_position,
                    result_streams, result_versions, now_at
                );
            END IF;
        END IF;
        write_first := write_last + 1;
        event_first := event_next;
        RETURN NEXT;
    END LOOP;
    -- Who waits for events holds this lock. Who begins to wait now gets it once this has committed, and looks.
    IF head > head_before AND NOT pg_try_advisory_xact_lock(@listening@) THEN
        PERFORM pg_notify(@channel@, '');
    END IF;
END $$;

-- The last position that was recorded at a time or before. Positions have no gaps, and times never go back.
CREATE OR REPLACE FUNCTION @schema@.position_at(wanted timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    low bigint := 0;
    high bigint;
    middle bigint;
BEGIN
    SELECT coalesce(max(position), 0) INTO high FROM @schema@.events;
    WHILE low < high LOOP
        middle := (low + high + 1) / 2;
        IF (SELECT recorded_at <= wanted FROM @schema@.events WHERE position = middle) THEN
            low := middle;
        ELSE
            high := middle - 1;
        END IF;
    END LOOP;
    RETURN low;
END $$;

-- By which these functions are told from those of other versions.
COMMENT ON FUNCTION @schema@.append_one IS 'functions of headrace, version 2';
