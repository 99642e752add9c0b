"""Who wrote this, and may they: keys, wire forms, the gate, peers (G1 to G8, B1)."""
