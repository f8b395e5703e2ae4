"""Bytes that no client sends: into the frame reader, every request decoder and every handler.

    values      requests with odd values in every field, made from the shapes of all versions on offer
    damage      the same bytes cut short, flipped, stretched, with lengths that can't be
    checks      what must hold whatever comes: an answer or a closed connection, within bounds, nothing else
    queue_checks  the same for clients of queues: frames and methods of AMQP

The cases follow from a seed, and the APIs and versions from the broker's own table, so that one which is
added there is covered here.

    python -m headrace.testing.fuzz --rounds 1000
"""
