//! Sessions, agents, the turn loop, approvals and everything that happens between a prompt and its answer.
