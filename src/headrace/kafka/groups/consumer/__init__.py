"""Consumer groups by the protocol of KIP-848, as pure logic: the broker shares out the partitions.

    a member joins, leaves or subscribes anew; a topic grows
      └─> group epoch + 1 ─> target assignment of that epoch ─> each member is led to its target:

        ┌──────────────── partitions to give up ─────────────────┐
        │                                                        v
      STABLE <─── all partitions are there ─── UNRELEASED <── UNREVOKED_PARTITIONS
        │                                        ^  (others       (waits until the member no longer
        └── partitions that others still have ───┘   let go)       names them as its own)

Rules
1. A partition is given to its new owner only when the old one has said that it let go, or is gone. What a
   member is told to own, it alone owns.
2. A member gives up first and is given afterwards: it reaches the target's epoch once it has given up.
3. Epochs only grow. A request with another epoch than the member's is fenced, but for the epoch before it
   with no more partitions than the member has: the answer that told of the new one may have been lost.
4. Each wait has an end: a silent member is removed when its session times out, one that does not give up
   when its own rebalance timeout has passed.
5. A member with an instance id (static) may leave for a while: its partitions wait for it until its session
   times out.

A heartbeat is answered at once. Nobody waits for others: each learns of its part at its next heartbeat.
"""
