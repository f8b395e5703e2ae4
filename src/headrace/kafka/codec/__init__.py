"""Bytes of a frame <-> version-independent requests and responses.

Each API has one request class and one response class, which hold the fields of *all* its versions under
Kafka's own names. A reader and a writer are compiled once per API version from the schemas of `kio`: the
reader leaves fields that a version lacks at the class's defaults, the writer drops them. So handlers never
ask for the version.

kio's own reader is not used, because it allocates what an array's length says before it looks at how many
bytes are left, and an allocation that fails there ends the process. A test holds the compiled readers and
writers against kio's, for every API and version on offer.
"""
