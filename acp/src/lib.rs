//! The wire: Agent Client Protocol types, JSON-RPC, framing, and a connection for either side.
