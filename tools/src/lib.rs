//! What a model can do: the tool trait, pipeline, gate, barrier, the standard tools and the world they act on.
