"""One running session: receiving, notices, outbox, presence, and the runtime that holds them."""
