"""User functions over keyed state, as pure functions of Arrow tables. No Spark, no I/O.

`per_event` calls a function for each row, `vectorised` one for each bucket. `fields` is what both know of the
state that a function declares, and `calling` says where a function has failed.
"""
