//! Run folders and the SQLite index over them.
