"""Commands in, queries out, over HTTP."""

from headrace.events.http.app import Settings, create_app
from headrace.events.http.hosts import loopback_hosts
from headrace.events.http.query import Query, query

__all__ = ["Query", "Settings", "create_app", "loopback_hosts", "query"]
