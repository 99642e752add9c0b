"""The state root on disk: where files are, how they are written, how they are locked (T1, T2, M29)."""
