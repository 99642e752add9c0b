"""The programs that run an agent: how a server finds its host, and how a notice reaches it."""
