"""The test kit: a pytest fixture with a broker, and a clock that stands still."""
