"""One module a command of `interlink-lab`."""
