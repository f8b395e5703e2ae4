"""A broker and its clients in a world that is played: time, network, disk and threads, all from one seed.

    loop       time, calls that are made later, and coroutines, without asyncio
    network    connections that delay and lose what is sent, and break
    broker     the real broker (engine, store, log) on a simulated disk, which is killed and started again
    client     a client's connection: real frames, written and read by the real codec
    stories    producers, consumers, group members and faults, chosen by a seed; what they saw is a history

Only disk, network, clock and threads are played. Everything between the bytes of a request and the bytes on
the disk is the broker's own code. Nothing here reads the time, or a random number that does not come from the
seed, so a seed tells the same story each time:

    python -m headrace.testing.simulation --seed 17 --trace
"""
