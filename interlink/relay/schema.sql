-- The relay's queue. One file, written by one connection in one process (a lock file beside it says so).
-- PRAGMA user_version holds the version of this schema; tables.py checks it before anything is written.

-- One row a message, from the commit that precedes its 202 until its acknowledgement deletes it.
CREATE TABLE message (
    seq     INTEGER PRIMARY KEY,  -- order of acceptance over all recipients; never used twice (see counter)
    route   TEXT    NOT NULL,     -- recipient, opaque: KEY#SESSION
    secret  TEXT    NOT NULL,     -- the unguessable end of this message's ack token
    ts      INTEGER NOT NULL,     -- when the relay took it, ms since the epoch
    size    INTEGER NOT NULL,     -- bytes of payload, so that counting reads no payload
    payload BLOB    NOT NULL      -- the sender's JSON, byte for byte
);

-- The head of a recipient's queue (route, seq), and counts and bytes at start, without touching the table.
CREATE INDEX message_by_route ON message (route, seq, size);

-- Small numbers that must survive. 'seq': the highest sequence ever given out; it outlives the messages,
-- so that a late ack token can never meet another message under its number.
CREATE TABLE counter (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO counter (name, value) VALUES ('seq', 0);
