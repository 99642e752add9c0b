"""What `interlink setup` changes in the configuration of a host: planned, shown, backed up, then written."""
