//! Stores: in memory, and in a SQLite file.
