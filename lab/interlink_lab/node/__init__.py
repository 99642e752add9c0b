"""A node: the lab's program on one machine, real or played."""
