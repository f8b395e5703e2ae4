"""Metrics and health over HTTP, for whatever has some.

| module | responsibility |
|---|---|
| `answers` | what is answered to an HTTP request; pure |
| `server` | the HTTP listener |
"""
