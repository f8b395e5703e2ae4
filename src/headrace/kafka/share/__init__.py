"""Share groups: who has been given which records, and what became of them.

deliveries.py is the pure logic of one partition, sessions.py that of what members fetch; acquiring.py finds
out which offsets there are in what was read. records.py and state_log.py keep what must outlive the broker,
and positions.py puts it all together. Membership is in headrace.kafka.groups.share.
"""
