"""The command line: builds the objects and wires them, nothing else."""
