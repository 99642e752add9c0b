"""interlink: signed, durable messages between coding-agent sessions on different hosts."""

__version__ = "0.1.0"
