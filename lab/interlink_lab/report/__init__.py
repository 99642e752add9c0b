"""A run's report: a timeline as HTML and as text."""
