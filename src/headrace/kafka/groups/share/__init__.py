"""Membership of share groups (KIP-932), as pure logic: who is a member, and who reads which partitions.

    a member joins, leaves or subscribes anew; a topic comes, grows or goes
      └─> group epoch + 1 ─> target assignment of that epoch ─> each member hears of its part

Rules
1. Every partition that a member wants is read by at least one of those who want it. Where there are more
   members than partitions, several read the same one: records are what they share, not partitions.
2. So nobody has to let go before another may begin. A member is at its target as soon as it has heard of it.
3. Epochs only grow. A request with another epoch than the member's is fenced, but for the epoch before it:
   the answer that told of the new one may have been lost. One that joins anew takes its place up again.
4. A silent member is removed when its session times out.
5. A group that has no members stays until it is deleted: how far it has come is kept with it.

How records are given out and acknowledged is none of this package's business.
"""
