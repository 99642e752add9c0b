"""The relay ("bus"): one durable keep-until-acknowledged FIFO a recipient, over HTTP (B2).

`queue` keeps messages, `server` speaks HTTP, `serving` is the process; `waiters`, `roster` and
`metrics` are what their names say. `client` is the other side and imports none of these.
"""
