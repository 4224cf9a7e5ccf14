mod faulty;
mod memory;
mod model;
mod sqlite;
mod sqlite_extreme;
mod sqlite_file;
