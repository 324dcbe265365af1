//! What people read, made from timelines alone.
