"""What patterns over the rows of a key are, apart from Spark: their language, and how they are found."""
