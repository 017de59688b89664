//! The durable log of a session: events, store, index and the projections that read it.
