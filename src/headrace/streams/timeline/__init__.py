"""How event time passed in an operator of a pipeline: rows, the watermark and windows, and their pictures."""
