"""What each request means: one file per API, or per small family of APIs.

A handler takes the call, with the broker's services in it, and a version-independent request. It returns
the response, or a Pending that is resolved later. It never looks at the version, except where Kafka gave the
same bytes another meaning.
"""
