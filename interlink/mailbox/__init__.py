"""The durable mailbox of one identity and session (M1 to M31): rules, the file, the operations."""
