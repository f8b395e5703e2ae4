"""The web console: one page that shows alerts as they come, and whether anything stands still."""
