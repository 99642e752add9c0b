"""The lab: two hosts, relays and a fault injector, driven from outside the product."""
