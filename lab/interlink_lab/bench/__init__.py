"""Speed, measured from outside, with the machine's own disk speed beside it. See `__main__`."""
