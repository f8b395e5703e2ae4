"""Consumer groups by the classic protocol, as pure logic.

    EMPTY ──join──> PREPARING_REBALANCE ──all have joined, or time is up──> COMPLETING_REBALANCE
      ^                 ^         ^                                            │          │
      │                 │         └── a member leaves, joins or is late ───────┘          │
      │                 └──────────── a member leaves, joins or times out ── STABLE <─────┘
      └── the last member is gone, from any state                  the leader's assignment

Rules
1. All members of a generation share its number, its protocol and one leader. A request that names another
   generation or an unknown member is refused and changes nothing: a zombie can't commit.
2. A member that waits for an answer is alive. Any other is removed when its session times out.
3. Each wait has an end: a rebalance completes with the members that have joined when the longest rebalance
   timeout of the group has passed, and members that then fail to ask for their assignment are removed.
4. A member with an instance id (static) keeps its place when it comes back with a new member id.

`GroupCoordinator.handle_*` change nothing and return records, replies and a response; `apply` is the only
mutation. Groups and committed offsets are kept as records of the topic `__consumer_offsets`, in Kafka's own
formats, and are recovered by applying them. Groups whose partitions the broker shares out (KIP-848) are in
`consumer/`, those whose members share records (KIP-932) in `share/`.
"""
