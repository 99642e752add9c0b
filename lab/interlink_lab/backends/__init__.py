"""Where nodes live: plain processes, or containers."""
